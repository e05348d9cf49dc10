"""Runs that go back: goal is that no save after that is lost or taken for a step of before, whichever way the state was loaded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn


def state(value: float) -> dict[str, Any]:
    return {"w": np.full(4, float(value)), "m": np.full(4, float(value))}


def committed(folder: Path, step: int) -> dict[str, Any]:
    """What ``COMMIT`` says of a step: its line, and the step that it follows."""
    manifest: dict[str, Any] = json.loads((folder / f"step-{step:08}" / "COMMIT").read_text())
    return manifest


def run_of(folder: Path, *steps: int, **options: Any) -> cairn.Checkpointer:
    run = cairn.Checkpointer(folder, **options)
    for step in steps:
        run.save(step, state(step), blocking=True)
        run.wait()
    return run


def test_saves_after_a_step_was_chosen_stay_and_are_the_newest(tmp_path: Path) -> None:
    run = run_of(tmp_path, 10, 20, 30, keep=cairn.Keep(last=2))
    run.load(20, into=state(0))
    for step in (21, 22, 23):
        run.save(step, state(step * 100), blocking=True)
        run.wait()
        assert step in run.steps() and run.open().step == step
    # The step that the new line began from stays, and the last of the line that was left.
    assert run.steps() == [20, 22, 23, 30]
    assert committed(tmp_path, 30).get("line", 0) == 0
    assert [committed(tmp_path, step)["line"] for step in (22, 23)] == [1, 1]


def test_the_history_says_which_steps_were_abandoned(tmp_path: Path) -> None:
    run = run_of(tmp_path, 10, 20, 30)
    run.load(20, into=state(0))
    run.save(21, state(21), blocking=True)
    history = run.history()
    assert [(step.step, step.line, step.abandoned) for step in history] == [
        (10, 0, False), (20, 0, False), (30, 0, True), (21, 1, False),
    ]
    assert [step.parent for step in history] == [None, 10, 20, 20]
    assert len({step.launch for step in history}) == 1


def test_a_rule_says_which_abandoned_steps_stay(tmp_path: Path) -> None:
    run = run_of(tmp_path, 10, 20, 30, 40, keep=cairn.Keep(last=9, abandoned="none"))
    run.load(20, into=state(0))
    run.save(21, state(21), blocking=True)
    run.wait()
    assert run.steps() == [10, 20, 21]
    with pytest.raises(cairn.Error, match="some"):
        cairn.Checkpointer(tmp_path, keep=cairn.Keep(abandoned="some"))


def test_a_new_process_that_goes_back_says_so_before_its_numbers_do(tmp_path: Path) -> None:
    run_of(tmp_path, 10, 20, 30).close()
    run = cairn.Checkpointer(tmp_path)
    run.load(20, into=state(0))
    run.save(40, state(40), blocking=True)
    found = committed(tmp_path, 40)
    assert found["line"] == 1 and found["parent"]["step"] == 20
    # A step of the line that was left is replaced without being asked to.
    run.load(20, into=state(0))
    run.save(30, state(300), blocking=True)
    assert run.open(30)["w"][0] == 300


def test_a_resume_from_the_newest_stays_on_its_line(tmp_path: Path) -> None:
    run_of(tmp_path, 10, 20).close()
    run = cairn.Checkpointer(tmp_path)
    assert run.load(into=state(0)).step == 20
    run.save(30, state(30), blocking=True)
    assert committed(tmp_path, 30).get("line", 0) == 0 and committed(tmp_path, 30)["parent"]["step"] == 20


@pytest.mark.parametrize("way", ["open", "cairn.open", "cairn.load"])
def test_every_way_to_load_counts(tmp_path: Path, way: str) -> None:
    run_of(tmp_path, 10, 20).close()
    if way == "open":
        cairn.Checkpointer(tmp_path).open(10).load(state(0))
    elif way == "cairn.open":
        cairn.open(tmp_path, 10).load(state(0))
    else:
        cairn.load(tmp_path, state(0))
    cairn.Checkpointer(tmp_path).save(30, state(30), blocking=True)
    found = committed(tmp_path, 30)
    expected = (0, 20) if way == "cairn.load" else (1, 10)
    assert (found.get("line", 0), found["parent"]["step"]) == expected


def test_a_look_at_older_weights_is_not_a_way_back(tmp_path: Path) -> None:
    run = run_of(tmp_path, 10, 20)
    run.open(10).load({"w": np.zeros(4)}, strict="partial")
    run.save(30, state(30), blocking=True)
    assert committed(tmp_path, 30).get("line", 0) == 0


def test_dcp_goes_back(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import pickle

    import torch
    import torch.distributed.checkpoint as dcp
    from cairn._course import course_of
    from cairn.torch.dcp import Reader, Writer

    for step in (10, 20, 30):
        dcp.save({"w": torch.full((4,), float(step))}, storage_writer=Writer(tmp_path, step=step, keep=cairn.Keep(last=2)), no_dist=True)
    dcp.load({"w": torch.zeros(4)}, storage_reader=Reader(tmp_path, step=20), no_dist=True)
    told = pickle.loads(pickle.dumps(Writer(tmp_path)))
    assert told.checkpoint_id == str(tmp_path) and course_of(str(tmp_path)).told == (1, 20)
    for step in (40, 41, 42):
        dcp.save({"w": torch.full((4,), float(step))}, storage_writer=Writer(tmp_path, step=step, keep=cairn.Keep(last=2)), no_dist=True)
    assert cairn.Checkpointer(tmp_path).steps() == [20, 30, 41, 42]
    assert [committed(tmp_path, step)["line"] for step in (41, 42)] == [1, 1]
    assert committed(tmp_path, 42)["parent"]["step"] == 41
