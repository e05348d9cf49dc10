"""What the measuring scripts share: the state they move, cold reads, and how they report.

Every script is called as `script.py DIRECTORY GIGABYTES RANKS` and prints one JSON line per phase.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import torch

REPEATS = 3

# A small Llama: all sizes divide by 16 ranks.
HIDDEN, KEY_VALUE, INTERMEDIATE, VOCABULARY = 1024, 256, 2816, 8192
LAYER = {
    "input_layernorm": (HIDDEN,),
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEY_VALUE, HIDDEN),
    "self_attn.v_proj": (KEY_VALUE, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "post_attention_layernorm": (HIDDEN,),
    "mlp.gate_proj": (INTERMEDIATE, HIDDEN),
    "mlp.up_proj": (INTERMEDIATE, HIDDEN),
    "mlp.down_proj": (HIDDEN, INTERMEDIATE),
}
# What mixed-precision AdamW keeps for each parameter.
KINDS = {
    "model": torch.bfloat16,
    "master": torch.float32,
    "exp_avg": torch.float32,
    "exp_avg_sq": torch.float32,
}


def arguments():
    """The directory, the size in bytes and the number of ranks from the command line."""
    directory, gigabytes, ranks = sys.argv[1:]
    return Path(directory), int(float(gigabytes) * 1e9), int(ranks)


def tensors(size_bytes):
    """Name → (shape, dtype) of a training state of about `size_bytes`, at least one layer."""
    per_element = sum(dtype.itemsize for dtype in KINDS.values())
    layer_bytes = per_element * sum(torch.Size(shape).numel() for shape in LAYER.values())
    embedding_bytes = per_element * VOCABULARY * HIDDEN
    layers = max(1, round((size_bytes - embedding_bytes) / layer_bytes))
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in LAYER.items()}
    return {f"{kind}.{name}": (shape, dtype) for name, shape in shapes.items() for kind, dtype in KINDS.items()}


def state_bytes(specification):
    """The bytes of a state described by `tensors`."""
    return sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in specification.values())


def fill(shape, dtype, seed):
    """A tensor whose bytes differ from its neighbours', so that a mix-up shows."""
    elements = torch.arange(torch.Size(shape).numel(), dtype=torch.float32)
    return elements.add_(seed).remainder_(251).to(dtype).view(shape)


def files(path):
    """The files under `path`, or the file itself."""
    return [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]


def drop_cache(path):
    """Makes the next read of `path` come from the disk."""
    for file in files(path):
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def seconds(work):
    """How long a call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def peak_bytes(process):
    """The most memory a running process has had; 0 if it is gone. What `wait` tells would count this one's, too."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def run(commands):
    """The seconds of processes, one after another, and the largest peak memory, in bytes."""
    start, peak = time.perf_counter(), 0
    for command in commands:
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        while process.poll() is None:
            peak = max(peak, peak_bytes(process))
            time.sleep(0.01)
        assert process.returncode == 0, command
    return time.perf_counter() - start, peak


def report(system, phase, direction, size_bytes, timings):
    """Prints one phase; `direction` is the limit of the disk it runs into: `write`, `read` or none."""
    line = {"system": system, "phase": phase, "direction": direction, "bytes": size_bytes, "seconds": timings}
    print(json.dumps(line), flush=True)
