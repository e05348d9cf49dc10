"""One checkpoint, four frameworks: what each of them saves, all of them load, bit by bit, and so does the command line.

Each framework lives in a process of its own (`frameworks.py`): it saves, waits for the others, and loads everybody's.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import frameworks
import numpy as np
import pytest

import cairn

NAMES = [name for name in frameworks.SIDES if importlib.util.find_spec(name)]
TIMEOUT_S = 300


def command(*arguments: object) -> dict[str, Any]:
    """What the `cairn` binary answers."""
    binary = os.environ.get("CAIRN_BIN")
    if not binary:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    done = subprocess.run([binary, *map(str, arguments), "--json"], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[subprocess.Popen[str], Path]]]:
    """Every framework's process, once it has saved, and where."""
    folder = tmp_path_factory.mktemp("frameworks")
    script = Path(__file__).with_name("frameworks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = {}
    for name in NAMES:
        arguments = [sys.executable, script, name, folder / name]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        processes[name] = (subprocess.Popen(arguments, text=True, env=environment, **pipes), folder / name)
    yield processes
    for process, _ in processes.values():
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def saved(sides: dict[str, tuple[subprocess.Popen[str], Path]]) -> dict[str, Path]:
    """Where each framework has saved."""
    for process, _ in sides.values():
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "saved\n", process.stderr.read()
    return {name: folder for name, (_, folder) in sides.items()}


def test_the_frameworks_store_the_same_names_types_shapes_and_values(saved: dict[str, Path]) -> None:
    for name, folder in saved.items():
        checkpoint = cairn.open(folder)
        dtypes = frameworks.dtypes_of(name)
        expected = {f"tensors.{dtype}.{kind}": (dtype, shape) for dtype in dtypes for kind, shape in frameworks.SHAPES.items()}
        assert {key: (tensor.cairn_dtype, tensor.shape) for key, tensor in checkpoint.items()} == expected
        assert checkpoint.plain == {"values": frameworks.VALUES}


def test_the_command_line_verifies_and_prints_what_frameworks_saved(saved: dict[str, Path]) -> None:
    for name, folder in saved.items():
        (step,) = command("verify", folder, "--read-data")["steps"]
        assert (step["state"], step["problems"]) == ("complete", [])
        assert step["checked_bytes"] > 0
        integers = np.frombuffer(frameworks.content("i64", "cube"), np.int64).reshape(2, 3, 4)
        assert command("cat", folder, "tensors.i64.cube[1, ::2]")["values"] == integers[1, ::2].tolist(), name
        truths = np.frombuffer(frameworks.content("bool", "größe.日本 🗿"), bool).reshape(5, 2)
        assert command("cat", folder, "tensors.bool.größe.日本 🗿[-1]")["values"] == truths[-1].tolist(), name


def test_every_framework_loads_what_every_other_saved_bit_by_bit(
    sides: dict[str, tuple[subprocess.Popen[str], Path]], saved: dict[str, Path], tmp_path: Path
) -> None:
    sources = [
        {"path": str(folder), "dtypes": frameworks.dtypes_of(name), "has_values": True} for name, folder in saved.items()
    ]
    if os.environ.get("CAIRN_BIN"):
        command("reshard", saved["numpy"], tmp_path / "cut", "--mesh", "dp=2,tp=2", "--shard", "*.cube=tp,dp,-")
        command("convert", saved["numpy"], tmp_path / "hf", "--to", "hf", "--shard-size", "1kB")
        everything = frameworks.dtypes_of("numpy")
        sources.append({"path": str(tmp_path / "cut"), "dtypes": everything, "has_values": True})
        sources.append({"path": str(tmp_path / "hf"), "dtypes": everything, "has_values": False})
    for process, _ in sides.values():
        assert process.stdin is not None
        process.stdin.write(json.dumps(sources) + "\n")
        process.stdin.flush()
    for name, (process, _) in sides.items():
        out, err = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, f"{name}\n{err}"
        assert out.splitlines() == [f"loaded {source['path']}" for source in sources], f"{name}\n{err}"
