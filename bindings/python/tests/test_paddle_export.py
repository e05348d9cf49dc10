"""What is written for Paddle is read by Paddle's own tools, and by us."""

from __future__ import annotations

import json
import warnings

import pytest

import cairn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    paddle = pytest.importorskip("paddle")
from cairn.paddle import export_unified

paddle.set_device("cpu")


@pytest.fixture
def saved(tmp_path):
    """A trained layer with master weights, and its checkpoint."""
    paddle.seed(3)
    net = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Linear(3, 2))
    net[1].bfloat16()
    schedule = paddle.optimizer.lr.StepDecay(0.1, 2)
    optimizer = paddle.optimizer.AdamW(schedule, parameters=net.parameters(), multi_precision=True)
    block = paddle.base.framework.default_main_program().global_block()
    optimizer._create_accumulators(block, net.parameters())
    for tensors in optimizer._accumulators.values():
        for tensor in tensors.values():
            tensor.copy_(paddle.rand(tensor.shape), True)
    schedule.step()
    state = {"model": net, "optim": optimizer}
    cairn.Checkpointer(tmp_path / "run").save(5, state, assets={"config.json": b"{}"}, blocking=True)
    return cairn.open(tmp_path / "run"), net, optimizer


def loaded(folder, kind):
    """All tensors of a kind, read with the safetensors package as Paddle's trainers do."""
    from safetensors.paddle import load_file

    index = json.loads((folder / f"{kind}.safetensors.index.json").read_text())
    tensors = {}
    for file in sorted(set(index["weight_map"].values())):
        tensors |= load_file(folder / file)
    assert tensors.keys() == index["weight_map"].keys()
    assert index["metadata"]["total_size"] == sum(t.size * t.element_size() for t in tensors.values())
    return tensors


def same(one, other) -> bool:
    return one.dtype == other.dtype and one.numpy().tobytes() == other.numpy().tobytes()


@pytest.mark.parametrize("max_shard_size", [1, 5_000_000_000])
def test_a_unified_checkpoint_is_read_by_safetensors_and_paddle(tmp_path, saved, max_shard_size):
    checkpoint, net, optimizer = saved
    files = export_unified(checkpoint, tmp_path / "out", max_shard_size=max_shard_size)
    assert "config.json" in files and not list(tmp_path.glob(".out-*"))
    model = loaded(tmp_path / "out", "model")
    assert all(same(model[name], tensor) for name, tensor in net.state_dict().items())
    masters = loaded(tmp_path / "out", "master_weights")
    assert masters.keys() == {"1.weight", "1.bias"}
    accumulators = loaded(tmp_path / "out", "optimizer")
    weight = optimizer._accumulators["moment1"][net[0].weight.name]
    assert same(accumulators["0.weight/moment1_0"], weight)
    assert "1.bias/beta2_pow_acc_0" in accumulators
    assert json.loads((tmp_path / "out/optimizer.safetensors.index.json").read_text())["master_weights"] is True
    assert paddle.load(str(tmp_path / "out/scheduler.pdparams")) == optimizer._learning_rate.state_dict()


def test_an_export_never_writes_over_anything(tmp_path, saved):
    (tmp_path / "out").mkdir()
    with pytest.raises(cairn.StateError, match="exists already"):
        export_unified(saved[0], tmp_path / "out")


def test_an_export_of_a_checkpoint_without_the_layer_is_refused(tmp_path, saved):
    with pytest.raises(cairn.StateError, match="no tensors under `net`"):
        export_unified(saved[0], tmp_path / "out", model="net")
    assert not (tmp_path / "out").exists()


def test_a_hugging_face_export_is_read_by_paddle(tmp_path, saved):
    from safetensors.paddle import load_file

    checkpoint, net, _ = saved
    (file,) = checkpoint.export_hf(tmp_path / "hf", [name for name in checkpoint if name.startswith("model.")])
    tensors = load_file(tmp_path / "hf" / file)
    assert all(same(tensors[f"model.{name}"], tensor) for name, tensor in net.state_dict().items())


def test_a_unified_checkpoint_is_loaded_into_a_fresh_layer_and_optimizer(tmp_path, saved):
    checkpoint, net, optimizer = saved
    export_unified(checkpoint, tmp_path / "out")
    fresh = paddle.nn.Sequential(paddle.nn.Linear(4, 3), paddle.nn.Linear(3, 2))
    fresh[1].bfloat16()
    rate = paddle.optimizer.lr.StepDecay(0.1, 2)
    restored = paddle.optimizer.AdamW(rate, parameters=fresh.parameters(), multi_precision=True)
    cairn.open(tmp_path / "out").load({"model": fresh, "optim": restored})
    assert all(same(fresh.state_dict()[name], tensor) for name, tensor in net.state_dict().items())
    for kind, tensors in optimizer._accumulators.items():
        for old, new in [(net[0].weight, fresh[0].weight), (net[0].bias, fresh[0].bias)]:
            assert same(restored._accumulators[kind][new.name], tensors[old.name])
    assert rate.last_epoch == 1
