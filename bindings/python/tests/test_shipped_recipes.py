"""The recipes that ship with Cairn: small models of every family go to other layouts, compute the same there, and come back."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cairn
import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 60,
    "max_position_embeddings": 32,
}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**SMALL),
    "qwen2": lambda: transformers.Qwen2Config(**SMALL),
    "qwen3": lambda: transformers.Qwen3Config(**SMALL, head_dim=8, tie_word_embeddings=True),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**SMALL, **EXPERTS, head_dim=8, num_experts=4),
    "mixtral": lambda: transformers.MixtralConfig(**SMALL, num_local_experts=4),
    "gpt2": lambda: transformers.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=60, n_positions=32),
    "ernie4_5": lambda: transformers.Ernie4_5Config(**SMALL, head_dim=8),
    "ernie4_5_moe": lambda: transformers.Ernie4_5_MoeConfig(
        **SMALL, moe_num_experts=4, moe_k=2, moe_intermediate_size=16, moe_num_shared_experts=1
    ),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **SMALL | {"num_key_value_heads": 4}, **EXPERTS, q_lora_rank=16, kv_lora_rank=16, qk_rope_head_dim=8,
        qk_nope_head_dim=8, v_head_dim=8, n_routed_experts=4, first_k_dense_replace=1, n_group=2, topk_group=1,
    ),
}  # fmt: skip


def saved(family: str, folder: Path) -> Any:
    """A small model with random weights, saved as Hugging Face has it."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[family]()).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.1 + (1.0 if parameter.ndim == 1 else 0.0))
    model.save_pretrained(folder)
    return model


def tensors(folder: Path) -> dict[str, Any]:
    opened = cairn.open(folder)
    return {name: np.asarray(opened[name][...]) for name in opened}


def converted(source: Path, target: Path, recipe: Any) -> dict[str, Any]:
    cairn.open(source).with_recipe(recipe).export_hf(target)
    (target / "config.json").write_bytes((source / "config.json").read_bytes())
    return tensors(target)


ROUTES = [(family, "megatron", {}) for family in CONFIGS]
ROUTES += [(family, "paddle", {}) for family in CONFIGS]
ROUTES += [(family, "paddle", {"fuse_attention_qkv": True, "fuse_attention_ffn": True}) for family in ("llama", "qwen2", "qwen3_moe")]
ROUTES += [(family, "megatron", {"stacked_layers": True}) for family in ("llama", "qwen2", "qwen3", "gpt2", "ernie4_5")]
ROUTES += [("llama", "megatron", {"vocab_multiple": 64}), ("gpt2", "megatron", {"vocab_multiple": 64})]


@pytest.mark.parametrize(("family", "layout", "settings"), ROUTES)
def test_a_model_comes_back_bit_for_bit(family: str, layout: str, settings: dict[str, Any], tmp_path: Path) -> None:
    saved(family, tmp_path / "hf")
    there = converted(tmp_path / "hf", tmp_path / "there", cairn.Recipe(f"{family}/hf-to-{layout}", settings=settings))
    back = converted(tmp_path / "there", tmp_path / "back", cairn.Recipe(f"{family}/{layout}-to-hf", settings=settings))
    original = tensors(tmp_path / "hf")
    assert back.keys() == original.keys()
    for name, value in original.items():
        assert back[name].dtype == value.dtype and np.array_equal(back[name], value), name
    if layout == "megatron":
        assert not any(name.startswith(("model.", "transformer.", "lm_head")) for name in there), sorted(there)


def test_both_directions_of_a_recipe_are_each_other_reversed(tmp_path: Path) -> None:
    saved("llama", tmp_path / "hf")
    there = converted(tmp_path / "hf", tmp_path / "there", cairn.Recipe("llama/megatron-to-hf", reverse=True))
    assert "decoder.layers.1.self_attention.linear_qkv.weight" in there


@contextlib.contextmanager
def megatron_on_the_host() -> Iterator[None]:
    """Megatron-Core in one process, kept from asking for a GPU."""
    pytest.importorskip("megatron.core")
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import CudaRNGStatesTracker
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.moe import moe_utils

    patch = pytest.MonkeyPatch()
    patch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    patch.setattr(CudaRNGStatesTracker, "fork", lambda self, name=None: contextlib.nullcontext())
    patch.setattr(moe_utils, "te_general_gemm", None, raising=False)
    patch.setattr(multi_latent_attention, "HAVE_TE", False)
    for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0", "RANK": "0", "WORLD_SIZE": "1"}.items():
        patch.setitem(os.environ, name, value)
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    try:
        yield
    finally:
        parallel_state.destroy_model_parallel()
        torch.distributed.destroy_process_group()
        patch.undo()


