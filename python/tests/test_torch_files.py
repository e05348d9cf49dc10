"""What torch and Megatron wrote, opened by `cairn`: bit for bit, and nothing in it is run."""

import argparse
import collections
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import format_utils

from programs.save_with_torch import whole_tensors

PROGRAMS = Path(__file__).parent / "programs"
DTYPES = """bool uint8 int8 int16 uint16 int32 uint32 int64 uint64 float16 bfloat16 float32 float64 complex64
    float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu""".split()


def random_tensor(name, *shape):
    """Every bit pattern of a type."""
    dtype = getattr(torch, name)
    width = torch.empty(0, dtype=dtype).element_size()
    noise = torch.randint(0, 256, (*shape[:-1], shape[-1] * width), dtype=torch.uint8)
    return noise > 127 if name == "bool" else noise.view(dtype)


def random_state():
    torch.manual_seed(3)
    weight = torch.nn.Parameter(torch.randn(3, 2))
    weight.tensor_parallel = True
    return {
        "types": {name: random_tensor(name, 5, 6) for name in DTYPES},
        "turned": torch.randn(7, 9).t(),
        "far_apart": torch.randn(8, 40_000).t(),
        "part": torch.randn(10, 10)[2:5, 3:8],
        "repeated": torch.randn(3, 1).expand(3, 4),
        "permuted": torch.randn(2, 3, 4).permute(2, 0, 1),
        "scalar": torch.tensor(3.5),
        "empty": torch.zeros(0, 4),
        "weight": weight,
        "tied": weight,
        "list": [torch.ones(2), {"deep": torch.ones(3, dtype=torch.int32)}],
        "step": 7,
        "settings": {"lr": 0.1, "betas": (0.9, 0.95)},
    }


def flat_tensors(tree, name=""):
    if isinstance(tree, torch.Tensor):
        return {name: tree}
    pairs = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else []
    found = {}
    for key, value in pairs:
        found |= flat_tensors(value, f"{name}.{key}" if name else str(key))
    return found


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def assert_holds(cairn, source, tensors, tmp_path):
    """Everything in `source` comes out of `cairn convert` as it went in."""
    target = tmp_path / "converted"
    shutil.rmtree(target, ignore_errors=True)
    cairn.run("convert", source, target, "--to", "hf")
    found = load_file(target / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert torch.equal(bits(found[name]), bits(tensor)), name


def run_program(*arguments, timeout=120):
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, *map(str, arguments)], check=True, timeout=timeout, env=environment)


@pytest.mark.parametrize("name", ["state.pt", "state.bin", "state.anything"])
def test_every_type_and_view_in_a_file_is_read_bit_for_bit(cairn, tmp_path, name):
    state = random_state()
    torch.save(state, tmp_path / name)
    assert_holds(cairn, tmp_path / name, flat_tensors(state), tmp_path)
    summary = cairn.json("inspect", tmp_path / name)
    assert summary["aliases"] == {"tied": "weight"}
    assert summary["values"] == {"step": 7, "settings": {"lr": 0.1, "betas": {"$tuple": [0.9, 0.95]}}}


def test_every_type_and_view_in_a_folder_is_read_bit_for_bit(cairn, tmp_path):
    state = random_state()
    dcp.save(state, checkpoint_id=tmp_path / "folder", no_dist=True)
    assert_holds(cairn, tmp_path / "folder", flat_tensors(state), tmp_path)
    values = cairn.json("inspect", tmp_path / "folder")["values"]
    assert values == {"step": 7, "settings.lr": 0.1, "settings.betas": {"$tuple": [0.9, 0.95]}}


