"""Training stops on one layout and goes on on another, with the same losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cairn
import torch
import torch.distributed as dist
from launch import launch, main
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

#: Sums over ranks are made in another order on another number of them.
CLOSE = {"rtol": 1e-5, "atol": 1e-7}
VOCABULARY, BATCH = 50257, 12


class Net(nn.Module):
    """A small language model whose sizes fit no number of ranks."""

    def __init__(self, vocabulary: int = VOCABULARY) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.up, self.norm, self.down = nn.Linear(8, 14), nn.LayerNorm(14), nn.Linear(14, 3)

    def forward(self, tokens: Any) -> Any:
        return self.down(self.norm(self.up(self.embedding(tokens)).relu()))


def net(seed: int, vocabulary: int = VOCABULARY) -> Net:
    torch.manual_seed(seed)
    return Net(vocabulary)


def optimizer_for(module: nn.Module) -> Any:
    decayed = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    other = [parameter for parameter in module.parameters() if parameter.ndim < 2]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": other}], lr=0.05)


def train(module: nn.Module, optimizer: Any, steps: range, rank: int = 0, size: int = 1) -> list[float]:
    """The loss of each step. The data of a step depends on nothing but its number; ranks share it among them."""
    losses = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(VOCABULARY, (BATCH,), generator=generator) % module.embedding.num_embeddings
        goals = torch.randn(BATCH, 3, generator=generator)
        share = slice(rank * BATCH // size, (rank + 1) * BATCH // size)
        loss = (module(tokens[share]) - goals[share]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        mean = loss.detach()
        if size > 1:
            dist.all_reduce(mean)
        losses.append(float(mean / size))
    return losses


def sharded(module: nn.Module, size: int, *shape: int) -> nn.Module:
    names = ("replica", "shard")[2 - max(len(shape), 1) :]
    mesh = init_device_mesh("cpu", shape or (size,), mesh_dim_names=names)
    for layer in (module.embedding, module.up):
        fully_shard(layer, mesh=mesh)
    return fully_shard(module, mesh=mesh)


def full(state: Any) -> Any:
    """Every tensor whole and plain."""
    if isinstance(state, dict):
        return {key: full(value) for key, value in state.items()}
    if isinstance(state, (list, tuple)):
        return [full(value) for value in state]
    return state.full_tensor() if hasattr(state, "full_tensor") else state


def same(checkpoint: Any, module: nn.Module, optimizer: Any) -> None:
    """Module and optimizer hold what is stored, to the bit."""
    names = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        names[tensor] = name
        assert torch.equal(full(tensor.detach()), checkpoint[f"model.{name}"].torch()), name
    for parameter, state in optimizer.state.items():
        for key, value in state.items():
            stored = checkpoint[f"optim.state.{names[parameter]}.{key}"].torch()
            assert torch.equal(full(value), stored), (names[parameter], key)
    assert len(optimizer.state) == len(names)


def begin(rank: int, size: int, folder: Path, shape: tuple[int, ...]) -> list[float]:
    """Trains six steps and saves after three."""
    module = sharded(net(0), size, *shape)
    optimizer = optimizer_for(module)
    train(module, optimizer, range(3), rank, size)
    with cairn.Checkpointer(folder) as checkpointer:
        checkpointer.save(3, {"model": module, "optim": optimizer, "rng": cairn.Rng()})
        return train(module, optimizer, range(3, 6), rank, size)


def go_on(rank: int, size: int, folder: Path, shape: tuple[int, ...], again: bool = False) -> list[float]:
    """Trains the last three steps from the checkpoint."""
    module = sharded(net(rank + 1), size, *shape)
    optimizer = optimizer_for(module)
    checkpointer = cairn.Checkpointer(folder)
    checkpointer.load(3, into={"model": module, "optim": optimizer})
    same(checkpointer.open(3), module, optimizer)
    losses = train(module, optimizer, range(3, 6), rank, size)
    if again:
        checkpointer.save(6, {"model": module, "optim": optimizer}, blocking=True)
    return losses


def fsdp2_goes_on_on_any_number_of_ranks(folder: Path) -> None:
    expected = launch(4, begin, folder, ())[0]
    assert launch(4, go_on, folder, ())[0] == expected, "the same layout gives the same bits"
    for size in (2, 3):
        torch.testing.assert_close(launch(size, go_on, folder, (), size == 3)[0], expected, **CLOSE)
    torch.testing.assert_close(launch(4, go_on, folder, (2, 2))[0], expected, **CLOSE)
    alone = net(5)
    optimizer = optimizer_for(alone)
    checkpointer = cairn.Checkpointer(folder)
    checkpointer.load(3, into={"model": alone, "optim": optimizer})
    torch.testing.assert_close(train(alone, optimizer, range(3, 6)), expected, **CLOSE)
    checkpointer.load(6, into={"model": alone, "optim": optimizer})
    same(checkpointer.open(6), alone, optimizer)


class Block(nn.Module):
    """Two layers that tensor parallelism cuts, by columns and by rows."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.up, self.down = nn.Linear(8, 14), nn.Linear(14, 3)

    def forward(self, inputs: Any) -> Any:
        return self.down(self.up(inputs).relu())


