"""Single files that `cairn convert` writes for torch and Paddle, opened by stock torch and Paddle."""

import subprocess
import sys
import zipfile

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from test_torch_files import DTYPES, random_tensor

PROGRAM = """
import sys
import numpy as np
import paddle


class Net(paddle.nn.Layer):
    def __init__(self):
        super().__init__()
        self.last = paddle.nn.Linear(4, 2)
        self.first = paddle.nn.Linear(3, 4)
        self.norm = paddle.nn.BatchNorm1D(2)

    def forward(self, x):
        return self.norm(self.last(paddle.nn.functional.relu(self.first(x))))


def outputs(path):
    x = np.linspace(-1, 1, 6, dtype="float32").reshape(2, 3)
    translated = paddle.jit.load(path)(paddle.to_tensor(x)).numpy()
    predictor = paddle.inference.create_predictor(paddle.inference.Config(path + ".json", path + ".pdiparams"))
    predictor.get_input_handle(predictor.get_input_names()[0]).copy_from_cpu(x)
    predictor.run()
    inferred = predictor.get_output_handle(predictor.get_output_names()[0]).copy_to_cpu()
    np.testing.assert_allclose(translated, inferred, rtol=1e-5, atol=1e-6)
    return translated


command, *paths = sys.argv[1:]
if command == "save":
    paddle.seed(1)
    net = Net()
    net.eval()
    paddle.jit.save(net, paths[0], input_spec=[paddle.static.InputSpec([None, 3], "float32")])
    paddle.save(net.state_dict(), paths[0] + ".pdparams")
elif command == "compare":
    # The bias of the last layer grew by 10, and the norm divides by the root of 1 + 1e-5.
    difference = outputs(paths[1]) - outputs(paths[0])
    np.testing.assert_allclose(difference, 10 / np.sqrt(1 + 1e-5), rtol=1e-5)
elif command == "load":
    old, new = (paddle.load(path) for path in paths)
    for name, tensor in old.items():
        assert tensor.dtype == new[name].dtype and bool((tensor == new[name]).all()), name
    assert Net().set_state_dict(new) == ([], [])
"""


@pytest.fixture
def paddle(tmp_path):
    """Runs Paddle in a process of its own: it does not like to share one with torch."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)

    def run(*arguments):
        done = subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stdout + done.stderr

    return run


def test_a_torch_file_is_what_torch_loads(cairn, tmp_path):
    torch.manual_seed(5)
    state = {name: random_tensor(name, 5, 6) for name in DTYPES}
    state |= {"turned": torch.randn(7, 9).t(), "scalar": torch.tensor(3.5), "empty": torch.zeros(0, 4)}
    state |= {"large": torch.randn(3_000_000), "step": 7, "settings": {"lr": [0.1, None, True, "x"], "betas": (0.9, 0.95)}}
    torch.save(state, tmp_path / "source.pt")
    cairn.run("convert", tmp_path / "source.pt", tmp_path / "target.pt", "--to", "torch")
    for mmap in (False, True):
        found = torch.load(tmp_path / "target.pt", weights_only=True, mmap=mmap)
        assert set(found) == set(state)
        for name, value in state.items():
            if not isinstance(value, torch.Tensor):
                assert found[name] == value
                continue
            assert (found[name].dtype, found[name].shape) == (value.dtype, value.shape)
            assert bytes(found[name].contiguous().view(-1).view(torch.uint8)) == bytes(value.contiguous().view(-1).view(torch.uint8))
    assert zipfile.ZipFile(tmp_path / "target.pt").testzip() is None


def test_a_paddle_file_is_what_paddle_loads(cairn, paddle, tmp_path):
    paddle("save", tmp_path / "net")
    cairn.run("convert", tmp_path / "net.pdparams", tmp_path / "model", "--to", "hf")
    cairn.run("convert", tmp_path / "model", tmp_path / "target.pdparams", "--to", "paddle")
    paddle("load", tmp_path / "net.pdparams", tmp_path / "target.pdparams")


def test_parameters_of_a_program_go_to_safetensors_and_back(cairn, paddle, tmp_path):
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    paddle("save", tmp_path / "old/net")
    cairn.run("convert", tmp_path / "old/net.pdiparams", tmp_path / "model", "--to", "hf")
    tensors = load_file(tmp_path / "model/model.safetensors")
    tensors["linear_0.b_0"] = tensors["linear_0.b_0"] + np.float32(10)
    save_file(tensors, tmp_path / "model/model.safetensors")
    cairn.run("convert", tmp_path / "model", tmp_path / "new/changed.pdiparams", "--to", "pdiparams")
    paddle("compare", tmp_path / "old/net", tmp_path / "new/changed")
    cairn.run("convert", tmp_path / "old/net.pdiparams", tmp_path / "new/same.pdiparams", "--to", "pdiparams")
    assert (tmp_path / "new/same.pdiparams").read_bytes() == (tmp_path / "old/net.pdiparams").read_bytes()


def test_tensors_that_are_not_those_of_the_program_are_refused(cairn, paddle, tmp_path):
    paddle("save", tmp_path / "net")
    cairn.run("convert", tmp_path / "net.pdiparams", tmp_path / "model", "--to", "hf")
    tensors = load_file(tmp_path / "model/model.safetensors")
    tensors["linear_0.b_0"] = tensors["linear_0.b_0"].astype(np.float64)
    save_file(tensors, tmp_path / "model/model.safetensors")
    done = cairn.run("convert", tmp_path / "model", tmp_path / "new.pdiparams", "--to", "pdiparams", exit_code=2)
    assert "`linear_0.b_0` is f64[2], in `net.json` it is f32[2]" in done.stderr
    assert not (tmp_path / "new.pdiparams").exists()
