"""Cairn behind torch.distributed.checkpoint, on several ranks: any layout to any other, and no error on one rank that others miss."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import cairn
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from cairn.torch.dcp import Reader, Writer
from dcp_ranks import launch, wait
from torch.distributed._shard.sharded_tensor import Shard, init_from_local_shards
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor import Shard as Split

pytestmark = pytest.mark.filterwarnings("ignore")


def table(*shape: int) -> torch.Tensor:
    return torch.arange(float(torch.Size(shape).numel())).reshape(shape)


def model(seed: int) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    """A small FSDP2 model and its optimizer, one step into training."""
    torch.manual_seed(seed)
    module = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.ReLU(), torch.nn.Linear(7, 3))
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(module[0], mesh=mesh)
    fully_shard(module, mesh=mesh)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(torch.ones(2, 5)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return module, optimizer


class AppState:
    """Model and optimizer as one Stateful: the class of DCP's "getting started" recipe."""

    def __init__(self, module: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = module
        self.optimizer = optimizer

    def state_dict(self) -> dict[str, Any]:
        model_state, optimizer_state = get_state_dict(self.model, self.optimizer)
        return {"model": model_state, "optim": optimizer_state}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"]
        )


def whole(app: AppState) -> dict[str, torch.Tensor]:
    """Every tensor of the state, gathered."""
    state = app.state_dict()
    flat = {f"model.{name}": tensor for name, tensor in state["model"].items()}
    for name, entry in state["optim"]["state"].items():
        flat |= {f"optim.{name}.{key}": tensor for key, tensor in entry.items()}
    return {name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in flat.items()}


def failure(error: CheckpointException, rank: int) -> BaseException:
    return error.failures[rank][0]


# What four ranks do


def four_ranks(rank: int, folder: Path) -> None:
    recipe_saves(rank, folder)
    uneven_shards_on_two_axes(folder)
    two_local_shards_of_one_name_are_both_saved(rank, folder)
    names_and_values_of_single_ranks_are_kept(rank, folder)
    plans_are_cached(rank, folder)
    a_full_disk_on_one_rank_fails_all_and_commits_nothing(rank, folder)
    a_bad_object_on_one_rank_fails_all_at_once(rank, folder)
    ranks_plan_for_themselves(rank, folder)
    a_smaller_group_saves(rank, folder)


def recipe_saves(rank: int, folder: Path) -> None:
    app = AppState(*model(seed=1))
    dcp.save({"app": app, "step": 3}, storage_writer=Writer(folder / "fsdp"))
    expected = whole(app)
    if rank == 0:
        torch.save(expected, folder / "expected.pt")
    response = dcp.async_save({"app": app, "step": 4}, storage_writer=Writer(folder / "fsdp-async"))
    with torch.no_grad():
        for parameter in app.model.parameters():
            parameter.zero_()
    wait(response)


