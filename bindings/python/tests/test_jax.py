"""JAX in one process with eight devices: arrays on every sharding, keys, pytrees, and what is refused."""

from __future__ import annotations

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import dataclasses
import runpy
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cairn
from cairn.errors import KeyMismatch, StateError

jax = pytest.importorskip("jax")
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding

from cairn.jax import _arrays

if len(jax.devices()) != 8:
    pytest.skip("JAX was initialised before with other devices", allow_module_level=True)

P = PartitionSpec


@pytest.fixture
def run(tmp_path: Path) -> cairn.Checkpointer:
    return cairn.Checkpointer(tmp_path / "run")


def mesh(*sizes: int) -> Mesh:
    names = "xyz"[: len(sizes)]
    return Mesh(np.array(jax.devices()[: int(np.prod(sizes))]).reshape(sizes), tuple(names))


def place(array: Any, *sizes_and_spec: Any) -> Any:
    *sizes, spec = sizes_and_spec
    return jax.device_put(jnp.asarray(array), NamedSharding(mesh(*sizes), spec))


def numbers(*shape: int, dtype: Any = np.float32) -> Any:
    return np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)


def assert_same(found: Any, expected: Any) -> None:
    """Equal in value, type, sharding and commitment."""
    assert isinstance(found, jax.Array)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()
    assert found.sharding == expected.sharding
    assert found.committed == expected.committed


# Arrays.

DTYPES = "bool uint8 int8 uint16 int16 uint32 int32 float16 bfloat16 float32 complex64".split()
DTYPES += "float8_e4m3fn float8_e5m2 float8_e8m0fnu float8_e4m3fnuz float8_e5m2fnuz".split()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (5,), (2, 3, 4)])
def test_every_element_type_and_shape_comes_back_bit_by_bit(run: cairn.Checkpointer, shape: tuple[int, ...]) -> None:
    state = {name: jnp.asarray(numbers(*shape)).astype(name) for name in DTYPES}
    run.save(0, state, blocking=True)
    into = {name: jnp.zeros_like(array) for name, array in state.items()}
    loaded = run.load(into=into)
    assert loaded.state is into
    for name, array in state.items():
        assert_same(into[name], array)
        assert run.open(0)[name].dtype == array.dtype


def test_wide_types_are_kept_where_they_are_enabled(run: cairn.Checkpointer) -> None:
    with jax.enable_x64(True):
        state = {"i": jnp.arange(3, dtype=jnp.int64) << 40, "f": jnp.full(2, 0.1, jnp.float64)}
        run.save(0, state, blocking=True)
        into = {"i": jnp.zeros(3, jnp.int64), "f": jnp.zeros(2, jnp.float64)}
        run.load(into=into)
        assert_same(into["i"], state["i"])
        assert_same(into["f"], state["f"])


LAYOUTS = [
    ((1,), P()),
    ((8,), P("x")),
    ((8,), P(None, "x")),
    ((2, 4), P("x", "y")),
    ((2, 4), P("y", "x")),
    ((4, 2), P(("x", "y"))),
    ((4, 2), P(None, ("y", "x"))),
    ((2, 4), P("x")),
    ((2, 4), P(None, "y")),
    ((2, 2, 2), P(("x", "z"), "y")),
    ((2, 2), P("y")),
    ((8,), P()),
]
layouts = st.sampled_from(LAYOUTS)


@settings(max_examples=25, deadline=None)
@given(layouts, layouts, st.booleans())
def test_any_layout_is_loaded_from_any_other(
    tmp_path_factory: pytest.TempPathFactory, source: Any, target: Any, abstract: bool
) -> None:
    run = cairn.Checkpointer(tmp_path_factory.mktemp("run"))
    values = numbers(8, 16)
    run.save(0, {"a": place(values, *source[0], source[1])}, blocking=True)
    np.testing.assert_array_equal(run.open(0)["a"][...], values)
    into: Any = place(np.zeros_like(values), *target[0], target[1])
    expected = place(values, *target[0], target[1])
    if abstract:
        into = jax.ShapeDtypeStruct(into.shape, into.dtype, sharding=into.sharding)
    assert_same(run.load(into={"a": into}).state["a"], expected)


