"""Weights that are casts of their masters are not stored by any rank, or the save is refused by all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cairn
import torch
from launch import launch, main
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

RULE = {"model.*": "masters.*"}
SHAPES = {"even": (8, 4), "uneven": (7, 5), "tiny": (3, 1)}
NAMES = {f"model.{name}" for name in (*SHAPES, "plain")}


def whole(name: str) -> Any:
    return torch.randn(SHAPES[name], generator=torch.Generator().manual_seed(len(name)))


def state(size: int, placement: Any) -> dict[str, Any]:
    mesh = init_device_mesh("cpu", (size,))
    masters = {name: distribute_tensor(whole(name), mesh, [placement], src_data_rank=None) for name in SHAPES}
    masters["plain"] = whole("even")
    return {"model": {name: master.to(torch.bfloat16) for name, master in masters.items()}, "masters": masters}


def save(rank: int, size: int, folder: Path, placement: Any) -> None:
    cairn.Checkpointer(folder).save(1, state(size, placement), derive=RULE, blocking=True)


def load(rank: int, size: int, folder: Path, placement: Any) -> None:
    expected = state(size, placement)
    into = {"model": {name: torch.zeros_like(one) for name, one in expected["model"].items()}}
    cairn.Checkpointer(folder).load(1, into=into)
    for name, one in into["model"].items():
        mine, other = (getattr(tensor, "_local_tensor", tensor) for tensor in (one, expected["model"][name]))
        assert torch.equal(mine.view(torch.int16), other.view(torch.int16)), name


def shards_are_derived_and_loaded_on_any_layout(folder: Path) -> None:
    for number, placement in enumerate((Shard(0), Replicate())):
        launch(3, save, folder / str(number), placement)
        assert set(cairn.open(folder / str(number)).derived) == NAMES
        for size, other in ((2, Shard(0)), (2, Shard(1)), (3, Replicate()), (1, Replicate())):
            launch(size, load, folder / str(number), other)


def a_weight_that_is_no_cast_on_one_rank_is_refused_on_all(folder: Path) -> None:
    def work(rank: int, size: int) -> str:
        mine = state(size, Shard(0))
        if rank == 1:
            mine["model"]["even"]._local_tensor.view(torch.int16)[0, 0] ^= 1
        try:
            cairn.Checkpointer(folder).save(1, mine, derive=RULE, blocking=True)
        except cairn.Error as error:
            return f"{type(error).__name__}: {error}"
        return "saved"

    other, mine = launch(2, work)
    assert mine.startswith("StateError") and "`model.even`" in mine and "leave it out of `derive`" in mine, mine
    assert other.startswith("RankFailed") and "model.even" in other, other
    assert not cairn.Checkpointer(folder).steps()


def stages_derive_what_they_hold(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        master = whole("even") + rank
        mine = {"model": {f"layer{rank}": master.bfloat16()}, "masters": {f"layer{rank}": master}}
        cairn.Checkpointer(folder, ranks="differ").save(1, mine, derive=RULE, blocking=True)

    launch(2, work)
    checkpoint = cairn.open(folder)
    for rank in range(2):
        assert torch.equal(checkpoint[f"model.layer{rank}"].torch(), (whole("even") + rank).bfloat16())
    assert len(checkpoint.derived) == 2


CHECKS = {
    check.__name__: check
    for check in (
        shards_are_derived_and_loaded_on_any_layout,
        a_weight_that_is_no_cast_on_one_rank_is_refused_on_all,
        stages_derive_what_they_hold,
    )
}

if __name__ == "__main__":
    main(CHECKS)