def test_plain_values_are_tagged(cairn, tmp_path):
    values = {
        "big": 2**70,
        "negative": -(2**70),
        "nan": float("nan"),
        "bytes": b"\x00\xff",
        "set": {1},
        "complex": 1 + 2j,
        "numbers": {1: 2},
        "array": np.arange(3, dtype="u4"),
        "scalar": np.float32(1),
        "namespace": argparse.Namespace(a=None),
        "counter": collections.Counter("aab"),
        "path": Path("a/b"),
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
    }
    torch.save(values, tmp_path / "values.pt")
    assert cairn.json("inspect", tmp_path / "values.pt")["values"] == {
        "big": {"$int": str(2**70)},
        "negative": {"$int": str(-(2**70))},
        "nan": {"$float": "nan"},
        "bytes": {"$bytes": "AP8="},
        "set": {"$set": [1]},
        "complex": {"$complex": [1.0, 2.0]},
        "numbers": {"$dict": [[1, 2]]},
        "array": {"$ndarray": {"dtype": "<u4", "shape": [3], "data": "AAAAAAEAAAACAAAA"}},
        "scalar": {"$ndarray": {"dtype": "<f4", "shape": [], "data": "AACAPw=="}},
        "namespace": {"a": None},
        "counter": {"a": 2, "b": 1},
        "path": "a/b",
        "size": {"$tuple": [2, 3]},
        "dtype": {"$opaque": "torch.bfloat16"},
    }


