"""Files of Paddle's own making, opened: every kind, with the values Paddle itself reads, and attacks that must not run."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest

import cairn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    paddle = pytest.importorskip("paddle")
import paddle.distributed as dist

paddle.set_device("cpu")

TWO_RANKS = Path(__file__).resolve().parents[3] / "crates/formats/fixtures/paddle"


class Net(paddle.nn.Layer):
    def __init__(self) -> None:
        super().__init__()
        self.linear = paddle.nn.Linear(200, 100)
        self.norm = paddle.nn.BatchNorm1D(100)

    def forward(self, x):
        return self.norm(self.linear(x))


def same(lazy, tensor) -> bool:
    return lazy.shape == tuple(tensor.shape) and bytes(lazy.read_bytes()) == tensor.numpy().tobytes()


@pytest.mark.parametrize("protocol", [3, 4])
def test_a_state_dict_is_read_as_paddle_reads_it(tmp_path, protocol):
    net = Net()
    half = {name: tensor.astype("bfloat16") for name, tensor in net.state_dict().items()}
    for state, file in [(net.state_dict(), tmp_path / "a.pdparams"), (half, tmp_path / "b.pdparams")]:
        paddle.save(state, str(file), protocol=protocol)
        opened, wanted = cairn.open(file), paddle.load(str(file))
        assert opened.keys() == wanted.keys()
        assert all(same(opened[name], tensor) for name, tensor in wanted.items())
    assert opened["norm.weight"].cairn_dtype == "bf16"


def test_a_layer_is_filled_from_its_file(tmp_path):
    net, other = Net(), Net()
    paddle.save(net.state_dict(), str(tmp_path / "net.pdparams"))
    cairn.open(tmp_path / "net.pdparams").load(other)
    assert all(other.state_dict()[name].equal_all(tensor) for name, tensor in net.state_dict().items())


def test_an_optimizer_is_read_with_its_schedule(tmp_path):
    net = Net()
    schedule = paddle.optimizer.lr.StepDecay(0.1, 2)
    optimizer = paddle.optimizer.Adam(schedule, parameters=net.parameters())
    net(paddle.ones([4, 200])).sum().backward()
    optimizer.step()
    paddle.save(optimizer.state_dict(), str(tmp_path / "net.pdopt"))
    opened = cairn.open(tmp_path / "net.pdopt")
    tensors = {name: tensor for name, tensor in optimizer.state_dict().items() if name != "LR_Scheduler"}
    assert opened.keys() == tensors.keys()
    assert all(same(opened[name], tensor) for name, tensor in tensors.items())
    assert opened.plain["LR_Scheduler"] == schedule.state_dict()


def test_a_program_saved_for_inference_is_read_by_name(tmp_path):
    net = Net()
    paddle.jit.save(net.eval(), str(tmp_path / "net"), input_spec=[paddle.static.InputSpec([None, 200], "float32")])
    opened = cairn.open(tmp_path / "net.pdiparams")
    assert len(opened) == 6
    assert all(same(opened[tensor.name], tensor) for tensor in net.state_dict().values())


def test_a_distributed_checkpoint_is_read_whole(tmp_path):
    state = {"w": paddle.rand([70, 300]), "nested": {"b": paddle.rand([5]).astype("bfloat16")}}
    dist.save_state_dict(state, str(tmp_path / "flex"))
    opened = cairn.open(tmp_path / "flex")
    assert same(opened["w"], state["w"]) and same(opened["nested.b"], state["nested"]["b"])
    for folder in ("flex", "flex_safetensors"):
        opened = cairn.open(TWO_RANKS / folder)
        for name in opened.keys() - {"nested.same"}:
            assert np.array_equal(opened[name][...], np.arange(15).reshape(5, 3))
            assert opened[name][3, 1:].tolist() == [10, 11]


class Attack:
    """A pickle that leaves a mark when it is run."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return (os.mkdir, (str(self.mark),))


@pytest.mark.parametrize("name", ["a.pdparams", "a.pdopt", "flex/0.metadata", "flex/0_0.distcp"])
def test_code_in_a_file_is_refused_and_not_run(tmp_path, name):
    mark = tmp_path / "mark"
    dist.save_state_dict({"w": paddle.ones([2])}, str(tmp_path / "flex"))
    attack = pickle.dumps({"w": Attack(mark)})
    (tmp_path / name).write_bytes(attack)
    with pytest.raises(cairn.FormatError, match="posix.mkdir"):
        cairn.open(tmp_path / name if "flex" not in name else tmp_path / "flex")
    assert not mark.exists()
    pickle.loads(attack)
    assert mark.exists(), "the attack works where pickles are run"
