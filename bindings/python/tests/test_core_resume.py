"""What ranks do to agree on a step."""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from cairn import Damaged, RankFailed, StepNotFound
from cairn._checkpoint import Loaded
from cairn._resume import all_or_none, use_newest
from cairn._world import World


class Board:
    """Messages between threads."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}
        self.left = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.left:
            self.messages[key] = value
            self.left.notify_all()

    def get(self, key: str) -> bytes:
        with self.left:
            assert self.left.wait_for(lambda: key in self.messages, timeout=20), key
            return self.messages[key].encode()


def on_ranks(newest: Callable[[int, list[int]], int | None], load: Callable[[int, int], Loaded]) -> list[object]:
    """What each of two ranks loaded, or how it failed."""
    board = Board()

    def rank(number: int) -> object:
        world = World(number, 2, "launch", board=board)
        try:
            found, skipped = use_newest(world, "run", lambda tried: newest(number, tried), lambda step: load(number, step))
            found.skipped.update(skipped)
            return found
        except BaseException as error:
            return error

    with pytest.MonkeyPatch.context() as patch:
        # Ranks are processes, and each counts its rounds; here it is the first for both.
        patch.setattr("cairn._resume._rounds", defaultdict(lambda: itertools.repeat(0)))
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(rank, range(2)))


def loaded(step: int) -> Loaded:
    return Loaded(step, {}, 0, 0, 0, 0.0, 0.0, [], [], [])


def test_only_one_rank_looks_and_all_load_the_same_step() -> None:
    def newest(rank: int, tried: list[int]) -> int | None:
        assert rank == 0
        return max({1, 2, 3} - set(tried))

    def load(rank: int, step: int) -> Loaded:
        if rank == 1 and step == 3:
            raise Damaged("its bytes are spoilt")
        return loaded(step)

    ended = on_ranks(newest, load)
    assert [(each.step, each.skipped) for each in ended if isinstance(each, Loaded)] == [(2, {3: "its bytes are spoilt"})] * 2


def test_a_failure_to_look_is_told_to_all() -> None:
    def newest(rank: int, tried: list[int]) -> int | None:
        raise Damaged("the listing")

    first, second = on_ranks(newest, lambda rank, step: loaded(step))
    assert isinstance(first, Damaged)
    assert isinstance(second, RankFailed) and "rank 0 could not look for a step: the listing" in str(second)


def test_no_step_is_told_to_all() -> None:
    ended = on_ranks(lambda rank, tried: None, lambda rank, step: loaded(step))
    assert all(isinstance(each, StepNotFound) for each in ended)


@pytest.mark.parametrize("failure", [MemoryError("no memory"), KeyboardInterrupt(), SystemExit(3)])
def test_a_failure_of_any_kind_is_told_to_all(failure: BaseException) -> None:
    def load(rank: int, step: int) -> Loaded:
        if rank == 0:
            raise failure
        return loaded(step)

    first, second = on_ranks(lambda rank, tried: 1, load)
    assert first is failure
    assert isinstance(second, RankFailed) and type(failure).__name__ in str(second), second


def test_work_fails_on_all_ranks_if_it_fails_on_one() -> None:
    board = Board()

    def rank(number: int) -> object:
        def work() -> int:
            if number == 1:
                raise ValueError("not this one")
            return number

        try:
            return all_or_none(World(number, 2, "launch", board=board), "run", work, "resume")
        except Exception as error:
            return error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("cairn._resume._rounds", defaultdict(lambda: itertools.repeat(0)))
        with ThreadPoolExecutor(2) as threads:
            first, second = threads.map(rank, range(2))
    assert isinstance(second, ValueError)
    assert isinstance(first, RankFailed) and "rank 1 could not resume the checkpoint: ValueError: not this one" in str(first)