def megatron_model(config: Any, **more: Any) -> Any:
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.transformer.transformer_config import TransformerConfig

    settings = TransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        layernorm_epsilon=config.rms_norm_eps,
        use_cpu_initialization=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        normalization="RMSNorm",
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
        **more,
    )
    experts = more.get("num_moe_experts")
    qk_layernorm = more.get("qk_layernorm", False)
    spec = get_gpt_layer_local_spec(
        num_experts=experts, moe_grouped_gemm=False, normalization="RMSNorm", qk_layernorm=qk_layernorm
    )
    return GPTModel(
        settings,
        spec,
        vocab_size=config.vocab_size,
        max_sequence_length=config.max_position_embeddings,
        position_embedding_type="rope",
        rotary_base=int(config.rope_parameters["rope_theta"]),
        share_embeddings_and_output_weights=config.tie_word_embeddings,
    ).eval()


class CausalAttention(torch.nn.Module):
    """Attention with values of their own width, which Megatron has only for GPUs; there are no parameters in it."""

    def __init__(self, *_: Any, softmax_scale: float, **__: Any) -> None:
        super().__init__()
        self.scale = softmax_scale

    def forward(self, query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        # Positions come first, then the batch, then heads.
        heads_first = (part.permute(1, 2, 0, 3) for part in (query, key, value))
        made = torch.nn.functional.scaled_dot_product_attention(*heads_first, is_causal=True, scale=self.scale)
        return made.permute(2, 0, 1, 3).flatten(2)


def deepseek_in_megatron(config: Any) -> Any:
    """Megatron's model with latent attention, plain layers first, then experts."""
    from megatron.core.models.gpt import GPTModel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec
    from megatron.core.transformer.transformer_config import MLATransformerConfig

    dense = config.first_k_dense_replace
    settings = MLATransformerConfig(
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        q_lora_rank=config.q_lora_rank,
        kv_lora_rank=config.kv_lora_rank,
        qk_head_dim=config.qk_nope_head_dim,
        qk_pos_emb_head_dim=config.qk_rope_head_dim,
        v_head_dim=config.v_head_dim,
        qk_layernorm=True,
        rope_type="rope",
        rotary_base=int(config.rope_parameters["rope_theta"]),
        layernorm_epsilon=config.rms_norm_eps,
        num_moe_experts=config.n_routed_experts,
        moe_layer_freq=[int(layer >= dense) for layer in range(config.num_hidden_layers)],
        moe_ffn_hidden_size=config.moe_intermediate_size,
        moe_shared_expert_intermediate_size=config.n_shared_experts * config.moe_intermediate_size,
        moe_router_topk=config.num_experts_per_tok,
        moe_router_score_function="sigmoid",
        moe_router_enable_expert_bias=True,
        moe_router_num_groups=config.n_group,
        moe_router_group_topk=config.topk_group,
        moe_router_topk_scaling_factor=config.routed_scaling_factor,
        moe_router_load_balancing_type="none",
        moe_token_dispatcher_type="allgather",
        use_cpu_initialization=True,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        apply_rope_fusion=False,
    )
    block = get_gpt_decoder_block_spec(settings, use_transformer_engine=False, normalization="RMSNorm")
    for layer in block.layer_specs:
        layer.submodules.self_attention.submodules.core_attention = CausalAttention
    return GPTModel(
        settings,
        block,
        vocab_size=config.vocab_size,
        max_sequence_length=config.max_position_embeddings,
        position_embedding_type="rope",
        share_embeddings_and_output_weights=False,
    ).eval()


#: What Megatron's plain layers keep apart and its fused ones, and its checkpoints, do not: norms, and experts.
APART = {
    r"self_attention\.linear_qkv\.layer_norm_": "input_layernorm.",
    r"mlp\.linear_fc1\.layer_norm_": "pre_mlp_layernorm.",
    r"linear_(q|kv)_up_proj\.layer_norm_": r"\1_layernorm.",
    r"mlp\.experts\.linear_fc(\d)\.weight(\d+)": r"mlp.experts.local_experts.\2.linear_fc\1.weight",
}
EXPERTS_THERE = {
    "num_moe_experts": 4,
    "moe_router_topk": 2,
    "moe_router_load_balancing_type": "none",
    "moe_token_dispatcher_type": "allgather",
}


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {}),
        ("qwen2", {"add_qkv_bias": True}),
        ("qwen3", {"qk_layernorm": True, "kv_channels": 8}),
        ("mixtral", EXPERTS_THERE | {"moe_ffn_hidden_size": 48}),
        (
            "qwen3_moe",
            EXPERTS_THERE
            | {"moe_ffn_hidden_size": 16, "moe_router_pre_softmax": True, "qk_layernorm": True, "kv_channels": 8},
        ),
    ],
)
def test_megatron_computes_what_hugging_face_does(family: str, more: dict[str, Any], tmp_path: Path) -> None:
    model = saved(family, tmp_path / "hf")
    settings = {"experts_apart": True} if "num_moe_experts" in more else {}
    recipe = cairn.Recipe(f"{family}/hf-to-megatron", settings=settings)
    there = converted(tmp_path / "hf", tmp_path / "there", recipe)
    for checkpoint, plain in APART.items():
        there = {re.sub(checkpoint, plain, name): value for name, value in there.items()}
    ids = torch.arange(12)[None] * 5 % 60
    with megatron_on_the_host(), torch.no_grad():
        other = megatron_model(model.config, **more)
        weights = {name: torch.from_numpy(value.copy()) for name, value in there.items()}
        wanted = {name for name, _ in other.named_parameters()}
        assert weights.keys() == wanted
        other.load_state_dict(weights, strict=False)
        mask = torch.triu(torch.ones(12, 12, dtype=torch.bool), 1)[None, None]
        logits = other(ids, torch.arange(12)[None], mask)
    torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-4)


