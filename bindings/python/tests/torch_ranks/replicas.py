"""Tensors that every rank seems to hold: which must be the same, who finds out, and what is stored of the others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import cairn
import torch
import torch.distributed as dist
from launch import launch, main
from torch import nn


def refusal(checkpointer: cairn.Checkpointer, step: int, state: Any) -> str:
    """Why a save failed on this rank; empty if it did not."""
    try:
        checkpointer.save(step, state, blocking=True)
        return ""
    except cairn.Error as error:
        return f"{type(error).__name__}: {error}"


def a_new_run_refuses_replicas_that_differ_and_names_them(folder: Path) -> None:
    def work(rank: int, size: int) -> list[str]:
        checkpointer = cairn.Checkpointer(folder)
        large, same = torch.full((1 << 18,), float(rank == 2)), torch.ones(5)
        said = [refusal(checkpointer, 1, {"model": {"large": large, "same": same}})]
        optimizer = {"exp_avg": torch.full((3,), float(rank))}
        large.zero_()
        said.append(refusal(checkpointer, 1, {"model": {"large": large, "same": same}, "optim": optimizer}))
        optimizer["exp_avg"].zero_()
        said.append(refusal(checkpointer, 1, {"model": {"large": large, "same": same}, "optim": optimizer}))
        return said

    first, second, third = zip(*launch(3, work), strict=True)
    assert all("`model.large`: ranks 0, 1; rank 2 differ" in said and "`model.same`" not in said for said in first), first
    assert all("`optim.exp_avg`: every rank has its own" in said for said in second), second
    assert any("RanksDisagree" in said and "replicas=" in said for said in first)
    assert third == ("", "", "")
    assert cairn.Checkpointer(folder).steps() == [1]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.norm = nn.Linear(3, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.norm(self.linear(x))
        return out


def a_model_with_batch_norm_under_ddp_needs_no_option(folder: Path) -> None:
    def work(rank: int, size: int) -> dict[str, list[float]]:
        net = Net()
        model = nn.parallel.DistributedDataParallel(net)
        optimizer = torch.optim.AdamW(model.parameters())
        state = {"model": model, "optim": optimizer}
        checkpointer = cairn.Checkpointer(folder)
        generator = torch.Generator().manual_seed(rank)
        for step in (1, 2, 3):
            model(torch.randn(8, 3, generator=generator)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            checkpointer.save(step, state, blocking=True)
        mean = net.norm.running_mean
        assert mean is not None
        before = mean.tolist()
        fresh = Net()
        other = nn.parallel.DistributedDataParallel(fresh)
        checkpointer.load(into={"model": other, "optim": torch.optim.AdamW(other.parameters())})
        mean = fresh.norm.running_mean
        assert mean is not None
        return {"before": before, "after": mean.tolist()}

    ranks = launch(2, work)
    assert ranks[0]["before"] != ranks[1]["before"]
    assert ranks[0]["after"] == ranks[1]["after"] == ranks[0]["before"]
    plain: dict[str, Any] = {"model": Net()}
    cairn.Checkpointer(folder).load(into=plain, strict="partial")
    assert plain["model"].norm.running_mean.tolist() == ranks[0]["before"]


def a_launch_that_goes_on_is_warned(folder: Path) -> None:
    def work(rank: int, size: int) -> str:
        weights = torch.zeros(4)
        cairn.Checkpointer(folder).save(1, {"w": weights}, blocking=True)
        heard: list[str] = []

        class Hearing(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                heard.append(record.getMessage())

        logging.getLogger("cairn").addHandler(Hearing())
        checkpointer = cairn.Checkpointer(folder)
        checkpointer.load(into={"w": weights})
        weights.fill_(rank)
        checkpointer.save(2, {"w": weights}, blocking=True)
        checkpointer.save(3, {"w": weights}, blocking=True)
        return "".join(text for text in heard if "`w`" in text)

    assert all(said.count("rank 0; rank 1 differ") == 1 for said in launch(2, work))


def a_rule_says_which_ranks_count(folder: Path) -> None:
    def work(rank: int, size: int) -> str:
        rules: Any = {"noise.*": "rank 0"}
        state = {"noise": {"a": torch.full((1 << 16,), float(rank + 7))}, "w": torch.ones(3)}
        return refusal(cairn.Checkpointer(folder, replicas=rules), 1, state)

    assert launch(2, work) == ["", ""]
    assert set(cairn.open(folder)["noise.a"].numpy().tolist()) == {7.0}


def each_rank_gets_back_what_it_kept_for_itself(folder: Path) -> None:
    def save(rank: int, size: int) -> str:
        state = {"noise": {"a": torch.full((5,), float(rank + 7))}, "w": torch.ones(3)}
        checkpointer = cairn.Checkpointer(folder, replicas={"noise.*": "per rank"})
        said = [refusal(checkpointer, step, state) for step in (1, 2)]
        state["noise"]["a"].zero_()  # type: ignore[index]
        checkpointer.load(into=state)
        return f"{said} {state['noise']['a'][0]}"  # type: ignore[index]

    def load(rank: int, size: int) -> list[float]:
        state = {"noise": {"a": torch.full((5,), -1.0)}, "w": torch.zeros(3)}
        cairn.Checkpointer(folder).load(into=state)
        assert state["w"].tolist() == [1.0] * 3  # type: ignore[union-attr]
        return [float(state["noise"]["a"][0])]  # type: ignore[index]

    assert launch(2, save) == ["['', ''] 7.0", "['', ''] 8.0"]
    assert launch(3, load) == [[7.0], [8.0], [-1.0]]
    alone: Any = {"noise": {"a": torch.zeros(5)}, "w": torch.zeros(3)}
    cairn.Checkpointer(folder).load(into=alone)
    assert alone["noise"]["a"][0] == 7.0


def stages_store_their_own_buffers(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        net = Net()
        assert net.norm.running_mean is not None
        net.norm.running_mean.fill_(rank)
        # Ranks 0 and 1 hold the first stage, ranks 2 and 3 the second.
        state = {f"stage{rank // 2}": net}
        checkpointer = cairn.Checkpointer(folder, ranks="differ")
        checkpointer.save(1, state, blocking=True)
        net.norm.running_mean.zero_()
        checkpointer.load(into=state)
        assert net.norm.running_mean.tolist() == [float(rank // 2 * 2)] * 4
        dist.barrier()

    launch(4, work)


CHECKS = {
    check.__name__: check
    for check in (
        a_new_run_refuses_replicas_that_differ_and_names_them,
        a_model_with_batch_norm_under_ddp_needs_no_option,
        a_launch_that_goes_on_is_warned,
        a_rule_says_which_ranks_count,
        each_rank_gets_back_what_it_kept_for_itself,
        stages_store_their_own_buffers,
    )
}

if __name__ == "__main__":
    main(CHECKS)
