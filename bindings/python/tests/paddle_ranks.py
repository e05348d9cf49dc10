"""What each of two ranks does for test_paddle_ranks.py: save split tensors, check what is stored, load other splits."""

from __future__ import annotations

import sys
import warnings

import numpy as np

import cairn

warnings.simplefilter("ignore")
import paddle
import paddle.distributed as dist
from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeight

WHOLE = np.arange(30, dtype=np.float32).reshape(5, 6)


def tensors(mesh, rank: int, placements, cut: int, fill: float) -> dict:
    """A tensor split by placements, and one whose flat elements are cut in two at ``cut``."""
    full = paddle.to_tensor(WHOLE * fill)
    pieces = [slice(0, cut), slice(cut, 30)]
    flat = full.reshape([-1])[pieces[rank]].clone()
    return {
        "split": dist.shard_tensor(full, mesh, placements),
        "flat": ShardedWeight("flat", flat, (5, 6), (5, 6), (0, 0), True, pieces[rank]),
        "same": full.clone(),
    }


def check_tensors(url: str, mesh, rank: int) -> None:
    checkpointer = cairn.Checkpointer(url)
    assert checkpointer.world.size == 2 and checkpointer.world.launcher == "paddle.distributed"
    checkpointer.save(1, tensors(mesh, rank, [dist.Shard(0)], 7, 1.0), blocking=True)
    stored = cairn.open(url)
    assert stored.placement("split") == "f32[5@tp, 6]", stored.placement("split")
    for name in ("split", "flat", "same"):
        assert np.array_equal(stored[name][...], WHOLE), name
    into = tensors(mesh, rank, [dist.Shard(1)], 20, 0.0)
    checkpointer.load(into=into)
    assert np.array_equal(into["split"]._local_value().numpy(), WHOLE[:, 3 * rank : 3 * rank + 3])
    assert np.array_equal(into["flat"].local_tensor.numpy(), WHOLE.reshape(-1)[into["flat"].flattened_range])


def trained(mesh, rank: int, axis: int, steps: int):
    """A layer split along ``axis`` whose optimizer has stepped."""
    paddle.seed(7)
    layer = paddle.nn.Linear(4, 6)
    placed = [dist.Shard(axis)]
    layer.weight = dist.shard_tensor(layer.weight, mesh, placed, stop_gradient=False)
    layer.bias = dist.shard_tensor(layer.bias, mesh, [dist.Replicate()], stop_gradient=False)
    optimizer = dist.shard_optimizer(paddle.optimizer.AdamW(0.1, parameters=layer.parameters()))
    for _ in range(steps):
        for parameter in layer.parameters():
            local = paddle.full(parameter.shape, 0.5)
            parameter.grad = dist.shard_tensor(local, mesh, parameter.placements)
        optimizer.step()
        optimizer.clear_grad()
    return {"model": layer, "optim": optimizer}


def check_training(url: str, mesh, rank: int) -> None:
    checkpointer = cairn.Checkpointer(url)
    state = trained(mesh, rank, axis=0, steps=2)
    checkpointer.save(1, state, blocking=True)
    stored = cairn.open(url)
    assert stored.placement("optim.state.weight.moment1_0") == "f32[4@tp, 6]"
    other = trained(mesh, rank, axis=1, steps=0)
    checkpointer.load(into=other)
    moments = other["optim"]._accumulators["moment1"]
    moment = moments[other["model"].weight.name]
    wanted = stored["optim.state.weight.moment1_0"][...]
    assert moment.is_dist() and moment.placements == [dist.Shard(1)], moment
    assert np.array_equal(moment._local_value().numpy(), wanted[:, 3 * rank : 3 * rank + 3])
    assert wanted.any()


def check_tensor_parallel_layers(url: str, rank: int) -> None:
    from paddle.distributed import fleet

    strategy = fleet.DistributedStrategy()
    strategy.hybrid_configs = {"dp_degree": 1, "mp_degree": 2, "pp_degree": 1}
    fleet.init(is_collective=True, strategy=strategy)
    layer = fleet.meta_parallel.ColumnParallelLinear(4, 6, gather_output=False, has_bias=True)
    layer.weight.set_value(paddle.to_tensor(np.arange(12, dtype=np.float32).reshape(4, 3) + 100 * rank))
    optimizer = paddle.optimizer.Momentum(0.1, parameters=layer.parameters())
    for parameter in layer.parameters():
        parameter.grad = paddle.full(parameter.shape, float(rank + 1))
    optimizer.step()
    wrapped = paddle.DataParallel(layer)
    cairn.Checkpointer(url).save(1, {"model": wrapped, "optim": optimizer}, blocking=True)
    stored = cairn.open(url)
    assert stored["model.weight"].shape == (4, 6)
    assert np.array_equal(stored["model.weight"][:, 3 * rank : 3 * rank + 3], layer.weight.numpy())
    velocity = stored["optim.state.weight.velocity_0"][...]
    assert velocity.shape == (4, 6) and set(velocity[0]) == {1.0, 2.0}
    try:
        cairn.Checkpointer(url).save(2, {"weight": layer.weight})
    except cairn.StateError as error:
        assert "one rank's slice" in str(error)
    else:
        raise AssertionError("a slice without a place was saved")


def main(folder: str) -> None:
    paddle.set_device("cpu")
    dist.init_parallel_env()
    rank = dist.get_rank()
    mesh = dist.ProcessMesh([0, 1], dim_names=["tp"])
    check_tensors(f"{folder}/tensors", mesh, rank)
    check_training(f"{folder}/training", mesh, rank)
    check_tensor_parallel_layers(f"{folder}/layers", rank)
    dist.barrier()
    print(f"rank {rank} is content")


if __name__ == "__main__":
    main(sys.argv[1])
