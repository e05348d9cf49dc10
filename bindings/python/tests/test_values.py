"""Plain values come back from a checkpoint as they were: same type, same bits.

Hypothesis makes values of every kind, nested in each other; what cannot be kept is refused with its path.
"""

from __future__ import annotations

import enum
import json
import math
import random
import sys
from collections import OrderedDict, defaultdict, namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import cairn
from cairn._values import MAX_DEPTH, NotPlain, decode, encode
from cairn.errors import StateError


def spelled(value: Any) -> str:
    """The value with the types of everything in it: nan equals nan, -0.0 is not 0.0, and True is not 1."""
    kind = type(value).__name__
    if isinstance(value, (list, tuple)):
        return f"{kind}[{', '.join(map(spelled, value))}]"
    if isinstance(value, (set, frozenset)):
        return f"{kind}[{', '.join(sorted(map(spelled, value)))}]"
    if isinstance(value, dict):
        return f"{kind}[{', '.join(f'{spelled(key)}: {spelled(item)}' for key, item in value.items())}]"
    if isinstance(value, np.generic):
        return f"{value.dtype} {value.tobytes().hex()}"
    return f"{kind} {value!r}"


def same(one: Any, other: Any) -> bool:
    """Equal in type and bits, all the way down."""
    return spelled(one) == spelled(other)


def through_json(value: Any) -> Any:
    return decode(json.loads(json.dumps(encode(value), allow_nan=False)))


text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = text | text.map(lambda key: f"${key}") | st.sampled_from(["$tuple", "$dict", "$", "a.b", ""])
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(2**62, 2**65),
    st.integers(-(2**65), -(2**62)),
    st.floats(),
    st.complex_numbers(),
    st.binary(max_size=16),
    keys,
)
hashables = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3), max_leaves=3
)
values = st.recursive(
    scalars | hashables,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(hashables, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.dictionaries(hashables, inner, max_size=4),
    ),
    max_leaves=6,
)


@settings(max_examples=400, deadline=None)
@given(values)
@example(-0.0)
@example([math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308, 0.1])
@example([2**63, 2**64 - 1, 2**64, -(2**63), -(2**63) - 1])
@example({"$tuple": [1]})
@example({"$unknown": 1, "b": 2})
@example({1: "int", "1": "text", (1,): "tuple", None: "none", 1.5: "float"})
@example({frozenset({1, frozenset()}), (), b"", "\U0001f5ff"})
def test_every_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert same(through_json(value), value)


@settings(max_examples=20, deadline=None)
@given(st.lists(values, max_size=6))
def test_every_plain_value_comes_back_from_a_checkpoint(tmp_path_factory: pytest.TempPathFactory, many: list[Any]) -> None:
    run = cairn.Checkpointer(tmp_path_factory.mktemp("run"))
    state = {f"value {i}": value for i, value in enumerate(many)}
    run.save(0, state, blocking=True)
    assert same(run.open(0).plain, state)
    assert same(run.load(0, into=dict.fromkeys(state)).state, state)


def test_an_integer_of_any_length_is_kept() -> None:
    huge = -(10**5000)
    assert through_json(huge) == huge


@pytest.mark.parametrize(
    "scalar",
    [np.float32(0.1), np.float64(-0.0), np.int8(-3), np.uint64(2**64 - 1), np.bool_(True), np.complex64(1 - 2j), np.float16(1e-7)],
)
def test_numpy_scalars_keep_their_type(scalar: Any) -> None:
    assert same(through_json([scalar])[0], scalar)


def test_the_states_of_generators_are_kept() -> None:
    python, legacy, pcg = random.Random(1).getstate(), np.random.RandomState(1).get_state(), np.random.PCG64(1).state
    assert through_json(python) == python
    assert through_json(pcg) == pcg
    restored = np.random.RandomState()
    restored.set_state(through_json(legacy))
    assert restored.random() == np.random.RandomState(1).random()


def test_subclasses_are_kept_as_their_data() -> None:
    class Colour(enum.IntEnum):
        RED = 3

    class Name(str):
        pass

    point = namedtuple("point", "x y")
    assert same(through_json(Colour.RED), 3)
    assert same(through_json(Name("a")), "a")
    assert same(through_json(point(1, 2)), (1, 2))
    assert same(through_json(OrderedDict(b=1, a=2)), {"b": 1, "a": 2})
    assert same(through_json(defaultdict(list, a=[1])), {"a": [1]})
    assert same(through_json(bytearray(b"x")), b"x")


class Thing:
    """No plain data."""


@pytest.mark.parametrize(
    ("value", "path"),
    [
        (Thing(), "v"),
        ([1, Thing()], "v.1"),
        ({"a": {"b": (1, Thing())}}, "v.a.b.1"),
        ({3: {None: Thing()}}, "v.3.None"),
        ({Thing(): 1}, "v"),
        (lambda: 1, "v"),
        (Thing, "v"),
        (range(3), "v"),
        (np.datetime64(5, "s"), "v"),
        (np.array([Thing()]), "v"),
    ],
)
def test_a_refused_object_names_its_path(value: Any, path: str) -> None:
    with pytest.raises(NotPlain) as refused:
        encode(value, "v")
    assert refused.value.path == path


def test_the_error_for_a_refused_object_says_what_where_and_what_next(tmp_path: Path) -> None:
    with pytest.raises(StateError) as refused:
        cairn.Checkpointer(tmp_path).save(0, {"a": {"b": [1, Thing()]}})
    assert refused.value.message == f"`a.b.1` is a {__name__}.Thing, which cannot be saved without pickle"
    assert "state_dict" in (refused.value.hint or "")


def nested(levels: int, wrap: Any) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize(
    ("wrap", "weight"),
    [(lambda v: [v], 1), (lambda v: {"k": v}, 1), (lambda v: (v,), 2), (lambda v: frozenset({v}), 2), (lambda v: {0: v}, 3)],
    ids=["list", "dict", "tuple", "set", "other keys"],
)
def test_the_deepest_value_that_is_taken_can_be_read_back(tmp_path: Path, wrap: Any, weight: int) -> None:
    run = cairn.Checkpointer(tmp_path)
    deepest = nested(MAX_DEPTH // weight, wrap)
    run.save(0, {"v": deepest}, blocking=True)
    assert same(run.open(0).plain["v"], deepest)
    assert run.load(into={"v": None}).state["v"] == deepest
    with pytest.raises(StateError, match=r"^`v\..*…` is nested more than 100 levels deep, or contains itself"):
        run.save(1, {"v": nested(MAX_DEPTH // weight + 1, wrap)})


def test_text_that_is_no_unicode_is_refused(tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path)
    for value in ("\ud800", {"\udfff": 1}, ["ok", {"k": "\ud83d"}]):
        with pytest.raises(StateError, match="not valid Unicode"):
            run.save(0, {"v": value})


def test_an_unknown_mark_asks_for_a_newer_version() -> None:
    with pytest.raises(StateError, match=r"marked `\$later`(.|\n)*newer Cairn"):
        decode({"a": [{"$later": 1}]})


def test_decoding_runs_no_code() -> None:
    before = set(sys.modules)
    for mark in ("$pickle", "$object", "$eval"):
        with pytest.raises(StateError):
            decode({mark: "__import__('this')"})
    assert "this" not in set(sys.modules) - before
