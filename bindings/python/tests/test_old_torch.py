"""Folders and files that old versions of torch wrote, two ranks each, open and hold what was saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cairn

FIXTURES = Path(__file__).parent / "fixtures"


@pytest.fixture(params=["torch-2.1.2", "torch-2.3.1"])
def folder(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / str(request.param)


def test_a_folder_of_an_old_torch_is_read(folder: Path) -> None:
    opened = cairn.open(folder / "dcp")
    assert opened.format == "dcp"
    assert opened.plain == {"step": 7, "l": [1, "x"]}
    np.testing.assert_array_equal(opened["model.w"][...], np.arange(40.0).reshape(8, 5))
    np.testing.assert_array_equal(opened["model.t"][...], np.arange(12.0).reshape(3, 4).T)
    np.testing.assert_array_equal(opened["model.b"][...].astype(np.float32), np.arange(6.0))


def test_an_archive_of_an_old_torch_is_read(folder: Path) -> None:
    opened = cairn.open(folder / "x.pt")
    assert opened.plain == {"s": 3}
    np.testing.assert_array_equal(opened["w"][...], np.arange(12.0).reshape(3, 4).T)
    np.testing.assert_array_equal(opened["n.a"][...], np.ones(2, np.float16))


def test_a_folder_of_an_old_torch_loads_into_arrays(folder: Path) -> None:
    into = {"model": {"w": np.zeros((8, 5), np.float32)}, "step": 0}
    cairn.load(folder / "dcp", into, strict="partial")
    assert into["step"] == 7 and into["model"]["w"][7, 4] == 39.0