def test_a_sharded_array_is_stored_whole_and_once(run: cairn.Checkpointer) -> None:
    run.save(0, {"sharded": place(numbers(8, 16), 2, 4, P("x", "y")), "copies": place(numbers(4), 8, P())}, blocking=True)
    assert run.open(0).placement("sharded") == "f32[8, 16]"
    assert run.verify(0)["len_bytes"] < 8192


def test_an_array_on_one_device_is_saved_without_a_copy(run: cairn.Checkpointer) -> None:
    from cairn._part import Context
    from cairn._tree import flatten

    array = jnp.arange(1024)
    (part,) = flatten({"a": array}, Context(run.world, {}, None, {})).parts.values()
    assert part.memory.__array_interface__["data"][0] == array.unsafe_buffer_pointer()


def test_loaded_memory_becomes_the_array_without_a_copy(run: cairn.Checkpointer, monkeypatch: pytest.MonkeyPatch) -> None:
    places, aligned = [], _arrays._aligned
    monkeypatch.setattr(_arrays, "_aligned", lambda *how: places.append(aligned(*how)) or places[-1])
    run.save(0, {"a": jnp.arange(4096.0)}, blocking=True)
    loaded = run.load(into={"a": jnp.zeros(4096)}).state["a"]
    assert loaded.unsafe_buffer_pointer() == places[0].__array_interface__["data"][0]


def test_a_loaded_array_may_be_donated(run: cairn.Checkpointer) -> None:
    run.save(0, {"a": jnp.arange(4096.0), "b": place(np.zeros(8), 8, P())}, blocking=True)
    into = {"a": jnp.zeros(4096), "b": place(np.ones(8), 8, P())}
    run.load(into=into)
    add = jax.jit(lambda array: array + 1, donate_argnums=0)
    assert (np.asarray(add(into["a"])) == np.arange(4096.0) + 1).all()
    assert all((np.asarray(shard.data) == 1).all() for shard in add(into["b"]).addressable_shards)


def test_uncommitted_arrays_stay_free_to_move(run: cairn.Checkpointer) -> None:
    state = {"step": jnp.int32(7), "w": place(numbers(8), 8, P("x")), "at": jax.device_put(jnp.ones(2), jax.devices()[3])}
    run.save(0, state, blocking=True)
    into = {"step": jnp.int32(0), "w": place(np.zeros(8, np.float32), 8, P("x")), "at": jax.device_put(jnp.zeros(2), jax.devices()[3])}
    run.load(into=into)
    for name in state:
        assert_same(into[name], state[name])
    jax.jit(lambda step, w: w * step)(into["step"], into["w"])


def test_a_saved_array_may_be_donated_at_once(run: cairn.Checkpointer) -> None:
    array = jnp.arange(1 << 20)
    saving = run.save(0, {"a": array})
    jax.jit(lambda a: a * 0, donate_argnums=0)(array).block_until_ready()
    saving.wait()
    np.testing.assert_array_equal(run.open(0)["a"][...], np.arange(1 << 20))


def test_an_array_with_two_names_is_stored_and_loaded_once(run: cairn.Checkpointer) -> None:
    tied = place(numbers(8), 2, P("x"))
    run.save(0, {"embed": tied, "head": tied}, blocking=True)
    assert run.open(0).aliases == {"head": "embed"}
    target = place(np.zeros(8, np.float32), 4, P("x"))
    into = {"embed": target, "head": target}
    run.load(into=into)
    assert into["embed"] is into["head"]
    np.testing.assert_array_equal(into["head"], numbers(8))


def test_a_target_of_another_kind_is_made_from_a_struct_alone(run: cairn.Checkpointer) -> None:
    run.save(0, {"a": numbers(4, 2)}, blocking=True)
    loaded = run.load(into={"a": jax.ShapeDtypeStruct((4, 2), jnp.float32)}).state["a"]
    np.testing.assert_array_equal(loaded, numbers(4, 2))
    assert not loaded.committed
    device = SingleDeviceSharding(jax.devices()[5])
    loaded = run.load(into={"a": jax.ShapeDtypeStruct((4, 2), jnp.float32, sharding=device)}).state["a"]
    assert loaded.sharding == device


