"""The device of the tests that need a GPU."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch")
#: Whether the tests are tried out where there is no GPU, to find what is wrong with them.
REHEARSAL = bool(os.environ.get("CAIRN_GPU_REHEARSAL"))
if not torch.cuda.is_available() and not REHEARSAL:
    pytest.skip("no NVIDIA GPU: run `cargo xtask gpu captures` on a machine that has one", allow_module_level=True)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
