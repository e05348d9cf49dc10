"""Who saves together, what ranks tell each other, and what is left when one of them fails."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import cairn
import torch
import torch.distributed as dist
from launch import launch, main
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Shard, distribute_tensor


def state(rank: int) -> dict[str, Any]:
    """A tensor of which each rank holds some rows, and one that all hold."""
    mesh = DeviceMesh("cpu", list(range(dist.get_world_size())))
    return {"rows": distribute_tensor(torch.arange(20.0), mesh, [Shard(0)]), "all": torch.ones(3)}


def no_collective_is_called_while_saving(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        held = state(rank)
        checkpointer = cairn.Checkpointer(folder)

        def refuse(*arguments: Any, **options: Any) -> None:
            raise AssertionError("a collective was called")

        for name in dir(dist):
            if name.startswith(("all_", "barrier", "broadcast", "gather", "scatter", "reduce", "monitored", "send", "recv")):
                if callable(getattr(dist, name)):
                    setattr(dist, name, refuse)
                    if hasattr(dist.distributed_c10d, name):
                        setattr(dist.distributed_c10d, name, refuse)
        for step in range(3):
            checkpointer.save(step, held, blocking=True)
        checkpointer.load(into=state_like(held))

    def state_like(held: dict[str, Any]) -> dict[str, Any]:
        return {name: torch.zeros_like(tensor) for name, tensor in held.items()}

    launch(3, work)
    assert torch.equal(cairn.open(folder)["rows"].torch(), torch.arange(20.0))


def a_process_group_of_some_ranks_saves_alone(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        group = dist.new_group([1, 3])
        if rank not in (1, 3):
            return
        mesh = DeviceMesh("cpu", [3, 1], _init_backend=False)
        local = torch.arange(6.0).chunk(2)[0 if rank == 3 else 1].clone()
        from torch.distributed.tensor import DTensor

        tensor = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        checkpointer = cairn.Checkpointer(folder, process_group=group)
        assert checkpointer.world.size == 2 and checkpointer.world.members == (1, 3)
        checkpointer.save(1, {"x": tensor}, blocking=True)
        local.zero_()
        checkpointer.load(into={"x": tensor})
        assert torch.equal(local, torch.arange(6.0).chunk(2)[0 if rank == 3 else 1])

    launch(4, work)
    checkpoint = cairn.open(folder)
    assert torch.equal(checkpoint["x"].torch(), torch.arange(6.0)) and checkpoint.world_size == 2


def a_tensor_with_shards_outside_of_the_group_is_refused(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        group = dist.new_group([0, 1])
        held = state(rank)
        if rank > 1:
            return
        try:
            cairn.Checkpointer(folder, process_group=group).save(1, held)
        except cairn.StateError as error:
            assert "`rows` has shards on rank 2" in str(error), error
        else:
            raise AssertionError("shards of others were taken for granted")

    launch(3, work)


def several_checkpointers_save_in_one_launch(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        held = state(rank)
        first, second = cairn.Checkpointer(folder / "a"), cairn.Checkpointer(folder / "b")
        first.save(1, held)
        second.save(1, held)
        second.wait()
        first.wait()
        first.close()
        again = cairn.Checkpointer(folder / "a")
        again.save(2, held, blocking=True)
        again.save(1, held, replace=True, blocking=True)
        assert again.steps() == [1, 2] and second.steps() == [1]

    launch(2, work)
    launch(3, lambda rank, size: cairn.Checkpointer(folder / "a").save(3, state(rank), blocking=True) and None)
    assert cairn.Checkpointer(folder / "a").steps() == [1, 2, 3]


def a_name_that_one_rank_lacks_is_told_before_anything_is_written(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        held = state(rank) | ({"extra": torch.ones(2)} if rank == 1 else {})
        try:
            cairn.Checkpointer(folder).save(1, held, blocking=True)
        except cairn.RanksDisagree as error:
            assert "`extra` is not on ranks 0, 2" in str(error), error
        else:
            raise AssertionError("ranks that differ have saved")

    launch(3, work)
    assert not list(folder.rglob("*.safetensors")) and not cairn.Checkpointer(folder).steps()


def a_rank_that_dies_is_named_and_the_step_before_still_loads(folder: Path) -> None:
    def work(rank: int, size: int) -> float:
        held = state(rank)
        checkpointer = cairn.Checkpointer(folder, commit_timeout=3)
        checkpointer.save(1, held, blocking=True)
        began = time.monotonic()
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            checkpointer.save(2, held, blocking=True)
        except cairn.RankFailed as error:
            assert "1" in str(error), error
        else:
            raise AssertionError("a step was committed without a rank")
        return time.monotonic() - began

    waited = launch(3, work)
    assert waited[1] is None and max(waited[0], waited[2]) < 20
    checkpointer = cairn.Checkpointer(folder)
    assert checkpointer.steps() == [1]
    into = {"rows": torch.zeros(20), "all": torch.zeros(3)}
    assert checkpointer.load(into=into).step == 1 and torch.equal(into["rows"], torch.arange(20.0))


def damaged_bytes_are_found_and_an_older_step_is_taken(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        checkpointer = cairn.Checkpointer(folder)
        for step in (1, 2, 3):
            checkpointer.save(step, state(rank), blocking=True)

    launch(2, work)
    checkpointer = cairn.Checkpointer(folder)
    # Step 2: one bit. Step 3: one byte less.
    flipped, cut = (max(files_of(folder, step), key=lambda file: file.stat().st_size) for step in (2, 3))
    raw = bytearray(flipped.read_bytes())
    raw[-3] ^= 4
    flipped.write_bytes(raw)
    cut.write_bytes(cut.read_bytes()[:-1])
    for step in (2, 3):
        try:
            checkpointer.load(step, into={"rows": torch.zeros(20), "all": torch.zeros(3)})
        except cairn.Damaged as error:
            assert str(error)
        else:
            raise AssertionError(f"damage in step {step} was not found")
    into = {"rows": torch.zeros(20), "all": torch.zeros(3)}
    loaded = checkpointer.load(into=into)
    assert loaded.step == 1 and set(loaded.skipped) == {2, 3} and torch.equal(into["rows"], torch.arange(20.0))


def files_of(folder: Path, step: int) -> list[Path]:
    return list(folder.glob(f"step-*{step}/*/*.safetensors"))


CHECKS = {
    check.__name__: check
    for check in (
        no_collective_is_called_while_saving,
        a_process_group_of_some_ranks_saves_alone,
        a_tensor_with_shards_outside_of_the_group_is_refused,
        several_checkpointers_save_in_one_launch,
        a_name_that_one_rank_lacks_is_told_before_anything_is_written,
        a_rank_that_dies_is_named_and_the_step_before_still_loads,
        damaged_bytes_are_found_and_an_older_step_is_taken,
    )
}

if __name__ == "__main__":
    main(CHECKS)