def grid(seed: int) -> tuple[nn.Module, Any]:
    """FSDP2 over tensor parallelism on 2 × 2 ranks: rows are cut by the inner axis first, and unevenly by the outer one."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    module = Block(seed)
    parallelize_module(module, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(module, mesh=mesh["dp"])
    return module, torch.optim.AdamW(module.parameters(), lr=0.05)


def train_block(module: nn.Module, optimizer: Any, steps: range, rank: int = 0, size: int = 1) -> list[float]:
    losses = []
    for step in steps:
        inputs = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(step))
        loss = module(inputs[rank * BATCH // size : (rank + 1) * BATCH // size]).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses


def fsdp2_over_tensor_parallelism_goes_on_in_one_process_and_back(folder: Path) -> None:
    def begin(rank: int, size: int) -> list[float]:
        module, optimizer = grid(0)
        assert "Strided" in str(module.up.weight.placements)
        train_block(module, optimizer, range(3), rank // 2, 2)
        with cairn.Checkpointer(folder) as checkpointer:
            checkpointer.save(3, {"model": module, "optim": optimizer})
            return train_block(module, optimizer, range(3, 6), rank // 2, 2)

    def go_back(rank: int, size: int) -> list[float]:
        module, optimizer = grid(rank + 1)
        checkpointer = cairn.Checkpointer(folder)
        checkpointer.load(4, into={"model": module, "optim": optimizer})
        same(checkpointer.open(4), module, optimizer)
        return train_block(module, optimizer, range(3, 6), rank // 2, 2)

    losses = launch(4, begin)
    module = Block(9)
    optimizer = torch.optim.AdamW(module.parameters())
    checkpointer = cairn.Checkpointer(folder)
    checkpointer.load(into={"model": module, "optim": optimizer})
    checkpointer.save(4, {"model": module, "optim": optimizer}, blocking=True)
    expected = [(one + other) / 2 for one, other in zip(losses[0], losses[2], strict=True)]
    torch.testing.assert_close(train_block(module, optimizer, range(3, 6)), expected, **CLOSE)
    assert launch(4, go_back) == losses, "the same layout gives the same bits"


def replicated_training_is_written_once_without_the_wrapper(folder: Path) -> None:
    def work(rank: int, size: int) -> None:
        module = nn.parallel.DistributedDataParallel(net(0, 5000))
        optimizer = optimizer_for(module)
        module(torch.arange(BATCH) + rank).square().mean().backward()
        optimizer.step()
        cairn.Checkpointer(folder).save(1, {"model": module, "optim": optimizer}, blocking=True)

    launch(3, work)
    module = net(1, 5000)
    optimizer = optimizer_for(module)
    cairn.Checkpointer(folder).load(into={"model": module, "optim": optimizer})
    held = 3 * sum(parameter.nbytes for parameter in module.parameters())
    written = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    assert held <= written < 1.1 * held, (held, written)


def experts(names: range) -> tuple[nn.ModuleDict, Any]:
    torch.manual_seed(0)
    module = nn.ModuleDict({str(name): nn.Linear(4, 4) for name in names})
    module["shared"] = nn.Linear(4, 4)
    return module, torch.optim.AdamW(module.parameters(), lr=0.1 * (1 + names[0]))


def each_rank_names_its_own_experts(folder: Path) -> None:
    def save(rank: int, size: int) -> None:
        module, optimizer = experts(range(rank * 2, rank * 2 + 2))
        with torch.no_grad():
            for name, expert in module.items():
                expert.weight.fill_(9 if name == "shared" else int(name))
        checkpointer = cairn.Checkpointer(folder, ranks="differ")
        head = {"w": torch.ones(3)} if rank == 2 else {}
        checkpointer.save(0, {"model": module, "optim": optimizer, "head": head}, blocking=True)
        for name, expert in module.items():
            if rank < 2 or name == "shared":  # Rank 2 has used no expert of its own, so their state does not exist.
                expert(torch.ones(4)).sum().backward()
        optimizer.step()
        checkpointer.save(1, {"model": module, "optim": optimizer, "stage": rank}, blocking=True)

    def load(rank: int, size: int) -> None:
        names = range(rank * 3, rank * 3 + 3)
        module, optimizer = experts(names)
        checkpointer = cairn.Checkpointer(folder, ranks="differ")
        checkpointer.load(0, into={"model": module, "head": {}})
        assert all((module[str(name)].weight == name).all() for name in names)
        try:
            checkpointer.load(1, into={"model": module, "optim": optimizer})
        except cairn.KeyMismatch as error:
            assert "stored groups, which are not alike" in str(error), error
        else:
            raise AssertionError("two learning rates became one")

    launch(3, save)
    assert cairn.open(folder, step=0).load({"head": {"w": torch.zeros(3)}}).state["head"]["w"].tolist() == [1, 1, 1]
    checkpoint = cairn.open(folder, step=1)
    assert {f"model.{name}.weight" for name in range(6)} <= set(checkpoint)
    assert "optim.state.3.weight.exp_avg" in checkpoint and "optim.state.4.weight.exp_avg" not in checkpoint
    launch(2, load)
    same_ranks(folder)


def same_ranks(folder: Path) -> None:
    """Optimizers of single ranks come back with their own groups."""

    def load(rank: int, size: int) -> None:
        module, optimizer = experts(range(rank * 2, rank * 2 + 2))
        optimizer.param_groups[0]["lr"] = 7.0
        into = {"model": module, "optim": optimizer, "stage": -1}
        cairn.Checkpointer(folder, ranks="differ").load(1, into=into)
        assert optimizer.param_groups[0]["lr"] == 0.1 * (1 + rank * 2)
        used = rank < 2
        assert len(optimizer.state) == (6 if used else 2), len(optimizer.state)

    launch(3, load)


def stacked_experts_are_cut_like_any_tensor(folder: Path) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    stack = torch.arange(6 * 4 * 4.0).reshape(6, 4, 4)

    def save(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("ep",))
        cairn.Checkpointer(folder).save(1, {"experts": distribute_tensor(stack, mesh, [Shard(0)])}, blocking=True)

    def load(rank: int, size: int) -> None:
        mesh = init_device_mesh("cpu", (size,), mesh_dim_names=("ep",))
        into = distribute_tensor(torch.zeros_like(stack), mesh, [Shard(0)])
        cairn.Checkpointer(folder).load(into={"experts": into})
        assert torch.equal(into.to_local(), stack.chunk(size)[rank])

    launch(4, save)
    launch(2, load)


def random_numbers_go_on_on_each_rank(folder: Path) -> None:
    def save(rank: int, size: int) -> Any:
        torch.manual_seed(rank)
        torch.rand(5)
        cairn.Checkpointer(folder).save(1, {"rng": cairn.Rng(), "w": torch.ones(1)}, blocking=True)
        return torch.rand(3).tolist()

    def load(rank: int, size: int) -> Any:
        cairn.Checkpointer(folder).load(into={"rng": cairn.Rng(), "w": torch.zeros(1)})
        return torch.rand(3).tolist()

    expected = launch(3, save)
    assert len(set(map(tuple, expected))) == 3
    assert launch(3, load) == expected
    assert launch(2, load) == expected[:2]
    assert launch(4, load)[:3] == expected


CHECKS = {
    check.__name__: check
    for check in (
        fsdp2_goes_on_on_any_number_of_ranks,
        fsdp2_over_tensor_parallelism_goes_on_in_one_process_and_back,
        replicated_training_is_written_once_without_the_wrapper,
        each_rank_names_its_own_experts,
        stacked_experts_are_cut_like_any_tensor,
        random_numbers_go_on_on_each_rank,
    )
}

if __name__ == "__main__":
    main(CHECKS)
