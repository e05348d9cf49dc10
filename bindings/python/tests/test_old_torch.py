"""Folders and files that several versions of torch wrote, two ranks each, open and hold what was saved.

A version is kept where what lies on disk changed: 2.3 moved a class, 2.4 says more about the save in the metadata, 2.8 has
other archives and is the first with safetensors inside DCP folders and sharded files for Hugging Face, 2.12 states a
version in the metadata.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cairn

FIXTURES = Path(__file__).parent / "fixtures"
FOLDERS = [
    "torch-2.1.2/dcp",
    "torch-2.3.1/dcp",
    "torch-2.4.1/dcp",
    "torch-2.8.0/dcp",
    "torch-2.8.0/dcp-safetensors",
    "torch-2.12.0/dcp",
]


def assert_model(opened: cairn.Checkpoint, prefix: str) -> None:
    np.testing.assert_array_equal(opened[prefix + "w"][...], np.arange(40.0).reshape(8, 5))
    np.testing.assert_array_equal(opened[prefix + "t"][...], np.arange(12.0).reshape(3, 4).T)
    np.testing.assert_array_equal(opened[prefix + "b"][...].astype(np.float32), np.arange(6.0))


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_an_old_torch_is_read(folder: str) -> None:
    opened = cairn.open(FIXTURES / folder)
    assert opened.format == "dcp"
    assert opened.plain == {"step": 7, "l": [1, "x"]}
    assert_model(opened, "model.")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_of_an_old_torch_loads_into_arrays(folder: str) -> None:
    into = {"model": {"w": np.zeros((8, 5), np.float32)}, "step": 0}
    cairn.load(FIXTURES / folder, into, strict="partial")
    assert into["step"] == 7 and into["model"]["w"][7, 4] == 39.0


@pytest.mark.parametrize("version", ["torch-2.1.2", "torch-2.3.1", "torch-2.8.0"])
def test_an_archive_of_an_old_torch_is_read(version: str) -> None:
    opened = cairn.open(FIXTURES / version / "x.pt")
    assert opened.plain == {"s": 3}
    np.testing.assert_array_equal(opened["w"][...], np.arange(12.0).reshape(3, 4).T)
    np.testing.assert_array_equal(opened["n.a"][...], np.ones(2, np.float16))


def test_sharded_files_for_hugging_face_are_joined() -> None:
    opened = cairn.open(FIXTURES / "torch-2.8.0/hf-sharded")
    assert opened.format == "hf" and opened["w"].shape == (8, 5)
    assert_model(opened, "")