def test_megatron_computes_what_deepseek_does(tmp_path: Path) -> None:
    model = saved("deepseek_v3", tmp_path / "hf")
    recipe = cairn.Recipe("deepseek_v3/hf-to-megatron", settings={"experts_apart": True})
    there = converted(tmp_path / "hf", tmp_path / "there", recipe)
    for checkpoint, plain in APART.items():
        there = {re.sub(checkpoint, plain, name): value for name, value in there.items()}
    ids = torch.arange(12)[None] * 5 % 60
    with megatron_on_the_host(), torch.no_grad():
        other = deepseek_in_megatron(model.config)
        weights = {name: torch.from_numpy(value.copy()) for name, value in there.items()}
        biases = {name for name, _ in other.named_buffers() if name.endswith(".expert_bias")}
        assert weights.keys() == {name for name, _ in other.named_parameters()} | biases
        assert biases
        other.load_state_dict(weights, strict=False)
        mask = torch.triu(torch.ones(12, 12, dtype=torch.bool), 1)[None, None]
        logits = other(ids, torch.arange(12)[None], mask)
    torch.testing.assert_close(logits, model(ids).logits, rtol=1e-4, atol=1e-4)


def test_paddle_has_gpt2_with_queries_keys_and_values_apart(tmp_path: Path) -> None:
    model = saved("gpt2", tmp_path / "hf")
    there = converted(tmp_path / "hf", tmp_path / "there", "gpt2/hf-to-paddle")
    ours = {name: tensor.numpy() for name, tensor in model.transformer.state_dict().items()}
    expected = {
        "gpt.embeddings.word_embeddings.weight": ours["wte.weight"],
        "gpt.embeddings.position_embeddings.weight": ours["wpe.weight"],
        "gpt.decoder.norm.weight": ours["ln_f.weight"],
        "gpt.decoder.norm.bias": ours["ln_f.bias"],
    }
    plain = {"norm1": "ln_1", "norm2": "ln_2", "self_attn.out_proj": "attn.c_proj", "linear1": "mlp.c_fc", "linear2": "mlp.c_proj"}
    for layer in range(2):
        for kind in ("weight", "bias"):
            fused = ours[f"h.{layer}.attn.c_attn.{kind}"]
            for place, name in enumerate(("q_proj", "k_proj", "v_proj")):
                part = fused[..., 32 * place : 32 * (place + 1)]
                expected[f"gpt.decoder.layers.{layer}.self_attn.{name}.{kind}"] = part
            for theirs, name in plain.items():
                expected[f"gpt.decoder.layers.{layer}.{theirs}.{kind}"] = ours[f"h.{layer}.{name}.{kind}"]
    assert there.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(there[name], value), name


