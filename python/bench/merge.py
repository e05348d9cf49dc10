"""Three models merged by `cairn merge` and by mergekit: seconds and peak memory of the whole process.

The models are bfloat16 Llamas of GIGABYTES / 4 each, with a base of the same size, read from the page cache by both.
"""

import json
import os
import shutil
import sys

import torch
from safetensors.torch import save_file

from common import HIDDEN, INTERMEDIATE, KEY_VALUE, LAYER, REPEATS, VOCABULARY, arguments, report, run

MODELS = "abc"
METHODS = {"linear": {}, "ties": {"density": 0.5}, "dare_linear": {"density": 0.5}}


def write_model(folder, layers, base):
    """A model that differs a little from `base`, in files of one layer each."""
    folder.mkdir(parents=True)
    weight_map = {}
    parts = {layer: {f"model.layers.{layer}.{name}.weight": shape for name, shape in LAYER.items()} for layer in range(layers)}
    parts[layers] = {
        "model.embed_tokens.weight": (VOCABULARY, HIDDEN),
        "model.norm.weight": (HIDDEN,),
        "lm_head.weight": (VOCABULARY, HIDDEN),
    }
    for number, shapes in parts.items():
        file = f"model-{number + 1:05}-of-{layers + 1:05}.safetensors"
        torch.manual_seed(number)
        tensors = {name: torch.randn(shape) * 0.02 for name, shape in shapes.items()}
        if base is not None:
            torch.manual_seed(1000 * base + number)
            tensors = {name: tensor + torch.randn(tensor.shape) * 0.002 for name, tensor in tensors.items()}
        save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shapes, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": 16,
        "num_key_value_heads": 16 * KEY_VALUE // HIDDEN,
        "vocab_size": VOCABULARY,
        "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))


def config_text(directory, method, parameters):
    """A merge of all models; JSON is YAML."""
    models = [{"model": str(directory / name), "parameters": {"weight": 1.0, **parameters}} for name in MODELS]
    config = {"merge_method": method, "models": models}
    if method != "linear":
        config["base_model"] = str(directory / "base")
    return json.dumps(config)


def main():
    directory, size_bytes, _ = arguments()
    directory = directory / "merge"
    shutil.rmtree(directory, ignore_errors=True)
    per_layer = 2 * sum(torch.Size(shape).numel() for shape in LAYER.values())
    layers = max(1, size_bytes // 4 // per_layer)
    for number, name in enumerate(["base", *MODELS]):
        write_model(directory / name, layers, number or None)
    total = 4 * layers * per_layer
    for method, parameters in METHODS.items():
        path = directory / f"{method}.yml"
        path.write_text(config_text(directory, method, parameters))
        out = directory / "out"
        systems = {
            "cairn": [os.environ["CAIRN_BIN"], "merge", path, out],
            "mergekit": [sys.executable, "-m", "mergekit.scripts.run_yaml", path, out, "--no-copy-tokenizer"],
        }
        for system, command in systems.items():
            timings, memory = [], 0
            for _ in range(REPEATS):
                shutil.rmtree(out, ignore_errors=True)
                elapsed, peak = run([command])
                timings.append(elapsed)
                memory = max(memory, peak)
            report(system, f"merge, {method}", None, total, timings)
            line = {"system": system, "phase": f"merge, {method}: peak memory", "unit": "MB", "value": memory / 1e6}
            print(json.dumps(line), flush=True)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
