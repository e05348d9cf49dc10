"""`cairn train` against Hugging Face transformers and torch's AdamW, from the same weights and the same tokens."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 300
VOCABULARY = 131
SEQUENCES = 6
LENGTH = 24
STEPS = 20
RATE = 3e-3
DECAY = 0.1
CLOSE = 1e-4

SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.1,
    "use_cache": False,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_theta": 10000.0, "tie_word_embeddings": False}),
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True}),
    "qwen2": ("Qwen2Config", {"tie_word_embeddings": False}),
    "qwen3": ("Qwen3Config", {"tie_word_embeddings": True, "head_dim": 16}),
}


def cairn(*arguments: object) -> str:
    """Runs the command; returns what it prints."""
    binary = os.environ.get("CAIRN_BIN")
    if binary is None:
        pytest.skip("CAIRN_BIN is not set: run the tests with `cargo xtask test`")
    done = subprocess.run([binary, *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_megatron(prefix: Path, tokens: np.ndarray[Any, Any]) -> None:
    """One document of 16-bit tokens, as Megatron stores it."""
    tokens.astype("<u2").tofile(prefix.with_suffix(".bin"))
    with prefix.with_suffix(".idx").open("wb") as index:
        index.write(b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + bytes([8]))
        index.write(np.array([1, 2], "<u8").tobytes())
        index.write(np.array([len(tokens)], "<i4").tobytes() + np.array([0], "<i8").tobytes())
        index.write(np.array([0, 1], "<i8").tobytes())


def model_of(kind: str) -> Any:
    name, extra = KINDS[kind]
    torch.manual_seed(0)
    config = getattr(transformers, name)(**{**SHAPE, **extra})
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").float()
    # Biases and norms begin as constants, which would hide where they are used.
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def torch_losses(model: Any, stream: np.ndarray[Any, Any]) -> list[float]:
    """The losses of a plain loop: all sequences are one batch, as in the run of the command."""
    tokens = torch.from_numpy(stream.astype(np.int64))
    inputs, targets = tokens[:-1].view(SEQUENCES, LENGTH), tokens[1:]
    groups = [
        {"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": DECAY},
        {"params": [p for p in model.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-8)
    losses = []
    for _ in range(STEPS):
        logits = model(inputs).logits
        loss = torch.nn.functional.cross_entropy(logits.view(-1, VOCABULARY), targets)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def write_config(folder: Path) -> Path:
    config = folder / "run.toml"
    config.write_text(f"""
steps = {STEPS}
model.weights = "hf"
data.sources = "tokens.bin"
batch = {{sequences = {SEQUENCES}, length = {LENGTH}}}
optimizer = {{weight_decay = {DECAY}, clip = 1.0, betas = [0.9, 0.95]}}
learning_rate = {{peak = {RATE}, shape = "constant"}}
checkpoints = {{folder = "run", every = 10}}
""")
    return config


def losses_of(run: Path) -> list[float]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    return [line["loss"] for line in lines]


def logits_of(path: Path, prompt: Sequence[int], count: int) -> tuple[list[int], np.ndarray[Any, Any]]:
    """Tokens that the model adds to a prompt, and the logits they were chosen by."""
    text = cairn(
        "generate", path, "--tokens", ",".join(map(str, prompt)), "--max-tokens", count, "--tokenizer", "bytes", "--logits", "--json"
    )
    told = json.loads(text)
    return told["tokens"], np.array(told["logits"])


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def place(tmp_path: Path, kind: str) -> tuple[Path, Any, np.ndarray[Any, Any]]:
    """A folder with the model `hf` and a stream of tokens; the model; the stream."""
    model = model_of(kind)
    model.save_pretrained(tmp_path / "hf")
    stream = np.random.default_rng(0).integers(0, VOCABULARY, SEQUENCES * LENGTH + 1)
    write_megatron(tmp_path / "tokens", stream)
    return tmp_path, model, stream


@pytest.mark.parametrize("mesh", ["dp=1", "dp=2,tp=2", "pp=2,dp=3"])
def test_losses_are_those_of_transformers_and_adamw(place: tuple[Path, Any, np.ndarray[Any, Any]], mesh: str) -> None:
    folder, model, stream = place
    cairn("train", write_config(folder), "--mesh", mesh, "--quiet")
    found, expected = losses_of(folder / "run"), torch_losses(model, stream)
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)
    assert expected[-1] < 0.8 * expected[0], "nothing was learnt, so nothing was compared"


def test_logits_are_those_of_transformers(place: tuple[Path, Any, np.ndarray[Any, Any]]) -> None:
    folder, model, stream = place
    prompt = [int(token) for token in stream[:17]]
    tokens, found = logits_of(folder / "hf", prompt, 5)
    with torch.no_grad():
        expected = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1].numpy()
    np.testing.assert_allclose(found, expected, rtol=CLOSE, atol=CLOSE)
    assert tokens == expected.argmax(axis=1).tolist()


def test_what_was_trained_loads_in_transformers(place: tuple[Path, Any, np.ndarray[Any, Any]]) -> None:
    folder, model, stream = place
    cairn("train", write_config(folder), "--mesh", "dp=2,tp=2", "--quiet")
    cairn("convert", folder / "run", folder / "out", "--to", "hf", "--drop", "optimizer.*", "--quiet")
    loaded, told = transformers.AutoModelForCausalLM.from_pretrained(folder / "out", output_loading_info=True)
    assert not told["missing_keys"], told
    assert not told["unexpected_keys"], told
    torch_losses(model, stream)
    for (name, found), (_, expected) in zip(loaded.named_parameters(), model.named_parameters(), strict=True):
        np.testing.assert_allclose(found.detach().numpy(), expected.detach().numpy(), atol=2e-3, err_msg=name)
    prompt = [int(token) for token in stream[:9]]
    _, found = logits_of(folder / "run", prompt, 1)
    with torch.no_grad():
        expected = loaded(torch.tensor([prompt])).logits[0, -1].numpy()
    np.testing.assert_allclose(found[0], expected, rtol=CLOSE, atol=CLOSE)
