"""Writes hugging_face.json: what Hugging Face's models compute from weights that tests make, too.

Run it with torch and transformers installed: python hugging_face.py > hugging_face.json
"""

from __future__ import annotations

import copy
import json
import math

import torch
from transformers import AutoConfig, AutoModelForCausalLM

WORD = 2**64
TOKENS = [[3, 10, 4, 11, 5], [0, 12, 7, 1, 9]]
TARGETS = [[2, 5, 0, 12, 7], [-100, 1, 3, -100, 11]]
Z_LOSS = 0.01

SIZES = {
    "vocab_size": 13,
    "hidden_size": 8,
    "intermediate_size": 11,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}
CONFIGS = [
    {"model_type": "llama", "rope_theta": 100.0},
    {"model_type": "llama", "rope_theta": 100.0, "rope_scaling": LLAMA3, "attention_bias": True, "mlp_bias": True},
    {"model_type": "llama", "rope_theta": 10.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"model_type": "qwen2", "rope_theta": 100.0, "head_dim": 2, "tie_word_embeddings": True},
    {"model_type": "qwen3", "rope_theta": 100.0},
]


def values(count: int, seed: int, scale: float) -> list[float]:
    """The numbers of `samples::values`."""
    state = (seed * 0x9E3779B97F4A7C15) % WORD | 1
    numbers = []
    for _ in range(count):
        state ^= state << 13 & (WORD - 1)
        state ^= state >> 7
        state ^= state << 17 & (WORD - 1)
        numbers.append(((state >> 32) / (2**32 - 1) * 2 - 1) * scale)
    return numbers


def first_values(name: str, parameter: torch.Tensor) -> torch.Tensor:
    """The numbers of `chain::first_values`."""
    seed = 1
    for byte in name.encode():
        seed = (seed * 31 + byte) % WORD
    numbers = torch.tensor(values(parameter.numel(), seed, 0.5), dtype=torch.float64)
    return numbers.reshape(parameter.shape) + ("norm" in name)


def run(config: dict[str, object]) -> dict[str, object]:
    """The losses of a model, and two numbers about each gradient."""
    settings = AutoConfig.for_model(**copy.deepcopy(config), attn_implementation="eager")
    model = AutoModelForCausalLM.from_config(settings).double()
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(first_values(name, parameter))
    targets = torch.tensor(TARGETS).flatten()
    logits = model(torch.tensor(TOKENS)).logits.flatten(0, 1)
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    losses = losses + Z_LOSS * logits.logsumexp(1) ** 2 * (targets >= 0)
    (losses * torch.tensor(values(10, 11, 1.0))).sum().backward()
    gradients = {}
    for name, parameter in parameters.items():
        gradient = parameter.grad.flatten()
        places = torch.arange(gradient.numel(), dtype=torch.float64)
        gradients[name] = [gradient.norm().item(), gradient.dot(places.cos()).item()]
    return {"config": config, "losses": losses.tolist(), "gradients": gradients}


def rounded(value: object) -> object:
    """Numbers with ten digits: more than two programs agree on."""
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.10g}")
    if isinstance(value, list):
        return [rounded(item) for item in value]
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return value


if __name__ == "__main__":
    models = [json.dumps(rounded(run(SIZES | config))) for config in CONFIGS]
    print("[" + ",\n".join(models) + "]")
