"""One rank fails in the middle of a call, with an error that is not Cairn's: what the others hear of it, and when."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cairn
import torch
import torch.distributed as dist
from launch import launch, main

#: Far below every time-out.
AT_ONCE_S = 15.0


class Fragile:
    """A state of the user's that fails when it is told to."""

    def __init__(self, rank: int, value: float) -> None:
        self.weights = torch.full((4,), value)
        self.name = f"w{rank}"
        self.failure: BaseException | None = None

    def state_dict(self) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        return {self.name: self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.failure is not None:
            raise self.failure


def attempt(checkpointer: cairn.Checkpointer, step: int, state: object) -> str:
    """How a save ends on this rank."""
    began = time.monotonic()
    try:
        checkpointer.save(step, state, blocking=True)
        return "saved"
    except BaseException as error:
        assert time.monotonic() - began < AT_ONCE_S, f"the failure took {time.monotonic() - began:.0f} s to arrive"
        return type(error).__name__


def fails_and_is_tried_again(folder: Path, failure: BaseException, first: int) -> None:
    """Rank 1 fails at step ``first``; afterwards the state moves on, and all ranks try the same step again."""

    def work(rank: int, size: int) -> tuple[str, str]:
        checkpointer = cairn.Checkpointer(folder, ranks="differ")
        state = Fragile(rank, 0.0)
        for step in range(1, first):
            checkpointer.save(step, {"s": state}, blocking=True)
        dist.barrier()
        state.weights.fill_(1.0)
        state.failure = failure if rank == 1 else None
        ended = attempt(checkpointer, first, {"s": state})
        dist.barrier()
        state.failure = None
        state.weights.fill_(2.0)
        return ended, attempt(checkpointer, first, {"s": state})

    ended = launch(2, work)
    assert ended == [("RankFailed", "saved"), (type(failure).__name__, "saved")], ended
    opened = cairn.open(folder, first)
    assert {name: set(opened[name].numpy().tolist()) for name in opened} == {"s.w0": {2.0}, "s.w1": {2.0}}


def a_retry_after_a_failed_save_never_mixes_two_moments(folder: Path) -> None:
    fails_and_is_tried_again(folder, torch.OutOfMemoryError("CUDA out of memory"), first=2)


def a_first_save_that_is_interrupted_ends_on_all_ranks_and_can_be_tried_again(folder: Path) -> None:
    fails_and_is_tried_again(folder, KeyboardInterrupt(), first=1)


def a_load_that_fails_on_one_rank_fails_on_all_at_once(folder: Path) -> None:
    def work(rank: int, size: int) -> tuple[str, int | None]:
        checkpointer = cairn.Checkpointer(folder, ranks="differ")
        state = Fragile(rank, 3.0)
        checkpointer.save(1, {"s": state}, blocking=True)
        state.failure = MemoryError("no memory") if rank == 1 else None
        ended, began = "loaded", time.monotonic()
        try:
            checkpointer.load(into={"s": state})
        except BaseException as error:
            ended = type(error).__name__
        assert time.monotonic() - began < AT_ONCE_S
        state.failure = None
        return ended, checkpointer.load(into={"s": state}).step

    assert launch(2, work) == [("RankFailed", 1), ("MemoryError", 1)]


def all_ranks_open_the_step_that_rank_0_has_found(folder: Path) -> None:
    def work(rank: int, size: int) -> int | None:
        checkpointer = cairn.Checkpointer(folder)
        checkpointer.save(1, {"w": torch.ones(3)}, blocking=True)
        dist.barrier()
        if rank == 1:
            # Rank 0 has looked by now; a dead launch's keeper commits a step.
            time.sleep(0.5)
            cairn.Checkpointer(folder, world=cairn.World()).save(2, {"w": torch.ones(3)}, blocking=True)
        return checkpointer.open().step

    assert launch(2, work) == [1, 1]


CHECKS = {
    check.__name__: check
    for check in (
        a_retry_after_a_failed_save_never_mixes_two_moments,
        a_first_save_that_is_interrupted_ends_on_all_ranks_and_can_be_tried_again,
        a_load_that_fails_on_one_rank_fails_on_all_at_once,
        all_ranks_open_the_step_that_rank_0_has_found,
    )
}

if __name__ == "__main__":
    main(CHECKS)
