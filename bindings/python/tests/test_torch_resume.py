"""Ranks that resume: the same step on all of them, whatever one of them finds; and each stored byte read once on a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

SCRIPT = Path(__file__).parent / "resume_ranks.py"


def ranks(check: str, size: int, path: Path) -> list[Any]:
    """What each rank returns from a check."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-W", "ignore", str(SCRIPT), check, str(size), str(path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    returned: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return returned


def damage(path: Path, step: int, writer: int) -> None:
    """Flips a bit in the data of one writer."""
    (file,) = path.glob(f"step-{step:08d}/*/{writer:05d}.safetensors")
    data = bytearray(file.read_bytes())
    data[-100] ^= 1
    file.write_bytes(data)


def test_damage_that_one_rank_finds_takes_all_ranks_to_the_step_before(tmp_path: Path) -> None:
    ranks("save_twice", 2, tmp_path)
    assert ranks("load_newest", 2, tmp_path) == [[2, [], 2.0]] * 2
    damage(tmp_path, 2, 1)
    assert ranks("load_newest", 2, tmp_path) == [[1, [2], 1.0]] * 2


def test_a_rank_that_cannot_load_is_named_to_the_others(tmp_path: Path) -> None:
    ranks("save_twice", 2, tmp_path)
    first, second = ranks("one_rank_wants_another_name", 2, tmp_path)
    assert second.startswith("KeyMismatch")
    assert first.startswith("RankFailed: rank 1 could not load step 2")


def test_a_rank_that_cannot_save_is_named_to_the_others_at_once(tmp_path: Path) -> None:
    first, second = ranks("one_rank_cannot_save", 2, tmp_path / "first")
    assert second == "StateError: `extra` is a object, which cannot be saved without pickle"
    assert first == "RankFailed: rank 1 cannot save: `extra` is a object, which cannot be saved without pickle"
    first, second = ranks("one_rank_cannot_save_again", 2, tmp_path / "again")
    assert second.startswith("StateError")
    assert first.startswith("RankFailed: writer 1 could not save step 2: it was given up: `extra` is a object")


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_of_one_machine_read_each_byte_once(size: int, tmp_path: Path) -> None:
    results = ranks("reshard_together", size, tmp_path)
    assert all(right for _, _, right in results)
    needed = (1024 + 64) * 1024 * 4
    assert needed <= sum(read for read, _, _ in results) <= 1.05 * needed
    assert all(received > 0 for _, received, _ in results)


def test_a_rank_that_loads_alone_does_not_wait_for_ever(tmp_path: Path) -> None:
    results = ranks("only_one_rank_loads", 2, tmp_path)
    assert results == [[0, True]] * 2
