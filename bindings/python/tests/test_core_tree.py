"""A state is taken apart into names and put together again: what is walked, what is filled, what is refused."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import cairn
from cairn.errors import KeyMismatch, StateError


@pytest.fixture
def run(tmp_path: Path) -> cairn.Checkpointer:
    return cairn.Checkpointer(tmp_path / "run")


class Point(NamedTuple):
    """A tuple with names."""

    x: Any
    y: Any


class Meter:
    """An object with a state of its own."""

    def __init__(self, total: Any) -> None:
        self.total = total

    def state_dict(self) -> dict[str, Any]:
        return {"total": self.total, "kind": "sum"}

    def load_state_dict(self, state: dict[str, Any]) -> str:
        assert state["kind"] == "sum"
        self.total = state["total"]
        return "what load_state_dict returns is nobody's business"


def ones(*shape: int) -> np.ndarray[Any, Any]:
    return np.ones(shape, np.float32)


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def test_names_are_paths_joined_with_dots(run: cairn.Checkpointer) -> None:
    state = {"model": {"layers": [ones(1), ones(2)], 7: ones(3)}, "größe 🗿": ones(4), "epoch": 3, "cfg": {"lr": [0.1]}}
    run.save(0, state, blocking=True)
    checkpoint = run.open(0)
    assert sorted(checkpoint) == ["größe 🗿", "model.7", "model.layers.0", "model.layers.1"]
    assert checkpoint.plain == {"epoch": 3, "cfg": {"lr": [0.1]}}
    run.save(1, {"opt": (Point(ones(1), 2),)}, blocking=True)
    assert (list(run.open(1)), run.open(1).plain) == (["opt.0.x"], {"opt.0.y": 2})


def test_containers_are_filled_in_place_and_tuples_made_anew(run: cairn.Checkpointer) -> None:
    state = {"d": {"t": ones(2), "n": 1}, "l": [ones(1), 2], "t": (ones(3), 3), "p": Point(ones(4), 4)}
    run.save(0, state, blocking=True)
    inner: dict[str, Any] = {"t": zeros(2), "n": None}
    items: list[Any] = [zeros(1), None]
    into: dict[str, Any] = {"d": inner, "l": items, "t": (zeros(3), None), "p": Point(zeros(4), None)}
    tensors = [inner["t"], items[0], into["t"][0], into["p"].x]
    loaded = run.load(into=into)
    assert loaded.state is into and into["d"] is inner and into["l"] is items
    assert (inner["n"], items[1], into["t"][1], into["p"].y) == (1, 2, 3, 4)
    assert isinstance(into["p"], Point)
    assert all(tensor.all() for tensor in tensors)
    assert tensors[0] is inner["t"] and tensors[1] is items[0] and tensors[2] is into["t"][0] and tensors[3] is into["p"].x


def test_plain_dicts_and_lists_keep_their_identity(run: cairn.Checkpointer) -> None:
    run.save(0, {"config": {"a": 1}, "order": OrderedDict(z=1, a=2), "count": {"x": 1}, "seen": [1, 2], "t": (1,)}, blocking=True)
    config, order, count, seen = {"old": 0}, OrderedDict(), defaultdict(int, y=2), [0]
    loaded = run.load(into={"config": config, "order": order, "count": count, "seen": seen, "t": None})
    assert (config, list(order), dict(count), seen) == ({"a": 1}, ["z", "a"], {"x": 1}, [1, 2])
    assert count["new"] == 0
    assert loaded.state["config"] is config and loaded.state["order"] is order and loaded.state["seen"] is seen
    assert loaded.state["t"] == (1,)


def test_tuples_with_names_keep_them_inside_plain_values_too(run: cairn.Checkpointer) -> None:
    class Empty(NamedTuple):
        pass

    inner: list[Any] = [Point(0, 0), 0]
    run.save(0, {"v": (Empty(), {"p": Point(1, (Point(2, 3),))}, [Point(4, 5), 6, 7])}, blocking=True)
    found = run.load(into={"v": (Empty(), {"p": Point(0, (Point(0, 0),))}, inner)}).state["v"]
    assert found == (Empty(), {"p": Point(1, (Point(2, 3),))}, [Point(4, 5), 6, 7])
    assert isinstance(found[0], Empty) and isinstance(found[1]["p"].y[0], Point) and isinstance(found[2][0], Point)
    assert found[2] is inner
    assert run.load(into={"v": (1, 2)}).state["v"] == (Empty(), {"p": Point(1, (Point(2, 3),))}, [Point(4, 5), 6, 7])


def test_special_dicts_above_tensors_keep_their_class(run: cairn.Checkpointer) -> None:
    run.save(0, {"o": OrderedDict(b=ones(1), a=1), "d": defaultdict(list, t=ones(2))}, blocking=True)
    into = {"o": OrderedDict(b=zeros(1), a=0), "d": defaultdict(list, t=zeros(2))}
    run.load(into=into)
    assert isinstance(into["o"], OrderedDict) and list(into["o"]) == ["b", "a"] and into["o"]["a"] == 1
    assert into["d"]["t"].all() and into["d"]["new"] == []


def test_objects_with_a_state_are_asked_for_it(run: cairn.Checkpointer) -> None:
    run.save(0, {"meter": Meter(ones(3)), "deep": [{"m": Meter(5)}]}, blocking=True)
    assert sorted(run.open(0)) == ["meter.total"]
    tensor, plain = Meter(zeros(3)), Meter(0)
    loaded = run.load(into={"meter": tensor, "deep": [{"m": plain}]})
    assert tensor.total.all() and plain.total == 5
    assert loaded.state["meter"] is tensor


def test_a_class_with_a_state_dict_is_no_object_with_a_state(run: cairn.Checkpointer) -> None:
    with pytest.raises(StateError, match="`m` is a type, which cannot be saved without pickle"):
        run.save(0, {"m": Meter})


def test_a_value_per_rank_is_kept_apart(run: cairn.Checkpointer) -> None:
    run.save(0, {"mine": cairn.PerRank({"seed": 7}), "t": ones(1)}, blocking=True)
    assert run.open(0).plain == {}
    assert run.open(0).of_rank(0) == {"mine": {"seed": 7}}
    assert run.open(0).of_rank(1) == {}
    mine = cairn.PerRank(None)
    run.load(into={"mine": mine, "t": zeros(1)})
    assert mine.value == {"seed": 7}


def test_generators_go_on_where_they_were(run: cairn.Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    monkeypatch.delitem(sys.modules, "paddle", raising=False)  # another test may have drawn from its generator
    run.save(0, {"rng": cairn.Rng()}, blocking=True)
    expected = random.random(), np.random.random()
    random.seed(), np.random.seed()
    run.load(into={"rng": cairn.Rng()})
    assert (random.random(), np.random.random()) == expected


# States that are small, or odd.


def test_an_empty_state_is_a_state(run: cairn.Checkpointer) -> None:
    run.save(0, {}, blocking=True)
    assert (len(run.open(0)), run.open(0).plain, run.load(into={}).state) == (0, {}, {})


@pytest.mark.parametrize("nothing", [{}, [], ()])
def test_what_is_empty_on_one_side_fits_what_is_not(run: cairn.Checkpointer, nothing: object) -> None:
    # As ranks leave it of which one has no part of the model.
    run.save(0, {"model": nothing, "model.w": ones(2)}, blocking=True)
    assert run.load(0, into={"model": {"w": np.zeros(2, np.float32)}}).state["model"]["w"].tolist() == [1, 1]
    run.save(1, {"model": {"w": ones(2)}}, blocking=True)
    assert run.load(1, into={"model": nothing}, strict="partial").state == {"model": nothing}
    with pytest.raises(KeyMismatch, match="unexpected  `model.w`"):
        run.load(1, into={"model": nothing})


def test_what_is_empty_and_has_no_counterpart_is_told(run: cairn.Checkpointer) -> None:
    run.save(0, {"model": {"w": ones(2)}, "more": {"x": []}}, blocking=True)
    with pytest.raises(KeyMismatch, match="1 missing, 0 unexpected\n  missing     `mode`"):
        run.load(0, into={"mode": {}}, strict="partial")
    with pytest.raises(KeyMismatch, match="unexpected  `more`"):
        run.load(0, into={"more": {"w": ones(2)}})


def test_a_state_without_tensors_has_names_too(run: cairn.Checkpointer) -> None:
    run.save(0, {"epoch": 3, "lr": 0.1, "model": ones(1)}, blocking=True)
    assert run.load(into={"epoch": 0}).state == {"epoch": 3}
    assert run.load(into={"lr": 0, "epoch": 0}).state == {"lr": 0.1, "epoch": 3}


def test_a_plain_value_can_be_the_whole_state(run: cairn.Checkpointer) -> None:
    for step, value in enumerate([5, "text", None, [1, 2], (1, 2)]):
        run.save(step, value, blocking=True)
        assert run.load(step, into=None).state == value


def test_a_list_can_be_the_whole_state(run: cairn.Checkpointer) -> None:
    run.save(0, [ones(2), 7], blocking=True)
    into = [zeros(2), 0]
    run.load(into=into)
    assert into[0].all() and into[1] == 7


def test_a_bare_tensor_is_asked_to_have_a_name(run: cairn.Checkpointer) -> None:
    for state in (ones(2), {"": ones(2)}):
        with pytest.raises(StateError, match=r'a tensor of the state has no name\nhint: give it one: {"tensor": tensor}'):
            run.save(0, state)


def test_keys_that_meet_each_other_are_refused(run: cairn.Checkpointer) -> None:
    for state in ({"a.b": ones(1), "a": {"b": ones(1)}}, {1: ones(1), "1": 3}, {"a": {"b": 1, "c": ones(1)}, "a.b": 2}):
        with pytest.raises(StateError, match=r"two leaves of the state are called `(a\.b|1)`"):
            run.save(0, state)
    run.save(0, {"a.b": ones(1), "a": {"c": ones(1)}}, blocking=True)
    assert sorted(run.open(0)) == ["a.b", "a.c"]


@pytest.mark.parametrize("key", [None, (1, 2), 1.5, True, b"x"])
def test_keys_above_tensors_are_strings_or_integers(run: cairn.Checkpointer, key: Any) -> None:
    with pytest.raises(StateError, match="`a` has the key .*, but above tensors only strings and integers can be keys"):
        run.save(0, {"a": {key: ones(1)}})
    run.save(0, {"a": {key: 1}, "t": ones(1)}, blocking=True)
    assert run.open(0).plain == {"a": {key: 1}}


def test_names_have_a_limit(run: cairn.Checkpointer) -> None:
    longest = "n" * 4096
    run.save(0, {longest: ones(1)}, blocking=True)
    assert list(run.open(0)) == [longest]
    with pytest.raises(StateError, match="has 4097 bytes, over the limit of 4096"):
        run.save(1, {"n" * 4097: ones(1)})
    with pytest.raises(StateError, match="not valid Unicode"):
        run.save(1, {"\ud800": ones(1)})
    with pytest.raises(StateError, match="`__metadata__` is a name the file format keeps for itself"):
        run.save(1, {"__metadata__": ones(1)})


def test_any_other_character_may_be_in_a_name(run: cairn.Checkpointer) -> None:
    names = ["a/b", "../x", "a\\b", "$x", "x\0y", "\n", " ", "日本", "🗿", "a..b", ".", "%2F", '"', "é"]
    run.save(0, {name: np.full(1, i) for i, name in enumerate(names)}, blocking=True)
    into = {name: np.zeros(1, int) for name in names}
    run.load(into=into)
    assert [int(into[name][0]) for name in names] == list(range(len(names)))


def test_a_state_that_contains_itself_is_refused(run: cairn.Checkpointer) -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    with_tensor: dict[str, Any] = {"t": ones(1)}
    with_tensor["again"] = with_tensor
    deep: Any = ones(1)
    for _ in range(2000):
        deep = [deep]
    for state in ({"c": cycle}, with_tensor, deep, {"m": Meter(cycle)}):
        with pytest.raises(StateError, match="nested too deeply, or contains itself"):
            run.save(0, state)
    assert run.steps() == []


def test_a_mapping_of_another_kind_is_walked_but_not_kept_as_a_value(run: cairn.Checkpointer) -> None:
    run.save(0, {"m": MappingProxyType({"t": ones(2)})}, blocking=True)
    into = {"m": MappingProxyType({"t": zeros(2)})}
    run.load(into=into)
    assert into["m"]["t"].all()
    with pytest.raises(StateError, match="`m` is a mappingproxy"):
        run.save(1, {"m": MappingProxyType({"t": 2})})


def test_a_name_of_cairn_itself_is_taken(run: cairn.Checkpointer) -> None:
    with pytest.raises(StateError, match=r"`\$metrics` is the name of the metrics"):
        run.save(0, {"$metrics": 1})


# Numpy arrays.

DTYPES = ["bool", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "c8", "u8", "i8", "f8"]
NARROW = ["bfloat16", "float8_e5m2", "float8_e4m3fn", "float8_e8m0fnu", "float8_e4m3fnuz", "float8_e5m2fnuz"]
shapes = st.sampled_from([(), (0,), (1,), (3, 0, 2), (2, 3), (2, 1, 4), (1, 1, 1, 1), (17,)])


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_arrays_of_every_type_and_shape_come_back_bit_by_bit(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    run = cairn.Checkpointer(tmp_path_factory.mktemp("run"))
    state = {name: data.draw(hnp.arrays(name, shapes), label=name) for name in DTYPES}
    for name in NARROW:
        raw = data.draw(hnp.arrays("u2" if name == "bfloat16" else "u1", shapes))
        state[name] = raw.view(getattr(ml_dtypes, name))
    run.save(0, state, blocking=True)
    into = {name: np.zeros_like(array) for name, array in state.items()}
    run.load(into=into)
    checkpoint = run.open(0)
    for name, array in state.items():
        assert into[name].tobytes() == array.tobytes()
        read = checkpoint[name][...]
        assert (np.asarray(read).tobytes(), read.dtype, read.shape) == (array.tobytes(), array.dtype, array.shape)


ODD = {
    "transposed": lambda array: array.T,
    "reversed": lambda array: array[::-1],
    "every other": lambda array: array[:, ::2],
    "fortran": np.asfortranarray,
    "big endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "unaligned": lambda array: np.frombuffer(bytearray(b"x" + array.tobytes()), array.dtype, offset=1).reshape(array.shape),
}


@pytest.mark.parametrize("kind", ODD)
def test_arrays_with_any_layout_in_memory_are_saved_and_loaded(run: cairn.Checkpointer, kind: str) -> None:
    array = ODD[kind](np.arange(12, dtype=np.int32).reshape(3, 4))
    run.save(0, {"a": array}, blocking=True)
    into = ODD[kind](np.zeros((3, 4), np.int32))
    run.load(into={"a": into})
    np.testing.assert_array_equal(into, array)
    np.testing.assert_array_equal(run.open(0)["a"][...], array)


def test_what_is_not_loaded_is_not_touched(run: cairn.Checkpointer) -> None:
    run.save(0, {"a": ones(2)}, blocking=True)
    base = np.full((2, 2), 7, np.float32)
    fits, missing, mismatched = zeros(2), base.T[:, :1], np.full((4, 2), 7, np.float32)[::2]
    run.load(into={"a": fits, "missing": missing}, strict=False)
    run.load(into={"a": mismatched}, strict=False)
    assert fits.all() and (base == 7).all() and (mismatched == 7).all()


@pytest.mark.parametrize("dtype", [object, "c16", "U3", "S3", "M8[s]", [("a", "i4")], np.longdouble])
def test_arrays_without_an_element_type_are_refused(run: cairn.Checkpointer, dtype: Any) -> None:
    with pytest.raises(StateError, match=r"`m\.a` is a numpy array of .*, which has no element type in a checkpoint"):
        run.save(0, {"m": {"a": np.zeros(2, dtype)}})


def test_a_read_only_array_can_be_saved_but_not_loaded_into(run: cairn.Checkpointer) -> None:
    array = ones(2)
    array.flags.writeable = False
    run.save(0, {"a": array}, blocking=True)
    with pytest.raises(StateError, match="`a` is a read-only numpy array"):
        run.load(into={"a": array})


def test_arrays_that_share_memory_are_stored_once_and_loaded_once(run: cairn.Checkpointer) -> None:
    shared = np.arange(6.0)
    run.save(0, {"one": shared, "two": shared, "three": shared.copy()}, blocking=True)
    assert run.open(0).aliases == {"two": "one"}
    target, third = np.zeros(6), np.zeros(6)
    run.load(into={"one": target, "two": target, "three": third})
    np.testing.assert_array_equal(target, shared)
    apart = {name: np.zeros(6) for name in ("one", "two", "three")}
    run.load(into=apart)
    assert all((array == shared).all() for array in apart.values())
    alone = np.zeros(6)
    run.load(into={"two": alone}, strict="partial")
    np.testing.assert_array_equal(alone, shared)


def test_memory_with_several_names_is_filled_if_any_of_them_is_stored(run: cairn.Checkpointer) -> None:
    run.save(0, {"embed": np.arange(6.0)}, blocking=True)
    for names in (["embed", "head"], ["head", "embed"]):
        target = np.zeros(6)
        loaded = run.load(into=dict.fromkeys(names, target), strict=False)
        np.testing.assert_array_equal(target, np.arange(6.0))
        assert loaded.missing == ["head"]


def test_names_that_share_memory_are_all_compared(run: cairn.Checkpointer) -> None:
    run.save(0, {"m": {"one": np.arange(6.0), "two": np.arange(4.0), "extra": ones(1)}}, blocking=True)
    target = np.zeros(6)
    with pytest.raises(cairn.KeyMismatch) as raised:
        run.load(into={"m": {"one": target, "two": target, "absent": target}})
    assert (raised.value.missing, raised.value.unexpected) == (["m.absent"], ["m.extra"])
    assert raised.value.mismatched == ["m.two"]


def test_arrays_that_share_some_memory_cannot_be_loaded_together(run: cairn.Checkpointer) -> None:
    array = np.arange(6.0)
    run.save(0, {"one": array[:4], "two": array[2:]}, blocking=True)
    target = np.zeros(6)
    with pytest.raises(StateError, match="`one` and `two` share some of their memory"):
        run.load(into={"one": target[:4], "two": target[2:]})
    run.save(1, {"one": array[:2], "two": array[2:]}, blocking=True)
    run.load(into={"one": target[:2], "two": target[2:]})
    np.testing.assert_array_equal(target, array)


def test_a_captured_state_may_change(run: cairn.Checkpointer) -> None:
    array = np.arange(1 << 20)
    saving = run.save(0, {"a": array})
    array[:] = -1
    saving.wait()
    np.testing.assert_array_equal(run.open(0)["a"][...], np.arange(1 << 20))