def test_a_model_folder_with_torch_files_opens(cairn, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    tensors = {"a": torch.randn(3), "b": torch.randn(2, 2)}
    names = {"a": "pytorch_model-00001-of-00002.bin", "b": "pytorch_model-00002-of-00002.bin"}
    for name, file in names.items():
        torch.save({name: tensors[name]}, folder / file)
    index = folder / "pytorch_model.bin.index.json"
    index.write_text('{"weight_map": %s}' % str(names).replace("'", '"'))
    assert_holds(cairn, folder, tensors, tmp_path)
    index.unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert_holds(cairn, folder, tensors, tmp_path)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("torch")
    run_program("-m", "torch.distributed.run", "--nproc-per-node=4", PROGRAMS / "save_with_torch.py", folder)
    return folder


@pytest.mark.parametrize("kind", ["plain", "threads", "items", "alone", "safetensors", "hf"])
def test_what_four_ranks_saved_is_whole(cairn, folders, tmp_path, kind):
    tensors = {f"model.{name}": tensor for name, tensor in whole_tensors().items()}
    assert_holds(cairn, folders / kind, tensors, tmp_path)
    if kind != "hf":
        assert cairn.json("inspect", folders / kind)["values"] == {"step": 11, "groups.0.lr": 0.5}


def test_a_save_that_never_finished_says_so(cairn, folders, tmp_path):
    for kind, missing in [("plain", ".metadata"), ("alone", "__2.metadata")]:
        folder = shutil.copytree(folders / kind, tmp_path / kind)
        (folder / missing).unlink()
        done = cairn.run("inspect", folder, exit_code=4)
        assert "never finished" in done.stderr and missing in done.stderr


def test_a_file_cut_short_is_noticed_before_anything_is_loaded(cairn, folders, tmp_path):
    folder = shutil.copytree(folders / "plain", tmp_path / "cut")
    file = folder / "__1_0.distcp"
    file.write_bytes(file.read_bytes()[:-100])
    assert "`__1_0.distcp` is damaged" in cairn.run("inspect", folder, exit_code=3).stderr
    file.unlink()
    assert "the file is missing" in cairn.run("inspect", folder, exit_code=3).stderr


def test_a_real_megatron_run_opens(cairn, tmp_path):
    run_program(PROGRAMS / "save_with_megatron.py", tmp_path / "run")
    for place in ["run", "run/iter_0000500"]:
        summary = cairn.json("inspect", tmp_path / place)
        assert summary["format"] == "megatron"
        assert summary["values"]["iteration"] == 500
        assert summary["values"]["args"] == {
            "lr": 0.1,
            "backend": {"$opaque": "megatron.core.transformer.enums.AttnBackend"},
            "dtype": {"$opaque": "torch.bfloat16"},
        }
        target = tmp_path / place.replace("/", "-")
        cairn.run("convert", tmp_path / place, target.with_suffix(".hf"), "--to", "hf", "--keys", "decoder.*")
        found = load_file(target.with_suffix(".hf") / "model.safetensors")
        assert torch.equal(found["decoder.w"], torch.arange(12.0).reshape(3, 4))


def test_names_that_meet_once_they_are_joined_are_refused(cairn, tmp_path):
    torch.save({"a.b": torch.ones(1), "a": {"b": torch.ones(2)}}, tmp_path / "state.pt")
    assert "are called `a.b`" in cairn.run("inspect", tmp_path / "state.pt", exit_code=2).stderr


def test_a_file_of_an_old_torch_is_refused_with_advice(cairn, tmp_path):
    torch.save({"a": torch.ones(2)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    done = cairn.run("inspect", tmp_path / "old.pt", exit_code=2)
    assert "before version 1.6" in done.stderr and "newer torch" in done.stderr


class Hostile:
    """Makes a file when Python unpickles it."""

    def __init__(self, how, marker):
        self.how, self.marker = how, marker

    def __reduce__(self):
        if self.how == "system":
            return os.system, (f"touch {self.marker}",)
        if self.how == "eval":
            return eval, (f"open({str(self.marker)!r}, 'w')",)
        return getattr, ("text", "upper")


def hostile_archive(path, state):
    """A torch archive with a pickle of Python's own making."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(state, protocol=2))
        archive.writestr("archive/byteorder", "little")


@pytest.mark.parametrize("how, name", [("system", "posix.system"), ("eval", "eval"), ("getattr", "getattr")])
def test_hostile_pickles_are_refused_by_name_and_not_run(cairn, tmp_path, how, name):
    marker = tmp_path / "marker"
    hostile = {"a": [Hostile(how, marker)]}
    hostile_archive(tmp_path / "evil.pt", hostile)
    folder = tmp_path / "evil"
    dcp.save({"a": torch.ones(2)}, checkpoint_id=folder, no_dist=True)
    (folder / ".metadata").write_bytes(pickle.dumps(hostile))
    run = tmp_path / "megatron"
    dcp.save({"a": torch.ones(2)}, checkpoint_id=run, no_dist=True)
    hostile_archive(run / "common.pt", hostile)
    (run / "metadata.json").write_text('{"sharded_backend": "torch_dist"}')
    for place in [tmp_path / "evil.pt", folder, run]:
        done = cairn.run("inspect", place, exit_code=1)
        assert f"{name}`" in done.stderr and "nothing of it was run" in done.stderr
    assert not marker.exists()


def test_a_hostile_value_in_a_folder_is_only_noted(cairn, tmp_path):
    state = {"a": torch.ones(2), "value": collections.deque([1])}
    dcp.save(state | {"odd": argparse.ArgumentError}, checkpoint_id=tmp_path / "folder", no_dist=True)
    values = cairn.json("inspect", tmp_path / "folder")["values"]
    assert values == {"value": [1], "odd": {"$opaque": "argparse.ArgumentError"}}


def test_stock_torch_loads_what_was_exported(cairn, tmp_path):
    state = random_state()
    values = {"big": 2**70, "bytes": b"\x00\xff", "betas": (1, 2.5), "names": {"a", "b"}, "array": np.arange(6.0).reshape(2, 3)}
    torch.save(state | {"values": values}, tmp_path / "state.pt")
    run_of_one = tmp_path / "run"
    cairn.run("reshard", tmp_path / "state.pt", run_of_one, "--mesh", "dp=2")
    for source, size in [(tmp_path / "state.pt", "5GB"), (run_of_one, "100")]:
        target = tmp_path / f"dcp-{size}"
        report = cairn.json("convert", source, target, "--to", "dcp", "--shard-size", size)
        assert (len(report["files"]) > 1) == (size == "100")
        tensors = flat_tensors(state)
        loaded = {name: torch.zeros_like(tensor.contiguous()) for name, tensor in tensors.items()}
        loaded |= {"step": 0, "values": None, "settings": {}}
        dcp.load(loaded, checkpoint_id=target, no_dist=True)
        for name, tensor in tensors.items():
            assert torch.equal(bits(loaded[name]), bits(tensor)), name
        assert loaded["step"] == 7 and loaded["settings"] == state["settings"]
        assert np.array_equal(loaded["values"].pop("array"), values["array"])
        assert loaded["values"] == {name: value for name, value in values.items() if name != "array"}
        assert_holds(cairn, target, tensors, tmp_path)


def test_torch_turns_an_exported_folder_into_a_file(cairn, tmp_path):
    tensors = {"model.w": torch.randn(4, 3), "model.b": torch.randn(3)}
    torch.save(tensors, tmp_path / "state.pt")
    cairn.run("convert", tmp_path / "state.pt", tmp_path / "dcp", "--to", "dcp")
    format_utils.dcp_to_torch_save(tmp_path / "dcp", tmp_path / "back.pt")
    back = torch.load(tmp_path / "back.pt")
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())
