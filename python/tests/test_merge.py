"""`cairn merge` against mergekit on the same models and the same configs, and against being killed.

mergekit is run beside it as it is installed, with one thing settled: its sorts are made stable, so that of equal elements the first
stays, where torch leaves it open. In `float32` every method then agrees to a few units in the last place; what is left is the order of
sums. In `bfloat16` and `float16` the methods that look at one element at a time agree bit for bit, almost everywhere. Those that need
norms or angles (slerp and its kin, karcher, model_stock) are worked out in `float32` by Cairn and in the narrow type by mergekit, so
there Cairn's result is compared with mergekit's in `float32`, rounded.
"""

import json
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

mergekit_config = pytest.importorskip("mergekit.config")
from mergekit.merge import run_merge  # noqa: E402
from mergekit.options import MergeOptions  # noqa: E402

HIDDEN, INNER, TOKENS, LAYERS = 48, 96, 80, 3
LAYER = {
    "input_layernorm.weight": (HIDDEN,),
    "self_attn.q_proj.weight": (HIDDEN, HIDDEN),
    "self_attn.k_proj.weight": (HIDDEN // 2, HIDDEN),
    "self_attn.v_proj.weight": (HIDDEN // 2, HIDDEN),
    "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
    "post_attention_layernorm.weight": (HIDDEN,),
    "mlp.up_proj.weight": (INNER, HIDDEN),
    "mlp.gate_proj.weight": (INNER, HIDDEN),
    "mlp.down_proj.weight": (HIDDEN, INNER),
}
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": TOKENS,
    "tie_word_embeddings": False,
}
WEIGHTS = (0.5, 0.3, 0.4)
INDEX, RECORD = "model.safetensors.index.json", ".cairn-convert/journal.json"


def shapes():
    """The tensors of a tiny Llama."""
    found = {"model.embed_tokens.weight": (TOKENS, HIDDEN), "model.norm.weight": (HIDDEN,), "lm_head.weight": (TOKENS, HIDDEN)}
    for layer in range(LAYERS):
        found |= {f"model.layers.{layer}.{name}": shape for name, shape in LAYER.items()}
    return found


def write_model(folder, tensors):
    folder.mkdir(parents=True)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(CONFIG | {"torch_dtype": dtype}))


def write_models(folder, dtype):
    """A base and three models that differ a little from it."""
    generator = torch.Generator().manual_seed(5)
    draw = {name: torch.randn(shape, generator=generator) * 0.2 for name, shape in sorted(shapes().items())}
    base = {name: tensor.to(dtype) for name, tensor in draw.items()}
    write_model(folder / "base", base)
    for model in "abc":
        change = {name: 0.05 * torch.randn(tensor.shape, generator=generator) for name, tensor in base.items()}
        write_model(folder / model, {name: (base[name].float() + change[name]).to(dtype) for name in base})


@pytest.fixture(scope="session")
def models(tmp_path_factory):
    """Folders with the models in each type."""
    root = tmp_path_factory.mktemp("models")
    for name in ("float32", "bfloat16", "float16"):
        write_models(root / name, getattr(torch, name))
    return root


def three(folder, **parameters):
    """The three models with parameters of their own; a tuple has one value for each."""
    value = lambda given, index: given[index] if isinstance(given, tuple) else given  # noqa: E731
    return [
        {"model": str(folder / name), "parameters": {key: value(given, index) for key, given in parameters.items()}}
        for index, name in enumerate("abc")
    ]


def with_base(folder, method, models, **parameters):
    return {"merge_method": method, "base_model": str(folder / "base"), "models": models, "parameters": parameters}


