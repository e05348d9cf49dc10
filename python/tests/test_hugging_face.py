"""Real Hugging Face models through `cairn` and back: the same weights, the same logits."""

import shutil

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from cairn_reader import newest_step, read_step
from stock_safetensors import assert_stock_safetensors_reads

TENSOR_PARALLEL = [
    "*.embed_tokens.weight=tp,-",
    "*.q_proj.weight=tp,-",
    "*.k_proj.weight=tp,-",
    "*.v_proj.weight=tp,-",
    "*.o_proj.weight=-,tp",
    "*.gate_proj.weight=tp,-",
    "*.up_proj.weight=tp,-",
    "*.down_proj.weight=-,tp",
]
TOKENS = torch.tensor([[1, 5, 9, 50, 3]])


def make_llama(folder, dtype=torch.float32, max_shard_size="5GB", tied=False):
    """A tiny Llama with random weights, as `save_pretrained` writes it."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=51,  # Does not divide by anything.
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        dtype=dtype,
    )
    model = LlamaForCausalLM(config).to(dtype).eval()
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    return model


def assert_same(folder, model):
    """The folder loads with stock transformers and gives the same weights and logits."""
    loaded = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    expected, found = model.state_dict(), loaded.state_dict()
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert found[name].dtype == weight.dtype, name
        assert torch.equal(found[name], weight), name
    with torch.no_grad():
        assert torch.equal(loaded(TOKENS).logits, model(TOKENS).logits)


def reshard(cairn, source, target, mesh, rules=()):
    """Writes a checkpoint and returns the folder of its step."""
    shards = [argument for rule in rules for argument in ("--shard", rule)]
    cairn.run("reshard", source, target, "--mesh", mesh, *shards)
    return newest_step(target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("max_shard_size", ["5GB", "4KB"])
def test_a_model_comes_back_from_four_ranks_with_the_same_logits(cairn, tmp_path, dtype, max_shard_size):
    model = make_llama(tmp_path / "model", dtype, max_shard_size)
    files = list((tmp_path / "model").glob("*.safetensors"))
    assert (len(files) > 1) == (max_shard_size == "4KB")
    step = reshard(cairn, tmp_path / "model", tmp_path / "run", "dp=2,tp=2", TENSOR_PARALLEL)
    assert len(list(step.glob("*/*.safetensors"))) == 4
    cairn.run("verify", step, "--read-data")
    cairn.run("convert", step, tmp_path / "back", "--to", "hf")
    assert_same(tmp_path / "back", model)


def test_a_model_with_tied_weights_comes_back(cairn, tmp_path):
    model = make_llama(tmp_path / "model", tied=True)
    step = reshard(cairn, tmp_path / "model", tmp_path / "run", "dp=2,tp=2", TENSOR_PARALLEL)
    cairn.run("convert", step, tmp_path / "back", "--to", "hf")
    assert_same(tmp_path / "back", model)


def test_a_model_split_into_small_files_on_the_way_back_loads(cairn, tmp_path):
    model = make_llama(tmp_path / "model")
    step = reshard(cairn, tmp_path / "model", tmp_path / "run", "tp=3", TENSOR_PARALLEL)
    cairn.run("convert", step, tmp_path / "back", "--to", "hf", "--shard-size", "4KB")
    assert len(list((tmp_path / "back").glob("*.safetensors"))) > 1
    assert_same(tmp_path / "back", model)


@pytest.mark.parametrize("mesh", ["dp=1", "dp=3"])
def test_a_checkpoint_of_whole_tensors_is_a_model_folder(cairn, tmp_path, mesh):
    model = make_llama(tmp_path / "model")
    step = reshard(cairn, tmp_path / "model", tmp_path / "run", mesh)
    [attempt] = [path for path in step.iterdir() if path.is_dir()]
    shutil.copy(attempt / "files/config.json", attempt)
    assert_same(attempt, model)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_plain_reader_and_safetensors_read_a_checkpoint_of_a_model(cairn, tmp_path, dtype):
    model = make_llama(tmp_path / "model", dtype)
    step = reshard(cairn, tmp_path / "model", tmp_path / "run", "dp=2,tp=2", TENSOR_PARALLEL)
    _, tensors, _ = read_step(step)
    weights = model.state_dict()
    assert tensors.keys() == weights.keys()
    for name, weight in weights.items():
        assert tensors[name].bytes() == weight.view(torch.uint8).numpy().tobytes(), name
    for path in step.glob("*/*.safetensors"):
        assert_stock_safetensors_reads(path)
