"""Every script in the guides runs as it stands: blocks after `<!-- run -->`, or `<!-- run: torchrun --nproc-per-node 2 -->`."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

GUIDES = Path(__file__).resolve().parents[3] / "docs/guide"
BLOCK = re.compile(r"<!-- run(?:: (?P<launcher>[^>]+?))? -->\n```python\n(?P<code>.*?)```", re.DOTALL)


def blocks() -> list[object]:
    found = []
    for page in sorted(GUIDES.glob("*.md")):
        for number, match in enumerate(BLOCK.finditer(page.read_text())):
            found.append(pytest.param(match["launcher"], match["code"], id=f"{page.stem}-{number}"))
    return found


@pytest.mark.parametrize(("launcher", "code"), blocks())
def test_a_script_of_the_guide_runs_as_it_stands(launcher: str | None, code: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(code)
    command = [sys.executable, str(script)]
    if launcher is not None:
        program, *arguments = shlex.split(launcher)
        command = [str(Path(sys.executable).parent / program), *arguments, str(script)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr


def test_there_are_scripts_in_the_guides() -> None:
    assert len(blocks()) >= 3
