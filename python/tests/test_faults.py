"""A few rounds of the campaign with real processes and real faults; `cargo xtask nightly` plays hundreds."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CAMPAIGN = Path(__file__).parents[1] / "faults" / "campaign.py"


def play(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CAMPAIGN), "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280)


def test_some_rounds_of_the_campaign_hold(tmp_path: Path) -> None:
    done = play(tmp_path, "--rounds", "4", "--seed", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 rounds from seed 4: 0 failed" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_round_whose_promise_is_broken_fails_and_keeps_its_files(tmp_path: Path) -> None:
    """A command that deletes the run, in place of one that prunes it, is noticed."""
    vandal = tmp_path / "vandal"
    vandal.write_text('#!/bin/sh\nrm -rf "$2"/*\necho \'{"leftovers": [], "uploads": []}\'\n')
    os.chmod(vandal, 0o755)
    # The run of seed 6 lies in a folder.
    done = play(tmp_path, "--rounds", "1", "--seed", "6", "--command", str(vandal))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED seed 6" in done.stdout and "step 4 is lost" in done.stdout
    assert list(tmp_path.glob("cairn-faults-*/run-6.log"))