def elementwise(folder):
    """Configs whose methods look at one element at a time, once it is known which elements stay."""
    gradient = ([0.1, 0.9], [{"filter": "mlp", "value": 0.7}, {"value": 0.2}], 0.4)
    sources = lambda model, layers, **more: {"sources": [{"model": str(folder / model), "layer_range": layers, **more}]}  # noqa: E731
    halved = {"parameters": {"scale": [{"filter": "o_proj", "value": 0.5}, {"value": 1.0}]}}
    return {
        "linear": {"merge_method": "linear", "models": three(folder, weight=WEIGHTS)},
        "linear_gradient": {"merge_method": "linear", "models": three(folder, weight=gradient), "parameters": {"normalize": False}},
        "task_arithmetic": with_base(folder, "task_arithmetic", three(folder, weight=WEIGHTS), **{"lambda": 0.8}),
        "ties": with_base(folder, "ties", three(folder, weight=WEIGHTS, density=(0.3, 0.5, 1.0))),
        "ties_rescaled": with_base(folder, "ties", three(folder, weight=WEIGHTS, density=0.2), rescale=True, normalize=False),
        "breadcrumbs": with_base(folder, "breadcrumbs", three(folder, weight=WEIGHTS, density=0.6, gamma=0.05)),
        "breadcrumbs_ties": with_base(folder, "breadcrumbs_ties", three(folder, weight=WEIGHTS, density=0.9, gamma=0.2)),
        "sce": with_base(folder, "sce", three(folder), select_topk=0.3),
        "sce_all": with_base(folder, "sce", three(folder)),
        "nearswap": with_base(folder, "nearswap", three(folder)[:1], t=0.01),
        "dare_whole": with_base(folder, "dare_ties", three(folder, weight=WEIGHTS, density=1.0)),
        "della_whole": with_base(folder, "della", three(folder, weight=WEIGHTS, density=1.0)),
        "passthrough": {"merge_method": "passthrough", "slices": [sources("a", [0, 2]), sources("b", [1, 3], **halved)]},
        "cast": with_base(folder, "ties", three(folder, weight=WEIGHTS, density=0.4)) | {"dtype": "float32", "out_dtype": "bfloat16"},
    }


def geometric(folder):
    """Configs whose methods need norms and angles."""
    slices = [{"sources": [{"model": str(folder / name), "layer_range": [0, LAYERS]} for name in ("base", "a")]}]
    by_kind = [{"filter": "self_attn", "value": [0, 0.5, 1]}, {"filter": "mlp", "value": [1, 0.2]}, {"value": 0.5}]
    weighted = three(folder, weight=WEIGHTS)
    return {
        "slerp": with_base(folder, "slerp", three(folder)[:1], t=0.3),
        "slerp_slices": {"merge_method": "slerp", "base_model": str(folder / "base"), "slices": slices, "parameters": {"t": by_kind}},
        "nuslerp": {"merge_method": "nuslerp", "models": weighted[:2]},
        "nuslerp_rows": with_base(folder, "nuslerp", weighted[:2], nuslerp_flatten=False),
        "nuslerp_columns": {
            "merge_method": "nuslerp",
            "models": weighted[:2],
            "parameters": {"nuslerp_flatten": False, "nuslerp_row_wise": True},
        },
        "multislerp": {"merge_method": "multislerp", "models": weighted},
        "multislerp_base": with_base(folder, "multislerp", weighted),
        "karcher": {"merge_method": "karcher", "models": three(folder)},
        "model_stock": with_base(folder, "model_stock", three(folder)),
        "model_stock_rows": with_base(folder, "model_stock", three(folder), filter_wise=True),
        "arcee_fusion": with_base(folder, "arcee_fusion", three(folder)[:1]),
    }


@pytest.fixture(autouse=True)
def stable_sorts(monkeypatch):
    """Torch's sorts with equal elements in the order they had."""
    sort = torch.sort

    def stable(tensor, dim=-1, descending=False):
        return sort(tensor, dim=dim, descending=descending, stable=True)

    def topk(tensor, k, largest=True):
        ordered = stable(tensor, descending=largest)
        return ordered.values[:k], ordered.indices[:k]

    monkeypatch.setattr(torch, "sort", stable)
    monkeypatch.setattr(torch, "argsort", lambda *arguments, **named: stable(*arguments, **named).indices)
    monkeypatch.setattr(torch, "topk", topk)


def by_mergekit(config, folder):
    options = MergeOptions(quiet=True, copy_tokenizer=False)
    run_merge(mergekit_config.MergeConfiguration.model_validate(config), str(folder), options)
    return load(folder)


def by_cairn(cairn, config, folder):
    path = folder.with_suffix(".yml")
    path.write_text(yaml.safe_dump(config))
    cairn.run("merge", path, folder)
    return load(folder)


def load(folder):
    tensors = {}
    for file in folder.glob("*.safetensors"):
        tensors |= load_file(file)
    return tensors


