"""Fixtures of the Python tests: the `cairn` binary under test."""

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Cairn:
    """The `cairn` command, called as a user would call it."""

    path: Path

    def run(self, *arguments, exit_code=0):
        """Runs the command, checks its exit code and returns the finished process."""
        command = [str(self.path), *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == exit_code, f"{command} exited {done.returncode}\n{done.stderr}{done.stdout}"
        return done

    def json(self, *arguments, exit_code=0):
        """Runs the command with `--json` and returns the object it prints."""
        return json.loads(self.run(*arguments, "--json", exit_code=exit_code).stdout)


@pytest.fixture(scope="session")
def cairn():
    path = os.environ.get("CAIRN_BIN")
    assert path, "CAIRN_BIN is not set: run the tests with `cargo xtask test`"
    return Cairn(Path(path))
