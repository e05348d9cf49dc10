"""Training steps of `cairn train` beside PyTorch eager, on other layouts, with checkpoints, and after a resume.

All train the same Llama of 21 M parameters (4 layers of 512, float32, AdamW) on random tokens. PyTorch runs transformers' model with
scaled-dot-product attention and the foreach AdamW. Every side is a process of its own that is pinned to its cores; sides take turns, and the
first steps are not counted. Ratios are those of the same round.
"""

import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from common import arguments, drop_cache, seconds

ROUNDS = 3
ROUNDS_BESIDE_TORCH = 5
WARM_UP = 3
STEPS = 10
LAYOUT_STEPS = 7
VOCABULARY = 8192
LENGTH = 256
SEQUENCES = 4
# Ranks that pass micro-batches to each other need some, so layouts are compared on a larger batch.
LAYOUT_SEQUENCES = 16
SHAPE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": False,
}
# Each with the options of `cairn train`; the first is what the others are compared with.
LAYOUTS = {
    "1 rank": ["--set", "batch.micro_batch=4"],
    "tp=2": ["--mesh", "tp=2", "--set", "batch.micro_batch=4"],
    "dp=2": ["--mesh", "dp=2", "--set", "batch.micro_batch=4"],
    "pp=2": ["--mesh", "pp=2", "--set", "batch.micro_batch=2"],
    "dp=2, zero 3": ["--mesh", "dp=2", "--set", "parallel.zero=3", "--set", "batch.micro_batch=4"],
}
# What a save costs falls on the steps right after it, so each group of steps between two saves is compared with itself: its first half, in which
# the save is written, with its second. Steps that are seconds apart differ less than runs that are minutes apart.
GROUP = 6
GROUPS = 25
CHECKPOINT_EVERY = 10
CHECKPOINT_STEPS = GROUP * (GROUPS + 1) + 1


def train_torch(steps, threads):
    """Trains with PyTorch in this process, and returns the seconds of each step."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = transformers.LlamaConfig(**SHAPE, use_cache=False)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, foreach=True)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH + 1))

    def step():
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return [seconds(step) for _ in range(steps)]


def write_data(folder, sequences):
    """Random tokens and the shape of the model, for `cairn train`."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    count = sequences * LENGTH + 1
    np.random.default_rng(0).integers(0, VOCABULARY, count).astype("<u2").tofile(folder / "tokens.bin")
    index = b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + bytes([8]) + np.array([1, 2], "<u8").tobytes()
    index += np.array([count], "<i4").tobytes() + np.array([0], "<i8").tobytes() + np.array([0, 1], "<i8").tobytes()
    (folder / "tokens.idx").write_bytes(index)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **SHAPE}))
    (folder / "run.toml").write_text(f"""
steps = {STEPS}
model.config = "config.json"
data.sources = "tokens.bin"
batch = {{sequences = {SEQUENCES}, length = {LENGTH}}}
checkpoints.folder = "run"
log.tensorboard = false
""")


