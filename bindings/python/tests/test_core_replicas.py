"""How ranks find out that what they hold is not the same: the words, the samples, the rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cairn
from cairn._cairn import Spec
from cairn._part import Part
from cairn._replicas import Comparison, _Samples, checked_rules, differences, kept_apart, withdraw
from cairn._world import World


class Board:
    """Messages of threads, which can be looked at without waiting."""

    def __init__(self) -> None:
        self.messages: dict[str, str] = {}

    def set(self, key: str, value: str) -> None:
        self.messages[key] = value

    def get(self, key: str) -> bytes:
        return self.messages[key].encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.messages for key in keys)


def part(array: Any, *ranks: int) -> Part:
    return Part(Spec.replicated("u8", array.shape, ranks or (0, 1)), array)


def test_differences_are_told_with_names_and_ranks() -> None:
    assert differences([{"a": 1}, {"a": 1}, {}]) is None
    said = differences([{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 1}])
    assert said is not None and "`a`: ranks 0, 2; rank 1 differ" in said and "`b`" not in said
    own = differences([{"a": rank} for rank in range(9)])
    assert own is not None and "`a`: every rank has its own" in own
    many = differences([{str(name): rank for name in range(30)} for rank in range(2)])
    assert many is not None and "… and 10 more" in many


def test_a_large_tensor_is_sampled_from_its_first_byte_to_its_last() -> None:
    plain = np.zeros(1 << 20, np.uint8)
    world = World(0, 2, "launch")

    def digest(place: int | None) -> int:
        array = plain.copy()
        if place is not None:
            array[place] = 1
        return _Samples({"x": part(array)}, world).digests()["x"]

    assert digest(0) != digest(None) != digest(-1) and digest(0) != digest(-1)
    assert digest(8000) == digest(None)  # between two blocks: no rank differs in one element alone


def test_only_what_others_hold_as_well_is_compared() -> None:
    array = np.ones(4, np.uint8)
    cut = Part(Spec.mesh("u8", (4,), [("dp", 2)], None, [[0]]), array[:2])
    parts = {"same": part(array), "mine": part(array, 0), "cut": cut}
    assert set(_Samples(parts, World(0, 2, "launch")).digests()) == {"same"}


@pytest.mark.parametrize(("strict", "problem"), [((True, False), True), ((False, False), False)])
def test_if_one_rank_is_strict_all_are(strict: tuple[bool, bool], problem: bool) -> None:
    board = Board()
    comparisons = []
    for rank in (0, 1):
        world = World(rank, 2, "launch", board=board)
        array = np.full(4, rank, np.uint8)
        comparisons.append(Comparison(world, "topic", {"x": part(array)}, 20.0, is_strict=strict[rank]))
    for one in comparisons:
        one.start()
    for one in comparisons:
        said = one.outcome()
        assert (said is not None) == problem == (not one.is_settled)
        assert said is None or "`x`: rank 0; rank 1 differ" in said and "replicas=" in said


def test_a_rank_that_gives_its_save_up_is_not_waited_for() -> None:
    board = Board()
    comparison = Comparison(World(0, 2, "launch", board=board), "topic", {}, 20.0, is_strict=True)
    withdraw(World(1, 2, "launch", board=board), "topic")
    comparison.start()
    assert comparison.outcome() is None and not comparison.is_settled


def test_a_rank_that_never_comes_fails_the_comparison() -> None:
    comparison = Comparison(World(0, 2, "launch", board=Board()), "topic", {}, 0.05, is_strict=True)
    comparison.start()
    assert "could not compare" in (comparison.outcome() or "")


def test_rules_are_checked_and_names_of_ranks_are_found() -> None:
    assert checked_rules(None) == {} and checked_rules("per rank") == {"*": "per rank"}
    with pytest.raises(cairn.StateError, match='use "same", "rank 0", "per rank"'):
        checked_rules({"x": "mine"})  # type: ignore[dict-item]
    assert kept_apart(["a.$rank0", "a.$rank12", "a.$rankx", "b"]) == {"a": {0, 12}}
