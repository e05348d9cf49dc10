"""Ranks that resume: the same step on all of them, whatever one of them finds; and each stored byte read once on a machine."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

import resume_ranks as resume
from torch_ranks.launch import launch


def test_damage_that_one_rank_finds_takes_all_ranks_to_the_step_before(tmp_path: Path) -> None:
    launch(2, resume.save_twice, str(tmp_path))
    assert launch(2, resume.load_newest, str(tmp_path)) == [(2, [], 2.0), (2, [], 2.0)]
    resume.damage(tmp_path, 2, 1)
    assert launch(2, resume.load_newest, str(tmp_path)) == [(1, [2], 1.0), (1, [2], 1.0)]


def test_a_rank_that_cannot_load_is_named_to_the_others(tmp_path: Path) -> None:
    launch(2, resume.save_twice, str(tmp_path))
    first, second = launch(2, resume.one_rank_wants_another_name, str(tmp_path))
    assert second.startswith("KeyMismatch")
    assert first.startswith("RankFailed: rank 1 could not load step 2")


def test_a_rank_that_cannot_save_is_named_to_the_others_at_once(tmp_path: Path) -> None:
    first, second = launch(2, resume.one_rank_cannot_save, str(tmp_path / "first"))
    assert second == "StateError: `extra` is a object, which cannot be saved without pickle"
    assert first == "RankFailed: rank 1 cannot save: `extra` is a object, which cannot be saved without pickle"
    first, second = launch(2, resume.one_rank_cannot_save_again, str(tmp_path / "again"))
    assert second.startswith("StateError")
    assert first.startswith("RankFailed: writer 1 could not save step 2: it was given up: `extra` is a object")


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_of_one_machine_read_each_byte_once(size: int, tmp_path: Path) -> None:
    results = launch(size, resume.reshard_together, str(tmp_path))
    assert all(right for _, _, right in results)
    needed = (1024 + 64) * 1024 * 4
    assert needed <= sum(read for read, _, _ in results) <= 1.05 * needed
    assert all(received > 0 for _, received, _ in results)


def test_a_rank_that_loads_alone_does_not_wait_for_ever(tmp_path: Path) -> None:
    results = launch(2, resume.only_one_rank_loads, str(tmp_path))
    assert results == [(0, True), (0, True)]
