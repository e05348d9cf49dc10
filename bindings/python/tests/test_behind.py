"""Arrays of frameworks that keep a device's order to themselves are fetched while training goes on."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn

jax = pytest.importorskip("jax")
jnp = jax.numpy
LARGE = 1 << 22


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Has JAX's arrays count as those of a device, from which nothing comes before the event is set."""
    from cairn.jax import _arrays

    gather, may_come = _arrays._gather, threading.Event()

    def slowly(*arguments: Any) -> Any:
        assert may_come.wait(60)
        return gather(*arguments)

    monkeypatch.setattr(_arrays, "_is_away", lambda value: True)
    monkeypatch.setattr(_arrays, "_gather", slowly)
    return may_come


def state(step: int) -> dict[str, Any]:
    return {
        "a": jnp.arange(LARGE, dtype=jnp.float32) + step,
        "b": {"bf16": jnp.full((3, 5), step, jnp.bfloat16), "empty": jnp.zeros((0, 4)), "scalar": jnp.asarray(step)},
        "host": np.full(1000, step, np.int64),
        "step": step,
    }


def test_a_save_returns_before_anything_was_fetched(away: threading.Event, tmp_path: Path) -> None:
    run = cairn.Checkpointer(tmp_path, scratch_bytes=1 << 30)
    first = state(1)
    saving = run.save(1, first)
    assert not saving.done()
    first["host"][:] = -1  # its owner goes on
    for leaf in jax.tree.leaves(first):
        if isinstance(leaf, jax.Array):
            leaf.delete()  # as if it were donated to the next step
    away.set()
    saving.wait()
    loaded = run.load(1, into=state(0)).state
    jax.tree.map(np.testing.assert_array_equal, loaded, state(1))


def test_saves_in_a_row_are_each_their_own_step(away: threading.Event, tmp_path: Path) -> None:
    away.set()
    run = cairn.Checkpointer(tmp_path, scratch_bytes=1 << 30, overlap="queue")
    for step in range(5):
        run.save(step, state(step))
    run.wait()
    for step in range(5):
        jax.tree.map(np.testing.assert_array_equal, run.load(step, into=state(9)).state, state(step))


def test_without_device_memory_a_save_waits_as_before(away: threading.Event, tmp_path: Path) -> None:
    away.set()
    run = cairn.Checkpointer(tmp_path, scratch_bytes=100)  # room for the small ones alone
    run.save(3, state(3)).wait()
    jax.tree.map(np.testing.assert_array_equal, run.load(3, into=state(0)).state, state(3))


def test_what_cannot_be_fetched_fails_the_save_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from cairn.jax import _arrays

    def lost(*arguments: Any) -> Any:
        raise RuntimeError("the device fell off the bus")

    monkeypatch.setattr(_arrays, "_is_away", lambda value: True)
    monkeypatch.setattr(_arrays, "_gather", lost)
    run = cairn.Checkpointer(tmp_path, scratch_bytes=1 << 30)
    saving = run.save(1, {"w": jnp.ones(4)})
    with pytest.raises(cairn.Error, match="`w` could not be fetched from its device: the device fell off the bus"):
        saving.wait()
    assert run.steps() == []


def test_arrays_of_torch_beside_them_are_saved_as_they_were(away: threading.Event, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    run = cairn.Checkpointer(tmp_path, scratch_bytes=1 << 30)
    weight = torch.ones(100)
    away.set()
    for step in range(3):
        weight.fill_(step)
        saving = run.save(step, {"w": weight, "j": jnp.full(7, step)})
        weight.fill_(-1)
        saving.wait()
        into = {"w": torch.zeros(100), "j": jnp.zeros(7, jnp.int32)}
        loaded = run.load(step, into=into).state
        assert bool((loaded["w"] == step).all()) and bool((loaded["j"] == step).all())
