"""``cairn stats`` and ``cairn diff`` say what numpy says, also about values at the ends of their range."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

Array = npt.NDArray[Any]
RANDOM = np.random.default_rng(7)

ARRAYS: dict[str, Array] = {
    "normal": RANDOM.standard_normal((300, 1000)).astype(np.float32) * 0.02,
    "longer_than_a_stretch": RANDOM.standard_normal(2_500_000).astype(np.float32),
    "far_from_zero": (1e8 + RANDOM.standard_normal(100_000)).astype(np.float64),
    "huge": np.array([3e38, -3e38, 1e38], np.float32),
    "tiny": np.array([1e-45, 3e-45, 0.0], np.float32),
    "half": RANDOM.standard_normal(5000).astype(np.float16),
    "integers": RANDOM.integers(-(2**40), 2**40, 4000),
    "flags": RANDOM.random(1000) < 0.3,
    "sparse": np.where(RANDOM.random(9999) < 0.9, 0.0, 1.0).astype(np.float32),
    "not_finite": np.array([1.0, np.nan, np.inf, -np.inf, 3.0], np.float32),
}


def answer(*arguments: object) -> Any:
    binary = os.environ.get("CAIRN_BIN")
    if not binary:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("stats") / "model.safetensors"
    save_file(ARRAYS, path)
    return {line["pattern"]: line for line in answer("stats", path, "--each", "--hist")["patterns"]}


@pytest.mark.parametrize("name", ARRAYS)
def test_statistics_are_numpys(found: dict[str, Any], name: str) -> None:
    line, array = found[name], ARRAYS[name].astype(np.float64)
    finite = array[np.isfinite(array)]
    assert line["elements"] == array.size
    assert line["nan"] == np.isnan(array).sum()
    assert line["infinite"] == np.isinf(array).sum()
    assert line["zeros"] == (array == 0).sum()
    assert (line["min"], line["max"]) == (finite.min(), finite.max())
    assert line["absmax"] == np.abs(finite).max()
    scale = np.abs(finite).max()
    assert line["mean"] == pytest.approx(finite.mean(), rel=1e-12, abs=1e-14 * scale)
    assert line["std"] == pytest.approx(finite.std(), rel=1e-9)


def test_histograms_are_numpys_but_for_values_near_an_edge(found: dict[str, Any]) -> None:
    array = ARRAYS["longer_than_a_stretch"]
    counts, _ = np.histogram(array, bins=24, range=(float(array.min()), float(array.max())))
    assert np.abs(np.array(found["longer_than_a_stretch"]["histogram"]["counts"]) - counts).max() < 0.01 * array.size
    assert sum(found["sparse"]["histogram"]["counts"]) == pytest.approx(9999)


def test_differences_are_numpys(tmp_path: Path) -> None:
    left = RANDOM.standard_normal((400, 700)).astype(np.float32)
    right = (left + 1e-3 * RANDOM.standard_normal(left.shape)).astype(np.float32)
    save_file({"w": left}, tmp_path / "a.safetensors")
    save_file({"w": right}, tmp_path / "b.safetensors")
    report = answer("diff", tmp_path / "a.safetensors", tmp_path / "b.safetensors", "--rtol", "1e-3", "--atol", "1e-4")
    (line,) = report["differing"]
    one, other = left.astype(np.float64), right.astype(np.float64)
    distance = np.abs(one - other)
    assert line["max_absolute"] == distance.max()
    assert line["max_relative"] == (distance / np.maximum(np.abs(one), np.abs(other))).max()
    assert line["differing_elements"] == (~np.isclose(one, other, rtol=1e-3, atol=1e-4)).sum()
    assert tuple(line["worst"]) == np.unravel_index(distance.argmax(), distance.shape)
    norms = np.linalg.norm(one) * np.linalg.norm(other)
    assert line["cosine"] == pytest.approx((one * other).sum() / norms, rel=1e-12)
