"""A keeper's memory under a trainer that is killed: what was captured is committed, and loaded from memory.

The trainer is this file, run as a program; the keeper is the `cairn` command.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cairn

#: Enough for several chunks, of which a slow writer writes the first.
SHAPE = (1536, 8192)


def _command() -> str:
    binary = os.environ.get("CAIRN_BIN")
    if binary is None:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    return binary


def _weights(step: int) -> np.ndarray[Any, Any]:
    return np.arange(SHAPE[0] * SHAPE[1], dtype=np.uint16).reshape(SHAPE) + np.uint16(step)


def _status(socket: Path) -> dict[str, Any]:
    done = subprocess.run(
        [_command(), "keeper", "status", "--socket", socket, "--json"], check=False, capture_output=True, text=True
    )
    return json.loads(done.stdout) if done.returncode == 0 else {}


def _wait_for_stage(socket: Path, stage: str) -> None:
    deadline = time.monotonic() + 120
    while not any(held["stage"] == stage for held in _status(socket).get("snapshots", [])):
        assert time.monotonic() < deadline, _status(socket)
        time.sleep(0.05)


def _damage(process: int) -> None:
    """Changes a byte in the middle of all memory that a keeper holds."""
    damaged = 0
    for file in Path(f"/proc/{process}/fd").iterdir():
        if str(file.readlink()).startswith("/memfd:cairn"):
            with file.open("r+b") as memory:
                middle = memory.seek(0, os.SEEK_END) // 2
                memory.seek(middle)
                byte = memory.read(1)[0]
                memory.seek(middle)
                memory.write(bytes([byte ^ 1]))
            damaged += 1
    assert damaged


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "own" / "keeper.sock"
    with subprocess.Popen([_command(), "keeper", "--socket", path, "--max-bytes", "1G", "--quiet"]) as keeper:
        deadline = time.monotonic() + 120
        while not _status(path):
            assert time.monotonic() < deadline and keeper.poll() is None
            time.sleep(0.05)
        yield path
        keeper.terminate()


def test_what_a_killed_trainer_captured_is_committed_and_loaded(tmp_path: Path, socket: Path) -> None:
    run = tmp_path / "run"
    with subprocess.Popen([sys.executable, __file__, str(run), str(socket)], stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None
        # It forked a process that has its connection, too, and outlives it.
        child = int(trainer.stdout.readline())
        _wait_for_stage(socket, "captured")
        trainer.kill()
    try:
        _wait_for_stage(socket, "committed")
    finally:
        os.kill(child, signal.SIGKILL)
    target = {"weights": np.zeros(SHAPE, np.uint16)}
    assert cairn.Checkpointer(run, keeper=None).load(into=target).step == 7
    assert np.array_equal(target["weights"], _weights(7))
    for data in run.glob("step-*/*/*.safetensors"):
        data.unlink()
    target["weights"][:] = 0
    assert cairn.Checkpointer(run, keeper=socket).load(into=target).step == 7
    assert np.array_equal(target["weights"], _weights(7))


def test_where_memory_is_damaged_the_store_is_read(tmp_path: Path, socket: Path) -> None:
    checkpointer = cairn.Checkpointer(tmp_path / "run", keeper=socket)
    checkpointer.save(1, {"weights": _weights(1)}).wait()
    _damage(_status(socket)["process"])
    target = {"weights": np.zeros(SHAPE, np.uint16)}
    with pytest.raises(cairn.Damaged):
        checkpointer.load(1, into=target)
    loaded = checkpointer.load(into=target)
    assert (loaded.step, loaded.skipped) == (1, {})
    assert np.array_equal(target["weights"], _weights(1))


def test_without_a_keeper_everything_works_the_same(tmp_path: Path) -> None:
    checkpointer = cairn.Checkpointer(tmp_path / "run", keeper=tmp_path / "nobody.sock")
    checkpointer.save(1, {"x": np.ones(3)}).wait()
    target = {"x": np.zeros(3)}
    assert checkpointer.load(into=target).step == 1
    assert np.array_equal(target["x"], np.ones(3))


def _train(run: str, socket: str) -> None:
    """Captures step 7, writes it at one byte a second, and forks a child that waits."""
    checkpointer = cairn.Checkpointer(run, keeper=socket, bytes_per_second=1)
    checkpointer.save(7, {"weights": _weights(7)})
    child = os.fork()
    if child == 0:
        os.close(1)
        while True:
            time.sleep(60)
    print(child, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    _train(*sys.argv[1:])