@pytest.mark.parametrize("family", ["ernie4_5", "ernie4_5_moe"])
def test_paddle_has_ernie_with_the_inputs_of_linear_layers_first(family: str, tmp_path: Path) -> None:
    model = saved(family, tmp_path / "hf")
    linear = {f"{name}.weight" for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    there = converted(tmp_path / "hf", tmp_path / "there", f"{family}/hf-to-paddle")
    original = tensors(tmp_path / "hf")
    assert there.keys() == original.keys()
    # The head is read as the embeddings are; a router is a matrix, whatever module holds it, and so are experts.
    turned = {name for name in linear if name != "lm_head.weight"}
    turned |= {name for name in original if name.endswith("mlp.gate.weight") or ".experts." in name}
    assert turned & original.keys()
    for name, value in original.items():
        assert np.array_equal(there[name], value.T if name in turned else value), name


def fp8_model(folder: Path) -> dict[str, Any]:
    """Weights as DeepSeek-V3 stores them: FP8 elements, and a scale for each block of 128 × 128."""
    from safetensors.torch import save_file

    torch.manual_seed(1)
    weights: dict[str, Any] = {"model.norm.weight": torch.randn(64).to(torch.bfloat16)}
    for name, shape in {"self_attn.o_proj": (200, 300), "mlp.experts.3.up_proj": (128, 64), "mlp.down_proj": (1, 257)}.items():
        rows, columns = (-(-size // 128) for size in shape)
        weights[f"model.layers.0.{name}.weight"] = torch.randn(shape).to(torch.float8_e4m3fn)
        weights[f"model.layers.0.{name}.weight_scale_inv"] = torch.rand(rows, columns) + 0.1
    folder.mkdir()
    save_file(weights, str(folder / "model.safetensors"))
    (folder / "config.json").write_text(json.dumps({"model_type": "deepseek_v3", "torch_dtype": "bfloat16"}))
    return weights


def test_scaled_blocks_become_bfloat16(tmp_path: Path) -> None:
    weights = fp8_model(tmp_path / "fp8")
    made = cairn.open(tmp_path / "fp8").with_recipe("deepseek_v3/fp8-to-bf16")
    scaled = [name for name in weights if name.endswith("weight_scale_inv")]
    assert sorted(made) == sorted(weights.keys() - set(scaled))
    for name in scaled:
        weight = weights[name.removesuffix("_scale_inv")]
        blocks = np.kron(weights[name].numpy(), np.ones((128, 128), np.float32))[: weight.shape[0], : weight.shape[1]]
        exact = weight.to(torch.float32).numpy() * blocks
        into = torch.zeros(weight.shape, dtype=torch.bfloat16)
        made.load({name.removesuffix("_scale_inv"): into}, strict="partial")
        assert torch.equal(into, torch.from_numpy(exact).to(torch.bfloat16)), name


def test_bfloat16_becomes_scaled_blocks_and_comes_back_near(tmp_path: Path) -> None:
    weights = fp8_model(tmp_path / "fp8")
    cairn.open(tmp_path / "fp8").with_recipe("deepseek_v3/fp8-to-bf16").export_hf(tmp_path / "bf16")
    again = cairn.open(tmp_path / "bf16").with_recipe("deepseek_v3/bf16-to-fp8")
    assert sorted(again) == sorted(weights)
    name = "model.layers.0.self_attn.o_proj.weight"
    quantised = torch.zeros(200, 300, dtype=torch.float8_e4m3fn)
    scales = torch.zeros(2, 3)
    again.load({name: quantised, f"{name}_scale_inv": scales}, strict="partial")
    blocks = np.kron(scales.numpy(), np.ones((128, 128), np.float32))[:200, :300]
    near = torch.from_numpy(quantised.to(torch.float32).numpy() * blocks)
    plain = torch.zeros(200, 300, dtype=torch.bfloat16)
    cairn.load(tmp_path / "bf16", {name: plain}, strict="partial")
    assert (near - plain.float()).abs().max() <= plain.float().abs().max() / 16
