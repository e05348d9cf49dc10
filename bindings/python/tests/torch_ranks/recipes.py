"""Recipes on real ranks: a stored model becomes a fused one, cut in any way, whatever the saved layout was."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import cairn
import torch
from cairn import _together
from launch import launch, main
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RECIPE = [
    "q, k, v -> qkv, fused_qkv, num_heads=4, num_key_value_groups=2, axis=0",
    "down^T -> down, dtype='bfloat16'",
]


def whole() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    shapes = {"q": (16, 6), "k": (8, 6), "v": (8, 6), "down": (10, 6)}
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


def fused() -> dict[str, Any]:
    parts = whole()
    q, k, v = (parts[name].reshape(2, -1, 6) for name in "qkv")
    return {"qkv": torch.cat([q, k, v], dim=1).reshape(32, 6), "down": parts["down"].T.to(torch.bfloat16)}


def placed(tensors: dict[str, Any], mesh: Any, placements: list[Any]) -> dict[str, Any]:
    return {
        name: distribute_tensor(tensor.contiguous(), mesh, placements, src_data_rank=None)
        for name, tensor in tensors.items()
    }


def save(rank: int, size: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (size,))
    cairn.Checkpointer(folder).save(size, placed(whole(), mesh, [Shard(size % 2)]), blocking=True)


def load(rank: int, size: int, folder: Path, step: int) -> None:
    mesh = init_device_mesh("cpu", (size,))
    for placement in (Shard(0), Shard(1), Replicate()):
        expected = placed(fused(), mesh, [placement])
        into = {name: torch.full_like(tensor, -1) for name, tensor in expected.items()}
        cairn.Checkpointer(folder).load(step, into=into, recipe=RECIPE)
        for name, tensor in into.items():
            assert torch.equal(tensor._local_tensor, expected[name]._local_tensor), (name, placement)


def a_fused_model_is_loaded_on_any_layout(folder: Path) -> None:
    for size in (2, 3):
        launch(size, save, folder)
        for other in (2, 3):
            launch(other, load, folder, size)


def replicas_read_each_byte_once_between_them(folder: Path) -> None:
    def save(rank: int, size: int) -> None:
        parts = {name: torch.arange(1 << 22).reshape(2048, -1) + 7 * index for index, name in enumerate("ab")}
        cairn.Checkpointer(folder).save(1, parts, blocking=True)

    def load(rank: int, size: int) -> int:
        # The other may be late on a busy machine; here it is, before it has said anything at all.
        _together.PATIENCE_SECONDS = 30.0
        time.sleep(0.5 * rank)
        into = {"ab": torch.zeros(4096, 2048, dtype=torch.int64)}
        loaded = cairn.Checkpointer(folder).load(1, into=into, recipe=["a, b -> ab, axis=0"])
        expected = torch.arange(1 << 22).reshape(2048, -1)
        assert torch.equal(into["ab"], torch.cat([expected, expected + 7]))
        return loaded.read_bytes

    launch(1, save)
    read = launch(2, load)
    assert sum(read) < 1.1 * (1 << 26), read


CHECKS = {
    check.__name__: check
    for check in (
        a_fused_model_is_loaded_on_any_layout,
        replicas_read_each_byte_once_between_them,
    )
}

if __name__ == "__main__":
    main(CHECKS)
