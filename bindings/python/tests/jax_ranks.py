"""One of several processes of ``jax.distributed`` with some devices each; ``test_jax_ranks.py`` starts them.

    python jax_ranks.py RANK SIZE DEVICES PORT FOLDER TASK…
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

RANK, SIZE, DEVICES = map(int, sys.argv[1:4])
PORT, FOLDER, TASKS = sys.argv[4], sys.argv[5], sys.argv[6:]
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import cairn
from cairn import _together

if SIZE > 1:
    jax.distributed.initialize(f"localhost:{PORT}", SIZE, RANK)
VALUES = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


def mesh(*sizes: int, order: str = "C") -> Mesh:
    return Mesh(np.array(jax.devices()).reshape(sizes, order=order), tuple("xyz"[: len(sizes)]))


def shardings() -> dict[str, NamedSharding]:
    """Every way processes can hold an array: rows, columns, blocks, copies, and boxes that are far apart."""
    half = SIZE * DEVICES // 2
    return {
        "rows": NamedSharding(mesh(SIZE * DEVICES), P("x")),
        "columns": NamedSharding(mesh(2, half), P(None, "x")),
        "blocks": NamedSharding(mesh(2, half), P("y", "x")),
        "blocks across": NamedSharding(mesh(2, half), P("x", "y")),
        "copies": NamedSharding(mesh(SIZE * DEVICES), P()),
        "copies of halves": NamedSharding(mesh(2, half), P("y")),
        "far apart": NamedSharding(mesh(2, half, order="F"), P(("x", "y"))),
    }


def array(values: Any, sharding: NamedSharding) -> Any:
    return jax.make_array_from_callback(values.shape, sharding, lambda index: values[index], dtype=values.dtype)


def state(factor: float) -> dict[str, Any]:
    arrays = {name: array(VALUES * factor, sharding) for name, sharding in shardings().items()}
    empty = array(np.zeros((0, 8), np.float32), shardings()["copies"])
    keys = jax.random.split(jax.random.key(int(factor)), 2)
    return {"arrays": arrays, "empty": empty, "step": jnp.int32(factor), "rng": keys, "epoch": int(factor)}


def check(found: dict[str, Any], factor: float) -> None:
    for name, sharding in shardings().items():
        loaded = found["arrays"][name]
        assert loaded.sharding == sharding
        for shard in loaded.addressable_shards:
            np.testing.assert_array_equal(shard.data, VALUES[shard.index] * factor, err_msg=name)
    assert (int(found["step"]), found["epoch"], found["empty"].shape) == (factor, factor, (0, 8))
    assert (found["rng"] == jax.random.split(jax.random.key(int(factor)), 2)).all()


def save(run: cairn.Checkpointer) -> None:
    """Two steps, the second while nobody waits for the first."""
    assert (run.world.rank, run.world.size) == (RANK, SIZE)
    run.save(1, state(1))
    run.save(2, state(2)).wait()


def share(run: cairn.Checkpointer) -> None:
    """Every process has a copy, and each writes its share of it."""
    copies = array(np.ones(1 << 20, np.float32), shardings()["copies"])
    assert run.save(4, {"copies": copies}).wait().len_bytes < 0.75 * copies.nbytes


def load(run: cairn.Checkpointer) -> None:
    """Both steps, into arrays and into structs, each array by the sharding of another."""
    check(run.load(1, into=state(0)).state, 1)
    into = state(0)
    into["arrays"] = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=a.sharding), into["arrays"])
    check(run.load(into=into).state, 2)
    names = list(shardings())
    turned = dict(zip(names, names[1:] + names[:1], strict=True))
    arrays = {name: array(VALUES * 0, shardings()[other]) for name, other in turned.items()}
    run.load(1, into={"arrays": arrays})
    for loaded in arrays.values():
        for shard in loaded.addressable_shards:
            np.testing.assert_array_equal(shard.data, VALUES[shard.index])


def disagree(run: cairn.Checkpointer) -> None:
    """A name that only one process has."""
    try:
        run.save(3, {"a": state(1)["step"], **({"b": jnp.zeros(2)} if RANK == 0 else {})})
    except cairn.RanksDisagree as error:
        assert "`b` is not on rank 1" in str(error)
    else:
        raise AssertionError("nobody noticed")


def board(run: cairn.Checkpointer) -> None:
    """What ranks need to leave each other messages."""
    from cairn._world import World

    messages: Any = World.current().board
    assert messages is World.current().board
    assert not messages.check(["never"])
    sums = run.world.exchange("sums", str(messages.add("counter", 1)))
    assert sorted(sums) == ["1", "2"]
    first = messages.compare_set("winner", "", str(RANK)).decode()
    assert run.world.exchange("winners", first) == [first] * 2
    assert messages.check(["winner"])
    assert _together._neighbours(run.world, time.monotonic() + 30) == [0, 1]


def together(run: cairn.Checkpointer) -> None:
    """Ranks of one machine read each byte once between them, however little there is to read."""
    _together._WORTH_BYTES = 0
    load(run)


def subset(run: cairn.Checkpointer) -> None:
    """An array that one of the processes has no part of, and one that only one process has a part of."""
    some = NamedSharding(Mesh(np.array(jax.devices()[:2]), ("x",)), P("x"))
    run.save(5, {"a": array(VALUES, some), "all": jnp.ones(3)}, blocking=True)
    assert run.open(5).placement("a") == "f32[16@dim0, 8]"
    loaded = run.load(5, into={"a": array(VALUES * 0, some), "all": jnp.zeros(3)}).state
    assert (loaded["a"].sharding, len(loaded["a"].addressable_shards)) == (some, int(RANK < 2))
    for shard in loaded["a"].addressable_shards:
        np.testing.assert_array_equal(shard.data, VALUES[shard.index])
    try:
        run.explain(5, into={"a": array(VALUES, NamedSharding(Mesh(np.array(jax.devices()[:1]), ("x",)), P()))})
    except cairn.StateError as error:
        assert RANK != 0 and "`a` lies on devices of another process alone" in str(error)
    else:
        assert RANK == 0


for task in TASKS:
    with cairn.Checkpointer(FOLDER) as checkpointer:
        globals()[task](checkpointer)
print("done", flush=True)
