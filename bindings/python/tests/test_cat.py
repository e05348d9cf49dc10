"""``cairn cat`` picks what numpy picks, and ``--npy`` writes it for numpy to read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

SHAPES = {"w": (4, 5, 3), "v": (7,), "s": (), "none": (2, 0, 3), "wide": (2, 40_000)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, dict[str, Any]]:
    binary = os.environ.get("CAIRN_BIN")
    if not binary:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    arrays = {
        name: np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape) for name, shape in SHAPES.items()
    }
    path = tmp_path_factory.mktemp("cat") / "model.safetensors"
    save_file(arrays, path)
    return binary, path, arrays


def cat(binary: str, path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([binary, "cat", str(path), *args], capture_output=True, text=True, check=False)


def integers(length: int) -> st.SearchStrategy[str]:
    return st.integers(-length - 1, length).map(str)


def bounds(length: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just(""), st.integers(-length - 2, length + 2).map(str))


def entries(length: int) -> st.SearchStrategy[str]:
    """One entry of an index for a dim of this length; a few of them reach outside."""
    steps = st.one_of(st.just(""), st.sampled_from([":1", ":2", ":-1", ":-3"]))
    slices = st.builds(lambda a, b, step: f"{a}:{b}{step}", bounds(length), bounds(length), steps)
    lists = st.lists(integers(length), min_size=1, max_size=3).map(lambda items: f"[{', '.join(items)}]")
    masks = st.lists(st.booleans(), min_size=length, max_size=length).filter(bool).map(str)
    return st.one_of(integers(length), slices, slices, lists, masks)


@st.composite
def indices(draw: st.DrawFn) -> tuple[str, str]:
    name = draw(st.sampled_from(["w", "v", "s", "none"]))
    shape = SHAPES[name]
    kept = draw(st.integers(0, len(shape)))
    front = draw(st.integers(0, kept))
    dims = [*shape[:front], *shape[len(shape) - (kept - front) :]]
    parts = [draw(entries(length)) for length in dims]
    if front < kept or draw(st.booleans()):
        parts.insert(front, "...")
    for _ in range(draw(st.integers(0, 2))):
        parts.insert(draw(st.integers(0, len(parts))), "None")
    return name, ", ".join(parts)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(indices())
def test_every_index_picks_what_numpy_picks(model: tuple[str, Path, dict[str, Any]], index: tuple[str, str]) -> None:
    binary, path, arrays = model
    name, text = index
    done = cat(binary, path, f"{name}[{text}]", "--json")
    try:
        expected = eval(f"array[{text or '...'}]", {"array": arrays[name]})
    except IndexError:
        assert done.returncode == 2, done.stdout
        assert "cannot take" in json.loads(done.stderr)["error"]
        return
    # numpy does not look at a list that picks nothing because another one is empty.
    if expected.size == 0 and "[" in text and "is outside a dim" in done.stderr:
        return
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert tuple(found["shape"]) == np.shape(expected)
    np.testing.assert_array_equal(np.array(found["values"], np.float32).reshape(np.shape(expected)), expected)


@pytest.mark.parametrize(
    ("text", "read_bytes"),
    [("wide[:, ::20000]", 16), ("wide[[1], [39999, 0]]", 8), ("wide[0, 7:5:-1]", 8), ("wide[0, ::10]", 159_964)],
)
def test_what_lies_far_from_what_is_picked_is_not_read(
    model: tuple[str, Path, dict[str, Any]], text: str, read_bytes: int
) -> None:
    binary, path, _ = model
    done = cat(binary, path, text, "--json")
    assert json.loads(done.stdout)["read_bytes"] == read_bytes


@pytest.mark.parametrize("text", ["w[:, [2, 0], ::-1]", "s", "none", "v[-1]", "w[None, 1, ..., 2]"])
def test_npy_files_are_read_by_numpy(model: tuple[str, Path, dict[str, Any]], text: str, tmp_path: Path) -> None:
    binary, path, arrays = model
    out = tmp_path / "out.npy"
    done = cat(binary, path, text, "--npy", str(out))
    assert done.returncode == 0, done.stderr
    name, _, rest = text.partition("[")
    expected = eval(f"array[{rest.rstrip(']') or '...'}]", {"array": arrays[name]})
    found = np.load(out)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


def test_types_that_numpy_lacks_become_f32(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_torch

    binary = os.environ.get("CAIRN_BIN")
    if not binary:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    tensors = {
        "bf16": torch.tensor([1.5, -2.0, float("nan")], dtype=torch.bfloat16),
        "f8": torch.tensor([0.5, 448.0], dtype=torch.float8_e4m3fn),
        "i64": torch.tensor([[2**62, -1]], dtype=torch.int64),
        "flag": torch.tensor([True, False]),
    }
    save_torch(tensors, tmp_path / "model.safetensors")
    for name, tensor in tensors.items():
        out = tmp_path / f"{name}.npy"
        done = cat(binary, tmp_path / "model.safetensors", name, "--npy", str(out))
        assert done.returncode == 0, done.stderr
        expected = tensor.float().numpy() if name in ("bf16", "f8") else tensor.numpy()
        assert np.load(out).dtype == expected.dtype
        np.testing.assert_array_equal(np.load(out), expected)