def test_what_does_not_fit_is_said_before_anything_is_made(run: cairn.Checkpointer) -> None:
    run.save(0, {"m": {"a": jnp.zeros(4)}}, blocking=True)
    for wrong in (jnp.zeros(5), jnp.zeros(4, jnp.bfloat16)):
        with pytest.raises(KeyMismatch, match="mismatched  `m.a`"):
            run.load(into={"m": {"a": wrong}})
    kept = jnp.ones(5)
    into = {"m": {"a": kept, "b": kept}}
    run.load(into=into, strict=False)
    assert into["m"]["a"] is kept and into["m"]["b"] is kept


# Keys.


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_typed_keys_come_back_as_keys(run: cairn.Checkpointer, impl: str) -> None:
    keys = {"one": jax.random.key(7, impl=impl), "many": jax.random.split(jax.random.key(8, impl=impl), 3)}
    run.save(0, keys, blocking=True)
    loaded = run.load(into={"one": jax.random.key(0, impl=impl), "many": jax.random.split(jax.random.key(0, impl=impl), 3)})
    for name, key in keys.items():
        found = loaded.state[name]
        assert found.dtype == key.dtype and found.shape == key.shape
        assert (jax.random.key_data(found) == jax.random.key_data(key)).all()
    assert jax.random.normal(loaded.state["one"]) == jax.random.normal(keys["one"])


def test_a_key_can_follow_a_mesh(run: cairn.Checkpointer) -> None:
    keys = jax.device_put(jax.random.split(jax.random.key(1), 8), NamedSharding(mesh(8), P("x")))
    run.save(0, {"k": keys}, blocking=True)
    zeros = jax.device_put(jax.random.split(jax.random.key(0), 8), NamedSharding(mesh(8), P("x")))
    loaded = run.load(into={"k": zeros}).state["k"]
    assert loaded.sharding == keys.sharding and (loaded == keys).all()


# Trees.


class Moments(NamedTuple):
    """As optimizers keep them."""

    count: Any
    mu: Any
    nu: Any


