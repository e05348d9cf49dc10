"""Saves that write only what changed, read back by Cairn and by the plain reader of `docs/format.md`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn

sys.path.insert(0, str(Path(__file__).parents[3] / "python" / "tests"))
cairn_reader = __import__("cairn_reader")

BLOCK = 65_536


def state(step: int) -> dict[str, Any]:
    """A large part that stays, and a small one that changes with every step."""
    frozen = np.random.default_rng(1).standard_normal(3 * BLOCK).astype(np.float32)
    return {"frozen": frozen, "adapter": np.full(1000, step, dtype=np.float32)}


def steps(folder: Path, **options: Any) -> list[int]:
    """Saves steps 1 to 3 and returns the bytes that each wrote."""
    with cairn.Checkpointer(folder, delta=True, **options) as run:
        return [run.save(step, state(step), blocking=True).wait().len_bytes for step in (1, 2, 3)]


def test_only_what_changed_is_written_and_every_step_loads(tmp_path: Path) -> None:
    first, second, third = steps(tmp_path)
    assert second == third and second * 5 < first
    run = cairn.Checkpointer(tmp_path)
    for step in (1, 2, 3):
        into = {"frozen": np.zeros(3 * BLOCK, np.float32), "adapter": np.zeros(1000, np.float32)}
        run.load(step, into=into)
        for name, value in state(step).items():
            np.testing.assert_array_equal(into[name], value)


def test_the_plain_reader_reads_deltas(tmp_path: Path) -> None:
    steps(tmp_path)
    for step in (1, 2, 3):
        manifest, tensors, _ = cairn_reader.read_step(tmp_path / f"step-{step:08}")
        assert manifest["cairn"] == (1 if step == 1 else 2)
        for name, value in state(step).items():
            assert tensors[name].bytes() == value.tobytes()


@pytest.mark.parametrize("file", ["step-00000001/*/00000.safetensors", "step-00000003/*/00000.delta", "step-00000003/*/00000.part"])
def test_the_plain_reader_notices_damage_of_a_delta_and_its_base(tmp_path: Path, file: str) -> None:
    steps(tmp_path)
    [path] = tmp_path.glob(file)
    good = path.read_bytes()
    at = len(good) - 5
    path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(ValueError):
        cairn_reader.read_step(tmp_path / "step-00000003")


@pytest.mark.parametrize("delta", [False, True])
def test_compressed_steps_are_smaller_and_read_back_by_cairn_and_the_plain_reader(tmp_path: Path, delta: bool) -> None:
    sizes = {}
    for compress in (False, True):
        folder = tmp_path / str(compress)
        with cairn.Checkpointer(folder, delta=delta, compress=compress) as run:
            sizes[compress] = [run.save(step, state(step), blocking=True).wait().len_bytes for step in (1, 2)]
            into = {"frozen": np.zeros(3 * BLOCK, np.float32), "adapter": np.zeros(1000, np.float32)}
            run.load(2, into=into)
            np.testing.assert_array_equal(into["frozen"], state(2)["frozen"])
            np.testing.assert_array_equal(run.open(2)["frozen"][BLOCK + 7 : BLOCK + 9], state(2)["frozen"][BLOCK + 7 : BLOCK + 9])
    assert all(packed < 0.95 * plain for plain, packed in zip(*sizes.values(), strict=True))
    for step in (1, 2):
        manifest, tensors, _ = cairn_reader.read_step(tmp_path / "True" / f"step-{step:08}")
        assert "packed" in manifest["needs"]
        for name, value in state(step).items():
            assert tensors[name].bytes() == value.tobytes()


def test_pruning_keeps_what_the_newest_step_refers_to(tmp_path: Path) -> None:
    steps(tmp_path, keep=cairn.Keep(last=1))
    run = cairn.Checkpointer(tmp_path)
    assert run.steps() == [3]
    into = {"frozen": np.zeros(3 * BLOCK, np.float32), "adapter": np.zeros(1000, np.float32)}
    run.load(3, into=into)
    np.testing.assert_array_equal(into["frozen"], state(3)["frozen"])
