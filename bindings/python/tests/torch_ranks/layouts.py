"""Every placement of a DTensor is saved and loaded as every other, on any number of ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cairn
import cairn.torch
import torch
from launch import launch, main
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.placement_types import _StridedShard

SHAPES = {"even": (8, 4), "uneven": (7, 5), "tiny": (3, 1), "vocabulary": (257, 2), "line": (9,), "empty": (0, 4)}


def whole(name: str) -> Any:
    shape = SHAPES[name]
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + len(name)


def placed(name: str, mesh: Any, placements: list[Any]) -> Any:
    """The tensor called ``name``, cut as torch itself cuts it."""
    tensor = whole(name)
    placements = [Shard(0) if p.is_shard() and p.dim >= tensor.ndim else p for p in placements]
    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def layouts(size: int) -> dict[str, tuple[Any, list[Any]]]:
    """Meshes over ``size`` ranks, and placements on them."""
    line = init_device_mesh("cpu", (size,), mesh_dim_names=("dp",))
    backwards = DeviceMesh("cpu", list(reversed(range(size))))
    found = {
        "replicated": (line, [Replicate()]),
        "rows": (line, [Shard(0)]),
        "columns": (line, [Shard(1)]),
        "rows backwards": (backwards, [Shard(0)]),
    }
    if size == 4:
        grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
        permuted = DeviceMesh("cpu", [[3, 1], [0, 2]], mesh_dim_names=("dp", "tp"))
        found |= {
            "rows of replicas": (grid, [Replicate(), Shard(0)]),
            "replicas of rows": (grid, [Shard(0), Replicate()]),
            "rows of rows": (grid, [Shard(0), Shard(0)]),
            "blocks": (grid, [Shard(0), Shard(1)]),
            "blocks, permuted": (permuted, [Shard(1), Shard(0)]),
            "columns of columns": (permuted, [Shard(1), Shard(1)]),
            "rows, inner axis first": (grid, [_StridedShard(0, split_factor=2), Shard(0)]),
        }
    return found


def save(rank: int, size: int, folder: Path) -> None:
    checkpointer = cairn.Checkpointer(folder)
    state = {
        f"{layout}/{name}": placed(name, mesh, placements)
        for layout, (mesh, placements) in layouts(size).items()
        for name in SHAPES
    }
    checkpointer.save(size, state, blocking=True)


def load(rank: int, size: int, folder: Path, step: int, names: list[str]) -> None:
    """Loads every stored layout into every layout of this world."""
    checkpoint = cairn.Checkpointer(folder).open(step)
    for layout, (mesh, placements) in layouts(size).items():
        expected = {name: placed(name, mesh, placements) for name in SHAPES}
        into = {key: torch.full_like(expected[key.rpartition("/")[2]], -1) for key in names}
        checkpoint.load(into)
        for key, tensor in into.items():
            local = expected[key.rpartition("/")[2]]._local_tensor
            assert torch.equal(tensor._local_tensor, local), (key, layout, tensor._local_tensor)


def any_layout_into_any_other(folder: Path) -> None:
    for size, others in ((4, (4, 3, 2)), (3, (4, 2))):
        launch(size, save, folder)
        checkpoint = cairn.open(folder, step=size)
        for key in checkpoint:
            assert torch.equal(checkpoint[key].torch(), whole(key.rpartition("/")[2])), key
        for other in others:
            launch(other, load, folder, size, list(checkpoint))
        into = {key: torch.zeros(SHAPES[key.rpartition("/")[2]]) for key in checkpoint}
        checkpoint.load(into)
        assert all(torch.equal(tensor, whole(key.rpartition("/")[2])) for key, tensor in into.items())


def replicas_are_written_once(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replica", "shard"))
        tensor = torch.arange(40_000.0).reshape(200, 200)
        state = {
            "plain": tensor,
            "replicated": distribute_tensor(tensor + 1, mesh, [Replicate(), Replicate()]),
            "sharded": distribute_tensor(tensor + 2, mesh, [Replicate(), Shard(0)]),
        }
        cairn.Checkpointer(folder).save(1, state, blocking=True)

    launch(4, work)
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert 3 * 160_000 <= written < 3 * 160_000 + 40_000, written


def a_mesh_of_some_ranks_holds_the_tensor_alone(folder: Path) -> None:
    def save(rank: int, size: int) -> None:
        mesh = DeviceMesh("cpu", [2, 0])
        tensor = distribute_tensor(torch.arange(10.0), mesh, [Shard(0)], src_data_rank=None)
        cairn.Checkpointer(folder).save(1, {"x": tensor, "y": torch.ones(2)}, blocking=True)

    def load(rank: int, size: int) -> None:
        mesh = DeviceMesh("cpu", [1, 2])
        tensor = distribute_tensor(torch.zeros(10), mesh, [Shard(0)], src_data_rank=None)
        cairn.Checkpointer(folder).load(into={"x": tensor, "y": torch.zeros(2)})
        assert rank == 0 or torch.equal(tensor._local_tensor, torch.arange(10.0).chunk(2)[rank - 1])

    launch(3, save)
    assert torch.equal(cairn.open(folder)["x"].torch(), torch.arange(10.0))
    launch(3, load)


def partial_tensors_are_refused_by_name(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        from torch.distributed.tensor import Partial

        mesh = init_device_mesh("cpu", (2,))
        tensor = DTensor.from_local(torch.ones(3), mesh, [Partial()])
        try:
            cairn.Checkpointer(folder).save(1, {"model": {"w": tensor}})
        except cairn.StateError as error:
            assert "`model.w`" in str(error) and "partial" in str(error)
        else:
            raise AssertionError("a partial tensor was saved")

    launch(2, work)
    assert not list(folder.rglob("*.safetensors")) and not cairn.Checkpointer(folder).steps()


def a_shard_that_is_not_what_its_placement_says_is_refused_by_name(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (2,))
        local = torch.ones(3 if rank == 0 else 5)
        tensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False, shape=torch.Size([8]), stride=(1,))
        try:
            cairn.Checkpointer(folder).save(1, {"w": tensor})
        except cairn.StateError as error:
            assert "`w`" in str(error) and f"[{3 if rank == 0 else 5}]" in str(error), error
        else:
            raise AssertionError("a wrong shard was saved")

    launch(2, work)


def boxes_listed_by_each_rank_make_one_tensor(folder: Path) -> None:
    table = torch.arange(60.0).reshape(10, 6)

    def save(rank: int, size: int) -> None:
        own = [(table[:3].clone(), (0, 0)), (table[7:].clone(), (7, 0))] if rank == 0 else [(table[3:7].clone(), (3, 0))]
        state = {"table": cairn.torch.Shards((10, 6), own)}
        cairn.Checkpointer(folder).save(1, state, blocking=True)

    def load(rank: int, size: int) -> None:
        own = torch.zeros(10, 2)
        boxes = [(own, (0, rank * 2))] if rank < 3 else []
        shards = cairn.torch.Shards((10, 6), boxes, dtype=torch.float32)
        cairn.Checkpointer(folder).load(into={"table": shards})
        assert rank == 3 or torch.equal(own, table[:, rank * 2 : rank * 2 + 2])


    launch(2, save)
    launch(4, load)


def sharded_tensors_of_old_are_boxes(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        from torch.distributed._shard import sharded_tensor
        from torch.distributed._shard.sharding_spec import ChunkShardingSpec

        spec = ChunkShardingSpec(dim=0, placements=[f"rank:{r}/cpu" for r in range(size)])
        tensor = sharded_tensor.zeros(spec, 5, 3)
        for shard in tensor.local_shards():
            shard.tensor.copy_(torch.arange(15.0).reshape(5, 3)[shard.metadata.shard_offsets[0] :][: len(shard.tensor)])
        checkpointer = cairn.Checkpointer(folder)
        checkpointer.save(1, {"x": tensor}, blocking=True)
        fresh = sharded_tensor.zeros(spec, 5, 3)
        checkpointer.load(into={"x": fresh})
        for old, new in zip(tensor.local_shards(), fresh.local_shards(), strict=True):
            assert torch.equal(old.tensor, new.tensor)

    launch(2, work)
    assert torch.equal(cairn.open(folder)["x"].torch(), torch.arange(15.0).reshape(5, 3))


CHECKS = {
    check.__name__: check
    for check in (
        any_layout_into_any_other,
        replicas_are_written_once,
        a_mesh_of_some_ranks_holds_the_tensor_alone,
        partial_tensors_are_refused_by_name,
        a_shard_that_is_not_what_its_placement_says_is_refused_by_name,
        boxes_listed_by_each_rank_make_one_tensor,
        sharded_tensors_of_old_are_boxes,
    )
}

if __name__ == "__main__":
    main(CHECKS)