def pinned(threads, command):
    """A command that runs on as many cores as it has threads."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    return ["taskset", "-c", cores, *map(str, command)]


def run_torch(threads):
    """Seconds of each step, and peak memory."""
    command = [sys.executable, __file__, "torch", STEPS, threads]
    done = subprocess.run(pinned(threads, command), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def run_cairn(folder, threads, *options):
    """The lines of the metrics, and peak memory."""
    shutil.rmtree(folder / "run", ignore_errors=True)
    return go_on(folder, threads, *options)


def go_on(folder, threads, *options):
    """As `run_cairn`, from where a run is."""
    command = [os.environ["CAIRN_BIN"], "train", folder / "run.toml", "--json", *options]
    done = subprocess.run(pinned(threads, command), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    return {"lines": [json.loads(line) for line in lines], "peak_bytes": json.loads(done.stdout)["peak_memory_bytes"]}


def step_seconds(run):
    """The median step, without the first ones."""
    each = run["seconds"] if "seconds" in run else [line["seconds"] for line in run["lines"]]
    return statistics.median(each[WARM_UP:])


def value(system, phase, unit, number, **target):
    """Prints one number."""
    line = {"system": system, "phase": phase, "unit": unit, "value": number}
    print(json.dumps(line | ({"target": target} if target else {})), flush=True)


def median_of(rounds, key):
    """The median over the rounds."""
    return statistics.median(key(one) for one in rounds)


def beside_torch(folder):
    """Steps and memory of both, on 1 and 2 threads."""
    for threads in (1, 2):
        rounds = []
        for _ in range(ROUNDS_BESIDE_TORCH):
            rounds.append((run_cairn(folder, threads), run_torch(threads)))
        for number, system in enumerate(("cairn", "torch")):
            phase = f"train, {threads} threads" if threads > 1 else "train, 1 thread"
            rate = median_of(rounds, lambda one, number=number: SEQUENCES * LENGTH / step_seconds(one[number]))
            value(system, phase, "tokens/s", rate)
            value(system, f"{phase}: peak memory", "MB", max(one[number]["peak_bytes"] for one in rounds) / 1e6)
        ratio = median_of(rounds, lambda one: step_seconds(one[1]) / step_seconds(one[0]))
        value("cairn", f"{phase}, over torch", "×", ratio, at_least=1.0)
        memory = median_of(rounds, lambda one: one[0]["peak_bytes"] / one[1]["peak_bytes"])
        value("cairn", f"{phase}, over torch: peak memory", "×", memory, at_most=0.5)


def layouts(folder):
    """Two ranks of one thread beside one rank of two."""
    rounds = {name: [] for name in LAYOUTS}
    for _ in range(ROUNDS):
        for name, options in LAYOUTS.items():
            size = ["--set", f"batch.sequences={LAYOUT_SEQUENCES}", "--set", f"steps={LAYOUT_STEPS}"]
            rounds[name].append(step_seconds(run_cairn(folder, 2, *size, *options)))
    (alone, *_) = rounds.values()
    for name, each in rounds.items():
        rate = statistics.median(LAYOUT_SEQUENCES * LENGTH / one for one in each)
        value("cairn", f"train, 2 cores, {name}", "tokens/s", rate)
        if each is not alone:
            ratio = statistics.median(one / other for one, other in zip(alone, each, strict=True))
            value("cairn", f"train, 2 cores, {name} over 1 rank", "×", ratio, at_least=0.8)


def lost_to_a_save(run):
    """Seconds that the steps after a save took more than those before the next one, and the median step."""
    times = [line["unix_seconds"] for line in run["lines"]]
    step = [after - before for before, after in itertools.pairwise(times)]
    # `step[0]` is the second step; the first group begins after the first save.
    groups = [step[at : at + GROUP] for at in range(GROUP - 1, len(step), GROUP)]
    halves = [(sum(group[: GROUP // 2]), sum(group[GROUP // 2 :])) for group in groups if len(group) == GROUP]
    return statistics.mean(first - second for first, second in halves), statistics.median(step)


def checkpoints(folder):
    """What a checkpoint every ten steps costs, and how soon the next launch steps again."""
    run = run_cairn(folder, 2, "--set", f"steps={CHECKPOINT_STEPS}", "--set", f"checkpoints.every={GROUP}")
    lost, step = lost_to_a_save(run)
    share = 100 * lost / (CHECKPOINT_EVERY * step)
    value("cairn", f"train, lost to a checkpoint every {CHECKPOINT_EVERY} steps", "%", share, at_most=2.0)
    files = [file for file in (folder / "run").rglob("*.safetensors") if f"{CHECKPOINT_STEPS:08}" in str(file)]
    excess = []
    for number in range(ROUNDS):
        drop_cache(folder / "run")
        ceiling = seconds(lambda: [read_direct(file) for file in files])
        drop_cache(folder / "run")
        begun = time.time()
        lines = go_on(folder, 2, "--set", f"steps={CHECKPOINT_STEPS + number + 1}")["lines"]
        excess.append(lines[-1]["unix_seconds"] - lines[-1]["seconds"] - begun - ceiling)
        files = [file for file in (folder / "run").rglob("*.safetensors") if f"{CHECKPOINT_STEPS + number + 1:08}" in str(file)]
    value("cairn", "train, resume to first step, beyond reading", "s", statistics.median(excess), at_most=1.0)


def read_direct(path):
    """Reads a file without the page cache."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        memory = memoryview(np.empty((1 << 23) + 4096, np.uint8))
        start = -memory.obj.ctypes.data % 4096
        while file.readinto(memory[start : start + (1 << 23)]):
            pass


def main():
    if sys.argv[1] == "torch":
        each = train_torch(int(sys.argv[2]), int(sys.argv[3]))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": each, "peak_bytes": peak}))
        return
    directory, _, _ = arguments()
    folder = Path(directory) / "train"
    write_data(folder, SEQUENCES * (CHECKPOINT_STEPS + ROUNDS + 1))
    beside_torch(folder)
    layouts(folder)
    checkpoints(folder)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
