"""Starts a few gloo ranks, runs one function on each, and raises what any of them raised."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch.multiprocessing as multiprocessing

#: What every rank needs is imported once, by the server that all ranks are forked from.
_PRELOADED = ["torch.distributed.checkpoint", "torch.distributed.fsdp", "cairn.torch.dcp"]


def launch(size: int, function: Callable[..., None], *arguments: Any, folder: Path) -> None:
    """Runs ``function(rank, *arguments)`` on ``size`` ranks with a process group of their own."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    failures = context.SimpleQueue()
    meeting = folder / f"meeting-{os.urandom(4).hex()}"
    ranks = [
        context.Process(target=_rank, args=(rank, size, f"file://{meeting}", failures, function, arguments))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(120)
    alive = [process for process in ranks if process.is_alive()]
    for process in alive:
        process.kill()
    assert failures.empty(), failures.get()
    assert not alive, f"{len(alive)} ranks did not end"
    assert [process.exitcode for process in ranks] == [0] * size


def wait(response: object) -> None:
    """Waits for ``dcp.async_save``."""
    assert isinstance(response, Future)
    response.result()


def _rank(rank: int, size: int, meeting: str, failures: Any, function: Callable[..., None], arguments: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=size)
    try:
        function(rank, *arguments)
    except BaseException:
        failures.put(f"rank {rank}\n{traceback.format_exc()}")
    finally:
        dist.destroy_process_group()
