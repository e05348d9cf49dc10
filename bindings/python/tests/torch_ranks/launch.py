"""Ranks without the start-up time of a launcher: processes forked from one that has imported torch already, joined by gloo."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # What DTensors and optimizers import when they are first used: here once, instead of in every rank.
import torch.distributed as dist

TIMEOUT_S = 60


def launch(size: int, work: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What ``work(rank, size, *arguments)`` returns on each of ``size`` ranks; a rank that dies returns ``None``."""
    context = multiprocessing.get_context("fork")
    ranks = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(size):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_rank, args=(sender, folder, rank, size, work, arguments))
            process.start()
            sender.close()
            ranks.append((process, receiver))
        results = [_result(process, receiver) for process, receiver in ranks]
    failures = [result["failed"] for result in results if result is not None and "failed" in result]
    if failures:
        raise AssertionError("\n".join(failures))
    return [None if result is None else result["returned"] for result in results]


def _rank(sender: Any, folder: str, rank: int, size: int, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=size)
        sender.send({"returned": work(rank, size, *arguments)})
    except BaseException:
        sender.send({"failed": f"rank {rank}:\n{traceback.format_exc()}"})
    sender.close()
    sys.stdout.flush()
    # Peers may have left already, so the group is not destroyed; what was saved has been waited for.
    os._exit(0)


def _result(process: Any, receiver: Any) -> Any:
    result = None
    try:
        if receiver.poll(TIMEOUT_S):
            result = receiver.recv()
        else:
            result = {"failed": "a rank hangs"}
            process.kill()
    except EOFError:
        pass
    process.join()
    return result


def main(checks: dict[str, Callable[[Path], None]]) -> None:
    """Runs every check in a folder of its own and prints what became of it, as one line of JSON."""
    results = {}
    chosen = sys.argv[2:] or checks
    for name in chosen:
        folder = Path(sys.argv[1]) / name
        folder.mkdir()
        try:
            checks[name](folder)
            results[name] = "passed"
        except BaseException:
            results[name] = traceback.format_exc()
    print(json.dumps(results))