def distances(expected, found):
    """How far each element is off, in units of the last place; near zero, where differences cancel, of that at a tenth."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        left, right = tensor.double(), found[name].double()
        unit = torch.maximum(left.abs(), right.abs()).clamp(min=0.1) * torch.finfo(tensor.dtype).eps
        yield ((left - right).abs() / unit).flatten()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("name", list(elementwise(Path())))
def test_methods_that_look_at_elements_agree_with_mergekit(cairn, models, tmp_path, name, dtype):
    config = elementwise(models / dtype)[name]
    expected = by_mergekit(config, tmp_path / "mergekit")
    off = torch.cat(list(distances(expected, by_cairn(cairn, config, tmp_path / "cairn"))))
    # Sums over a tensor, of which factors are made, are added in another order.
    sums = name in ("ties_rescaled", "sce", "sce_all")
    assert off.max() <= (4 if sums or dtype == "float32" else 0), f"{off.max()} units"


@pytest.mark.parametrize("name", list(geometric(Path())))
def test_methods_that_need_angles_agree_with_mergekit(cairn, models, tmp_path, name):
    config = geometric(models / "float32")[name]
    expected = by_mergekit(config, tmp_path / "mergekit")
    off = torch.cat(list(distances(expected, by_cairn(cairn, config, tmp_path / "cairn"))))
    if name == "arcee_fusion":  # An element at the threshold goes one way or the other.
        off = off[off <= 64]
        assert len(off) > 0.999 * sum(tensor.numel() for tensor in expected.values())
    assert off.max() <= 8, f"{off.max()} units"


def test_a_narrow_type_has_the_wide_result_rounded(cairn, models, tmp_path):
    config = geometric(models / "bfloat16")["karcher"]
    wide = by_mergekit(config | {"dtype": "float32", "out_dtype": "bfloat16"}, tmp_path / "mergekit")
    off = torch.cat(list(distances(wide, by_cairn(cairn, config, tmp_path / "cairn"))))
    assert off.max() <= 1


def test_random_methods_drop_as_many_and_keep_the_sum(cairn, models, tmp_path):
    config = with_base(models / "float32", "dare_linear", three(models / "float32", weight=1.0, density=0.3)[:1])
    merged = by_cairn(cairn, config, tmp_path / "cairn")
    base, model = load(models / "float32" / "base"), load(models / "float32" / "a")
    name = "model.layers.0.mlp.up_proj.weight"
    change, kept = model[name] - base[name], merged[name] - base[name]
    assert abs((kept != 0).float().mean().item() - 0.3) < 0.03
    assert torch.isclose(kept.abs().sum(), change.abs().sum(), rtol=1e-3)


def test_transformers_loads_the_result(cairn, models, tmp_path):
    from transformers import AutoModelForCausalLM

    config = elementwise(models / "bfloat16")["passthrough"]
    by_cairn(cairn, config, tmp_path / "cairn")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "cairn", dtype="auto")
    assert model.config.num_hidden_layers == 4
    assert model(torch.tensor([[1, 2, 3]])).logits.isfinite().all()


def test_an_adapter_is_merged_as_peft_does(cairn, models, tmp_path):
    import peft
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    folder = models / "float32" / "a"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    lora = peft.LoraConfig(r=4, lora_alpha=12, use_rslora=True, target_modules=["q_proj", "down_proj"])
    model = peft.get_peft_model(model, lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path / "lora")
    expected = {name: tensor for name, tensor in model.merge_and_unload().state_dict().items()}
    config = {"merge_method": "passthrough", "models": [{"model": f"{folder}+{tmp_path / 'lora'}"}]}
    off = torch.cat(list(distances(expected, by_cairn(cairn, config, tmp_path / "cairn"))))
    assert off.max() <= 16


def test_a_merge_that_is_killed_again_and_again_ends_with_the_same_bytes(cairn, models, tmp_path):
    folder = models / "float32"
    config = with_base(folder, "della", three(folder, weight=WEIGHTS, density=0.5))
    path = tmp_path / "merge.yml"
    path.write_text(yaml.safe_dump(config))
    arguments = [str(cairn.path), "merge", str(path), "--shard-size", "20KB", "--seed", "9"]
    subprocess.run([*arguments, str(tmp_path / "once")], check=True, capture_output=True)
    target = tmp_path / "killed"
    chance = random.Random(11)
    kills = 0
    for _ in range(40):
        process = subprocess.Popen([*arguments, str(target), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and not (target / RECORD).exists():
            time.sleep(0.0002)
        time.sleep(chance.uniform(0.0, 0.005))
        process.send_signal(signal.SIGKILL)
        if process.wait() == 0:
            break
        kills += 1
        if not (target / RECORD).exists() and (target / INDEX).exists():
            break  # Killed with nothing left to do.
    else:
        subprocess.run([*arguments, str(target), "--resume"], check=True, capture_output=True)
    files = lambda root: {file.name: file.read_bytes() for file in root.iterdir() if not file.name.startswith(".")}  # noqa: E731
    assert files(target) == files(tmp_path / "once")
    assert kills > 0
