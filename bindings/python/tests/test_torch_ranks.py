"""Runs the checks of `torch_ranks/`, each with several processes; a file of checks is one launch, so that torch starts once."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

FOLDER = Path(__file__).parent / "torch_ranks"
#: No GPU: ranks are forked, and there are more of them than devices.
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}


def checks() -> list[Any]:
    """Every function of the scripts that is in their table of checks."""
    found = []
    for script in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(script.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CHECKS":
                names = ast.unparse(node.value.generators[0].iter).strip("()").split(", ")  # type: ignore[attr-defined]
                found += [pytest.param(script.stem, name, id=name) for name in names]
    return found


@cache
def results(script: str, folder: Path) -> dict[str, str]:
    """What became of each check of a script."""
    place = folder / script
    place.mkdir()
    command = [sys.executable, str(FOLDER / f"{script}.py"), str(place)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.mark.parametrize(("script", "name"), checks())
def test_on_real_ranks(script: str, name: str, folder: Path) -> None:
    outcome = results(script, folder)[name]
    assert outcome == "passed", outcome


AGENT = """
import cairn, os, sys, torch
rank, restart = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
checkpointer = cairn.Checkpointer(sys.argv[1])
assert checkpointer.world.launcher == "torchrun" and not torch.distributed.is_initialized()
checkpointer.save(restart, {"x": torch.full((4,), float(restart)), "mine": cairn.PerRank(rank)}, blocking=True)
if restart == 0:
    sys.exit(3)
assert checkpointer.steps() == [0, 1]
"""


def test_torchrun_without_a_process_group_saves_and_saves_again_after_a_restart(tmp_path: Path) -> None:
    script = tmp_path / "agent.py"
    script.write_text(AGENT)
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "--max-restarts=1"]
    run = tmp_path / "run"
    done = subprocess.run([*launcher, str(script), str(run)], env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    import cairn

    checkpoint = cairn.open(run)
    assert checkpoint.step == 1 and checkpoint.world_size == 2 and checkpoint.of_rank(1) == {"mine": 1}


def test_the_example_goes_on_with_another_number_of_ranks(tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples/torch_fsdp2.py"
    seen = []
    for ranks, steps in ((3, 5), (2, 10)):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [*launcher, str(example), "run", "--steps", str(steps)]
        done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr
        seen += [line.split(":")[0] for line in done.stdout.splitlines() if line.startswith("step")]
    assert seen == [f"step {step}" for step in range(1, 11)]