def uneven_shards_on_two_axes(folder: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    state = {
        "rows": distribute_tensor(table(5, 3), mesh, [Replicate(), Split(0)]),
        "both": distribute_tensor(table(3, 7), mesh, [Split(0), Split(1)]),
        "tiny": distribute_tensor(table(1, 2), mesh, [Split(0), Split(0)]),
        "empty": distribute_tensor(torch.zeros(0, 2), mesh, [Split(0), Replicate()]),
        "same": table(2, 2),
    }
    dcp.save(state, storage_writer=Writer(folder / "uneven"))
    opened = cairn.open(folder / "uneven", world=cairn.World())
    assert opened["both"][:].tolist() == table(3, 7).tolist()
    assert opened["tiny"][:].tolist() == [[0, 1]] and opened["empty"].shape == (0, 2)


def two_local_shards_of_one_name_are_both_saved(rank: int, folder: Path) -> None:
    full = table(8, 3)
    rows = [rank, rank + 4]
    shards = [Shard.from_tensor_and_offsets(full[row : row + 1].clone(), [row, 0], rank) for row in rows]
    sharded = init_from_local_shards(shards, [8, 3])
    planner = DefaultSavePlanner(flatten_sharded_tensors=False)
    dcp.save({"table": sharded}, storage_writer=Writer(folder / "pairs"), planner=planner)
    assert cairn.open(folder / "pairs", world=cairn.World())["table"][:].tolist() == full.tolist()
    for shard in sharded.local_shards():
        shard.tensor.zero_()
    dcp.load({"table": sharded}, storage_reader=Reader(folder / "pairs"))
    for shard, row in zip(sharded.local_shards(), rows, strict=True):
        assert shard.tensor.tolist() == full[row : row + 1].tolist()


def names_and_values_of_single_ranks_are_kept(rank: int, folder: Path) -> None:
    state: dict[str, Any] = {"shared": torch.ones(3), "n": 5}
    if rank == 2:
        state |= {"only": torch.full((2,), 2.0), "text": "of rank 2"}
    dcp.save(state, storage_writer=Writer(folder / "single"))
    opened = cairn.open(folder / "single", world=cairn.World())
    assert opened["only"][:].tolist() == [2, 2]
    assert opened.plain == {"n": 5, "text": "of rank 2"}


def plans_are_cached(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (4,))
    for number in range(4):
        state: dict[str, Any] = {"x": distribute_tensor(torch.full((8,), float(number)), mesh, [Split(0)])}
        if rank == 1 and number >= 2:
            state["late"] = torch.full((1,), float(number))
        planner = DefaultSavePlanner(enable_plan_caching=True)
        dcp.save(state, storage_writer=Writer(folder / "cached"), planner=planner)
        opened = cairn.open(folder / "cached", world=cairn.World())
        assert opened["x"][:].tolist() == [number] * 8
        dist.barrier()


def a_full_disk_on_one_rank_fails_all_and_commits_nothing(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (4,))
    state = {"x": distribute_tensor(torch.ones(4, 100_000), mesh, [Split(0)])}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    if rank == 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        dcp.save(state, storage_writer=Writer(folder / "full"))
    except CheckpointException as error:
        assert isinstance(failure(error, 2), cairn.StoreError), error
    else:
        raise AssertionError("the save was declared good")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert cairn.Checkpointer(folder / "full", world=cairn.World()).steps() == []
    dcp.save(state, storage_writer=Writer(folder / "full"))
    assert cairn.open(folder / "full", world=cairn.World())["x"][3, 99_999] == 1


def a_bad_object_on_one_rank_fails_all_at_once(rank: int, folder: Path) -> None:
    state = {"x": torch.ones(2), "bad": object() if rank == 3 else 1, f"own{rank}": object() if rank == 3 else 1}
    try:
        dcp.save(state, storage_writer=Writer(folder / "bad"))
    except CheckpointException as error:
        assert isinstance(failure(error, 3), cairn.StateError)
    else:
        raise AssertionError("the save was declared good")
    assert cairn.Checkpointer(folder / "bad", world=cairn.World()).steps() == []


def ranks_plan_for_themselves(rank: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (4,))
    x = distribute_tensor(table(6, 2), mesh, [Split(0)])
    for number in range(2):
        state = {"x": x, "same": torch.ones(2), "rank": rank, "n": number}
        dcp.save(state, storage_writer=Writer(folder / "alone"), use_collectives=False)
    loaded: dict[str, Any] = {"x": distribute_tensor(torch.zeros(6, 2), mesh, [Split(1)]), "same": torch.zeros(2), "rank": -1, "n": -1}
    dcp.load(loaded, storage_reader=Reader(folder / "alone"))
    assert loaded["rank"] == rank and loaded["n"] == 1
    assert loaded["x"].full_tensor().tolist() == table(6, 2).tolist()


def a_smaller_group_saves(rank: int, folder: Path) -> None:
    group = dist.new_group([1, 3])
    if rank in (1, 3):
        state = {"x": torch.ones(2), f"of-{rank}": torch.full((1,), rank)}
        dcp.save(state, storage_writer=Writer(folder / "group"), process_group=group)
        assert cairn.open(folder / "group", world=cairn.World())["of-3"][:].tolist() == [3]


# What other numbers of ranks find


def reload(rank: int, folder: Path) -> None:
    expected = torch.load(folder / "expected.pt")
    for name, step in (("fsdp", 3), ("fsdp-async", 4)):
        app = AppState(*model(seed=2))
        state: dict[str, Any] = {"app": app, "step": 0}
        dcp.load(state, storage_reader=Reader(folder / name))
        assert state["step"] == step
        found = whole(app)
        assert found.keys() == expected.keys()
        for key, tensor in expected.items():
            assert torch.equal(found[key], tensor), key
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    target: dict[str, Any] = {
        "rows": distribute_tensor(torch.zeros(5, 3), mesh, [Split(1)]),
        "both": distribute_tensor(torch.zeros(3, 7), mesh, [Split(1)]),
        "empty": torch.zeros(0, 2),
    }
    dcp.load(target, storage_reader=Reader(folder / "uneven"))
    assert target["rows"].full_tensor().tolist() == table(5, 3).tolist()
    assert target["both"].full_tensor().tolist() == table(3, 7).tolist()
    # Saved again by this many ranks, for the next number of them.
    app = AppState(*model(seed=2))
    dcp.load({"app": app}, storage_reader=Reader(folder / "fsdp"))
    dcp.save({"app": app, "step": 3}, storage_writer=Writer(folder / "fsdp"))


def test_four_ranks_save_and_other_numbers_of_ranks_load(tmp_path: Path) -> None:
    launch(4, four_ranks, tmp_path, folder=tmp_path)
    launch(2, reload, tmp_path, folder=tmp_path)
    launch(3, reload, tmp_path, folder=tmp_path)


def test_the_example_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    example = Path(__file__).parents[1] / "examples/dcp_fsdp2.py"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for ranks, steps in ((2, 20), (1, 30)):
        command = [*launcher, f"--nproc-per-node={ranks}", str(example), str(tmp_path / "run"), f"--steps={steps}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
    assert "going on from step 20" in done.stdout and "step 30" in done.stdout
