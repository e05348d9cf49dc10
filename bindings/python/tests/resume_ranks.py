"""What ranks do about a step that not all of them can load, and how they share what they read. Each returns what the test compares."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard

import cairn
from cairn import _together
from torch_ranks.launch import launch


def sharded(whole: torch.Tensor, size: int, placement: Any) -> DTensor:
    mesh = init_device_mesh("cpu", (size,))
    rank = dist.get_rank()
    local = whole if placement.is_replicate() else whole.chunk(size, placement.dim)[rank].contiguous()
    return DTensor.from_local(local.clone(), mesh, [placement], run_check=False, shape=whole.shape, stride=whole.stride())


def save_twice(rank: int, size: int, path: str) -> None:
    """Two steps of a tensor that is split over the ranks."""
    checkpointer = cairn.Checkpointer(path)
    for step in (1, 2):
        checkpointer.save(step, {"w": sharded(torch.full((64, 8), float(step)), size, Shard(0))}).wait()


def load_newest(rank: int, size: int, path: str) -> tuple[int | None, list[int], float]:
    """The step each rank ends with, those it passed over, and what it loaded."""
    target = sharded(torch.zeros(64, 8), size, Shard(0))
    loaded = cairn.Checkpointer(path).load(into={"w": target})
    return loaded.step, sorted(loaded.skipped), target.to_local().mean().item()


def one_rank_wants_another_name(rank: int, size: int, path: str) -> str:
    """The name of the error that each rank raises."""
    name = "w" if rank == 0 else "v"
    try:
        cairn.Checkpointer(path).load(into={name: sharded(torch.zeros(64, 8), size, Shard(0))})
    except cairn.Error as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    return "loaded"


def one_rank_cannot_save(rank: int, size: int, path: str) -> str:
    """The name of the error that each rank raises, at the first save."""
    state = {"w": sharded(torch.zeros(64, 8), size, Shard(0)), "extra": object() if rank == 1 else 1}
    try:
        cairn.Checkpointer(path, commit_timeout=20.0).save(1, state).wait()
    except cairn.Error as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    return "saved"


def one_rank_cannot_save_again(rank: int, size: int, path: str) -> str:
    """The same at a later save, where nobody compares names any more."""
    checkpointer = cairn.Checkpointer(path, commit_timeout=60.0)
    state: dict[str, Any] = {"w": sharded(torch.zeros(64, 8), size, Shard(0)), "extra": 1}
    checkpointer.save(1, state).wait()
    if rank == 1:
        state["extra"] = object()
    try:
        checkpointer.save(2, state).wait()
    except cairn.Error as error:
        return f"{type(error).__name__}: {error.message.splitlines()[0]}"
    return "saved"


def reshard_together(rank: int, size: int, path: str) -> tuple[int, int, bool]:
    """The bytes each rank read and was handed, and whether it got the right ones; rows become columns."""
    _together._WORTH_BYTES, _together.PATIENCE_SECONDS = 0, 30.0
    whole = torch.arange(1024 * 1024, dtype=torch.float32).reshape(1024, 1024)
    checkpointer = cairn.Checkpointer(path)
    checkpointer.save(1, {"w": sharded(whole, size, Shard(0)), "r": sharded(whole[:64] + 1, size, Shard(0))}).wait()
    into = {"w": sharded(torch.zeros_like(whole), size, Shard(1)), "r": sharded(torch.zeros(64, 1024), size, Replicate())}
    loaded = checkpointer.load(into=into)
    right = torch.equal(into["w"].to_local(), whole.chunk(size, 1)[rank]) and torch.equal(into["r"].to_local(), whole[:64] + 1)
    return loaded.read_bytes, loaded.received_bytes, right


def only_one_rank_loads(rank: int, size: int, path: str) -> tuple[int, bool]:
    """A rank that loads alone, later with the others: what it was handed each time."""
    _together._WORTH_BYTES, _together.PATIENCE_SECONDS = 0, 0.3
    whole = torch.arange(512 * 512, dtype=torch.float32).reshape(512, 512)
    checkpointer = cairn.Checkpointer(path)
    checkpointer.save(1, {"w": sharded(whole, size, Shard(0))}).wait()
    alone = 0
    if rank == 0:
        alone = checkpointer.load(1, into={"w": sharded(torch.zeros_like(whole), size, Shard(1))}).received_bytes
    dist.barrier()
    _together.PATIENCE_SECONDS = 30.0
    together = checkpointer.load(1, into={"w": sharded(torch.zeros_like(whole), size, Shard(1))}).received_bytes
    return alone, together > 0


if __name__ == "__main__":
    # Ranks are forked from a process that has imported nothing but torch: `resume_ranks.py CHECK SIZE PATH`.
    check, size, path = sys.argv[1:]
    print(json.dumps(launch(int(size), globals()[check], path)))