class Nothing(NamedTuple):
    """The state of a transformation that has none."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class TrainState:
    """As training loops keep it: frozen, with a part that is no data."""

    step: Any
    params: Any
    opt_state: Any
    name: str = dataclasses.field(metadata={"static": True}, default="model")


@jax.tree_util.register_pytree_node_class
class Pair:
    """A class of the older kind, whose children have no names."""

    def __init__(self, one: Any, two: Any) -> None:
        self.one, self.two = one, two

    def tree_flatten(self) -> Any:
        return (self.one, self.two), None

    @classmethod
    def tree_unflatten(cls, aux: Any, children: Any) -> Pair:
        return cls(*children)


def train_state(value: float, name: str = "model") -> TrainState:
    params = {"dense": {"w": jnp.full((4, 2), value), "b": jnp.full(2, value, jnp.bfloat16)}}
    moments = Moments(jnp.int32(value), jax.tree.map(jnp.copy, params), jax.tree.map(jnp.copy, params))
    return TrainState(int(value), params, (Nothing(), moments, (Nothing(), {"extra": Nothing()})), name)


def test_a_train_state_is_named_by_its_fields_and_made_anew(run: cairn.Checkpointer) -> None:
    run.save(0, train_state(3), blocking=True)
    names = sorted(run.open(0))
    assert names[:3] == ["opt_state.1.count", "opt_state.1.mu.dense.b", "opt_state.1.mu.dense.w"]
    assert names[-2:] == ["params.dense.b", "params.dense.w"] and run.open(0).plain["step"] == 3
    into = train_state(0, "another")
    loaded = run.load(into=into).state
    assert loaded.name == "another"
    expected = train_state(3, "another")
    assert jax.tree.structure(loaded) == jax.tree.structure(expected)
    for found, wanted in zip(jax.tree.leaves(loaded), jax.tree.leaves(expected), strict=True):
        assert found.dtype == wanted.dtype if isinstance(wanted, jax.Array) else found == wanted
        np.testing.assert_array_equal(found, wanted)


def test_trees_within_trees_are_rebuilt_from_the_inside(run: cairn.Checkpointer) -> None:
    def tree(value: float) -> dict[str, Any]:
        return {"pairs": [Pair(jnp.full(2, value), Pair({"x": jnp.full(1, value)}, None))], "o": OrderedDict(a=jnp.full(3, value))}

    run.save(0, tree(1), blocking=True)
    assert sorted(run.open(0)) == ["o.a", "pairs.0.0", "pairs.0.1.0.x"]
    into = tree(0)
    loaded = run.load(into=into).state
    assert loaded is into and isinstance(loaded["o"], OrderedDict)
    assert jax.tree.structure(loaded) == jax.tree.structure(tree(1))
    assert all((leaf == 1).all() for leaf in jax.tree.leaves(loaded))


def test_a_tree_without_arrays_is_kept_too(run: cairn.Checkpointer) -> None:
    run.save(0, {"p": Pair(1, "two"), "n": Nothing()}, blocking=True)
    loaded = run.load(into={"p": Pair(0, ""), "n": Nothing()}).state
    assert (loaded["p"].one, loaded["p"].two) == (1, "two") and isinstance(loaded["n"], Nothing)


def test_abstract_trees_are_made_real(run: cairn.Checkpointer) -> None:
    run.save(0, train_state(5), blocking=True)
    abstract = jax.eval_shape(lambda: train_state(0))
    loaded = run.load(into={"params": abstract.params}, strict=True).state
    assert (loaded["params"]["dense"]["w"] == 5).all()


# What is refused.


def test_arrays_without_bytes_are_refused_with_their_path(run: cairn.Checkpointer) -> None:
    deleted = jnp.zeros(2)
    deleted.delete()
    struct = jax.ShapeDtypeStruct((2,), jnp.float32)
    for value, words in [
        (jnp.zeros(2, jnp.int4), "an array of int4, which has no element type"),
        (deleted, "an array that was deleted"),
        (struct, "a ShapeDtypeStruct, which has nothing to save"),
    ]:
        with pytest.raises(StateError, match=f"`m.a` is {words}"):
            run.save(0, {"m": {"a": value}})
    with pytest.raises(StateError, match="`a` is being traced"):
        jax.jit(lambda a: run.save(0, {"a": a}))(jnp.zeros(2))
    assert run.steps() == []


def test_an_object_is_refused_until_its_class_is_registered(run: cairn.Checkpointer) -> None:
    class Unregistered:
        pass

    with pytest.raises(StateError, match="`u` is a .*Unregistered, which cannot be saved without pickle"):
        run.save(0, {"u": Unregistered()})
    jax.tree_util.register_pytree_node(Unregistered, lambda _: ((1,), None), lambda *_: Unregistered())
    run.save(0, {"u": Unregistered()}, blocking=True)
    assert run.open(0).plain == {"u": {0: 1}}


# Other worlds.


def test_numpy_and_jax_load_each_others_checkpoints(run: cairn.Checkpointer) -> None:
    run.save(0, {"a": place(numbers(8, 2), 4, P("x"))}, blocking=True)
    into = {"a": np.zeros((8, 2), np.float32)}
    run.load(into=into)
    np.testing.assert_array_equal(into["a"], numbers(8, 2))
    run.save(1, into, blocking=True)
    assert_same(run.load(into={"a": place(np.zeros((8, 2), np.float32), 2, P(None, "x"))}).state["a"], place(numbers(8, 2), 2, P(None, "x")))


def test_the_example_resumes_as_if_it_had_not_stopped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "jax_train.py"))["main"]
    said = []
    for folder, steps in ((tmp_path / "halved", 3), (tmp_path / "halved", 6), (tmp_path / "whole", 6)):
        main(folder, steps)
        said.append(capsys.readouterr().out.splitlines())
    assert [line[:-1] for line in said] == [[], ["resumed after step 3"], []]
    assert said[1][-1] == said[2][-1] and said[1][-1].startswith("step 6: loss ")


def test_a_step_of_orbax_is_converted_as_the_guide_says(run: cairn.Checkpointer, tmp_path: Path) -> None:
    ocp = pytest.importorskip("orbax.checkpoint")
    state = {"params": {"w": place(numbers(8, 4), 4, P("x"))}, "rng": jax.random.key(3), "step": 7}
    with ocp.CheckpointManager(tmp_path / "old") as manager:
        manager.save(7, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        for step in manager.all_steps():
            run.save(step, manager.restore(step, args=ocp.args.StandardRestore(state)), blocking=True)
    into = {"params": {"w": place(np.zeros((8, 4), np.float32), 2, P(None, "x"))}, "rng": jax.random.key(0), "step": 0}
    loaded = run.load(7, into=into).state
    assert_same(loaded["params"]["w"], place(numbers(8, 4), 2, P(None, "x")))
    assert loaded["rng"] == state["rng"] and loaded["step"] == 7
