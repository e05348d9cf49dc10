"""A fast tier and a durable one, as Python sees them."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import cairn


def tiers(tmp_path: Path, **chosen: object) -> cairn.Tiered:
    return cairn.Tiered(fast=tmp_path / "fast", durable=tmp_path / "durable", **chosen)  # type: ignore[arg-type]


def state(step: int) -> dict[str, object]:
    return {"weights": np.arange(100_000, dtype=np.float32) + step, "step": step}


def test_a_save_is_staged_local_and_durable(tmp_path: Path) -> None:
    with cairn.Checkpointer(tiers(tmp_path)) as run:
        saving = run.save(1, state(1))
        saving.wait(until="staged")
        report = saving.wait(until="local")
        assert cairn.open(tmp_path / "fast").step == 1
        report = saving.wait()
        assert report.uploaded_seconds is not None and report.uploaded_seconds >= report.committed_seconds
        assert saving.level == "durable"
    assert cairn.open(tmp_path / "durable").step == 1
    assert saving.wait(until="local").step == 1
    with pytest.raises(cairn.StateError, match="until"):
        saving.wait(until="tomorrow")  # type: ignore[call-overload]


def test_on_one_store_local_is_durable(tmp_path: Path) -> None:
    with cairn.Checkpointer(tmp_path / "run") as run:
        saving = run.save(1, state(1))
        assert saving.wait(until="local").uploaded_seconds is None
        assert saving.level == "durable"


def test_the_fast_tier_keeps_few_and_its_loss_costs_nothing(tmp_path: Path) -> None:
    with cairn.Checkpointer(tiers(tmp_path, keep_fast=1), keep=cairn.Keep(last=3)) as run:
        for step in range(1, 6):
            run.save(step, state(step))
    assert cairn.Checkpointer(tmp_path / "fast").steps() == [5]
    assert cairn.Checkpointer(tmp_path / "durable").steps() == [3, 4, 5]
    shutil.rmtree(tmp_path / "fast")
    into = state(0)
    assert cairn.Checkpointer(tiers(tmp_path)).load(into=into).step == 5
    np.testing.assert_array_equal(into["weights"], state(5)["weights"])  # type: ignore[arg-type]


def test_a_damaged_fast_file_is_read_elsewhere_and_mended(tmp_path: Path) -> None:
    with cairn.Checkpointer(tiers(tmp_path)) as run:
        run.save(1, state(1))
    (file,) = (tmp_path / "fast").glob("step-*/*/*.safetensors")
    good = file.read_bytes()
    file.write_bytes(good[:200_000] + b"?" + good[200_001:])
    into = state(0)
    loaded = cairn.Checkpointer(os.fspath(tiers(tmp_path))).load(into=into)
    assert loaded.mended == [str(file.relative_to(tmp_path / "fast"))]
    np.testing.assert_array_equal(into["weights"], state(1)["weights"])  # type: ignore[arg-type]
    assert file.read_bytes() == good


def test_a_durable_tier_that_takes_nothing_is_told_and_made_up_for(tmp_path: Path) -> None:
    (tmp_path / "durable").write_text("a file where a folder should be")
    run = cairn.Checkpointer(tiers(tmp_path))
    saving = run.save(1, state(1))
    saving.wait(until="local")
    with pytest.raises(cairn.Error):
        saving.wait()
    assert saving.level == "local"
    (tmp_path / "durable").unlink()
    with suppress(cairn.Error):  # If it was not tried again yet, it says so again.
        run.close()
    with cairn.Checkpointer(tiers(tmp_path)) as later:
        assert later.load(into=state(0)).step == 1
    assert cairn.open(tmp_path / "durable").step == 1


def test_nodes_with_fast_tiers_of_their_own(tmp_path: Path) -> None:
    with cairn.Checkpointer(tiers(tmp_path, per_node=True)) as run:
        run.save(1, state(1)).wait(until="local")
    into = state(0)
    with cairn.Checkpointer(tiers(tmp_path, per_node=True)) as run:
        run.load(into=into)
    assert into["step"] == 1


def test_a_comma_in_the_fast_path_is_refused(tmp_path: Path) -> None:
    with pytest.raises(cairn.StateError, match="comma"):
        cairn.Tiered(fast=tmp_path / "a,b", durable=tmp_path)
    url = (tmp_path / "a,b").as_uri().replace(",", "%2C")
    with cairn.Checkpointer(cairn.Tiered(fast=url, durable=tmp_path / "c,d")) as run:
        run.save(1, state(1))
    assert cairn.open(tmp_path / "a,b").step == 1
    assert cairn.open(tmp_path / "c,d").step == 1
