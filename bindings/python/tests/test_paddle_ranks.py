"""Paddle's distributed tensors, optimizers and tensor-parallel layers on two real ranks (gloo, CPU)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("paddle")


def test_two_ranks_save_and_load_what_paddle_split(tmp_path):
    launch = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", "2", "--log_dir", str(tmp_path / "log")]
    script = str(Path(__file__).parent / "paddle_ranks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*launch, script, str(tmp_path / "runs")], env=environment, capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    logs = {log.name: log.read_text() for log in (tmp_path / "log").glob("workerlog.*")}
    assert done.returncode == 0, "\n".join(logs.values()) + done.stderr
    assert all(f"rank {rank} is content" in logs[f"workerlog.{rank}"] for rank in range(2)), logs
