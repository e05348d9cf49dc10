"""A Hugging Face model converted by `cairn convert`, beside `cp` and a script of safetensors and torch: seconds and peak memory.

The model is float32, of GIGABYTES. `cp` leaves its bytes in the page cache; `cp, sync` ends when they are on disk, as a conversion does.
Every phase is measured with the source cold, and what was written is deleted before the next. Looking at a model of very many tensors,
as one with experts has them, is measured beside reading the same headers with safetensors.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from common import HIDDEN, LAYER, REPEATS, VOCABULARY, arguments, drop_cache, fill, report, run

SHARD_BYTES = 1_000_000_000

CAST = """
import sys
from pathlib import Path
import torch
from safetensors.torch import load_file, save_file
source, target = map(Path, sys.argv[1:])
target.mkdir()
for file in sorted(source.glob("*.safetensors")):
    tensors = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(file).items()}
    save_file(tensors, target / file.name, metadata={"format": "pt"})
"""


# The experts of DeepSeek-V3: 46,848 tensors.
EXPERT_LAYERS, EXPERTS, EXPERT_FILES = 61, 256, 100

HEADERS = """
import sys
from pathlib import Path
from safetensors import safe_open
for file in sorted(Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(file, "np") as opened:
        for name in opened.keys():
            part = opened.get_slice(name)
            part.get_shape(), part.get_dtype()
"""


def write_experts(folder):
    """Writes very many small tensors with an index, and returns how many, and the bytes of the files."""
    folder.mkdir(parents=True)
    names = [
        f"model.layers.{layer}.mlp.experts.{expert}.{projection}_proj.weight"
        for layer in range(EXPERT_LAYERS)
        for expert in range(EXPERTS)
        for projection in ("gate", "up", "down")
    ]
    weight_map = {}
    for number in range(EXPERT_FILES):
        part = names[number::EXPERT_FILES]
        file = f"model-{number + 1:05}-of-{EXPERT_FILES:05}.safetensors"
        save_file({name: torch.zeros(4, 4, dtype=torch.bfloat16) for name in part}, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return len(names), sum(file.stat().st_size for file in folder.iterdir())


def write_model(folder, size_bytes):
    """Writes safetensors files of at most `SHARD_BYTES`, without an index, and returns their bytes."""
    folder.mkdir(parents=True)
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    per_layer = 4 * sum(torch.Size(shape).numel() for shape in LAYER.values())
    layers = max(1, (size_bytes - 4 * VOCABULARY * HIDDEN) // per_layer)
    for layer in range(layers):
        shapes |= {f"model.layers.{layer:04}.{name}.weight": shape for name, shape in LAYER.items()}
    shard, filled, number = {}, 0, 0
    for seed, (name, shape) in enumerate(shapes.items()):
        tensor = fill(shape, torch.float32, seed)
        if filled + tensor.nbytes > SHARD_BYTES:
            save_file(shard, folder / f"part-{number:03}.safetensors", metadata={"format": "pt"})
            shard, filled, number = {}, 0, number + 1
        shard[name] = tensor
        filled += tensor.nbytes
    save_file(shard, folder / f"part-{number:03}.safetensors", metadata={"format": "pt"})
    return sum(file.stat().st_size for file in folder.iterdir())


def measure(source, target, size_bytes, phases):
    """Runs every phase some times, and reports its seconds and its peak memory."""
    timings = {phase: [] for phase in phases}
    peaks = dict.fromkeys(phases, 0)
    for _ in range(REPEATS):
        # Round by round, so that a disk whose speed changes is the same for all.
        for phase, commands in phases.items():
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
            drop_cache(source)
            seconds, peak = run(commands)
            timings[phase].append(seconds)
            peaks[phase] = max(peaks[phase], peak)
    for (system, phase), seconds in timings.items():
        report(system, phase, None, size_bytes, seconds)
        memory = {"system": system, "phase": f"{phase}: peak memory", "unit": "MB", "value": peaks[system, phase] / 1e6}
        print(json.dumps(memory), flush=True)


def main():
    directory, size_bytes, _ = arguments()
    directory = directory / "convert"
    shutil.rmtree(directory, ignore_errors=True)
    source, target = directory / "source", directory / "target"
    size_bytes = write_model(source, size_bytes)
    convert = [os.environ["CAIRN_BIN"], "convert", source, target, "--to", "hf", "--shard-size", SHARD_BYTES, "--quiet"]
    phases = {
        ("cp", "copy"): [["cp", "-r", source, target]],
        ("cp", "copy, sync"): [["cp", "-r", source, target], ["sync"]],
        ("cairn", "convert"): [convert],
        ("cairn", "convert, cast"): [[*convert, "--dtype", "bf16"]],
        ("safetensors", "cast, sync"): [[sys.executable, "-c", CAST, source, target], ["sync"]],
    }
    measure(source, target, size_bytes, phases)
    experts = directory / "experts"
    tensors, size_bytes = write_experts(experts)
    phases = {
        ("cairn", f"inspect, {tensors:,} tensors"): [[os.environ["CAIRN_BIN"], "inspect", experts, "--json"]],
        ("safetensors", f"headers, {tensors:,} tensors"): [[sys.executable, "-c", HEADERS, experts]],
    }
    measure(experts, target, size_bytes, phases)
    shutil.rmtree(directory)


if __name__ == "__main__":
    main()
