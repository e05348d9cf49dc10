"""JAX in several processes: what some of them save, others load, with other numbers of processes and devices."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import cairn

pytest.importorskip("jax")
TIMEOUT_S = 120


def launch(size: int, devices: int, folder: Path, *tasks: str) -> None:
    """Runs the tasks in ``size`` processes with some devices each; every one of them must end well."""
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        port = listening.getsockname()[1]
    command = [sys.executable, Path(__file__).with_name("jax_ranks.py")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(size), str(devices), str(port), str(folder), *tasks],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for rank in range(size)
    ]
    said = []
    try:
        for process in processes:
            said.append(process.communicate(timeout=TIMEOUT_S)[0])
    finally:
        for process in processes:
            process.kill()
    assert all(text.endswith("done\n") for text in said), "\n\n".join(said)


def test_two_processes_save_and_load_what_one_process_loads_and_saves(tmp_path: Path) -> None:
    launch(2, 4, tmp_path / "two", "board", "save", "load", "together", "disagree", "share")
    checkpoint = cairn.open(tmp_path / "two", 2)
    assert checkpoint.world_size == 2
    assert checkpoint.placement("arrays.rows") == "f32[16@dim0, 8]"
    assert checkpoint.placement("arrays.columns") == "f32[16, 8@dim1]"
    assert checkpoint.placement("arrays.copies") == "f32[16, 8]"
    assert "listed" in (checkpoint.placement("arrays.far apart") or "")
    cairn.Checkpointer(tmp_path / "two").verify(4)
    shutil.rmtree(tmp_path / "two" / "step-00000004")
    launch(1, 8, tmp_path / "two", "load")
    launch(1, 4, tmp_path / "one", "save")
    launch(2, 2, tmp_path / "one", "load")


def test_a_process_may_have_no_part_of_an_array(tmp_path: Path) -> None:
    launch(3, 1, tmp_path, "subset")
