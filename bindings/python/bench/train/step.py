"""Training steps of `cairn train` beside PyTorch eager: tokens a second and peak memory, on 1 and 2 threads.

    CAIRN_BIN=target/release/cairn python bindings/python/bench/train/step.py --rounds 5 --out table.md

Both train the same 21 M parameter Llama (4 layers of 512, 1024 tokens a step, f32, AdamW) on the same random tokens. PyTorch runs transformers' model
with scaled-dot-product attention and the foreach AdamW. Sides take turns, each in a process of its own that is pinned to its cores; the first steps
are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

VOCABULARY = 8192
SEQUENCES = 4
LENGTH = 256
WARM_UP = 3
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 512,
    "intermediate_size": 1376,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "max_position_embeddings": LENGTH,
    "tie_word_embeddings": False,
}


def measure_torch(steps: int, threads: int) -> dict[str, float]:
    """Trains with PyTorch in this process."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    imported = peak_bytes()
    config = transformers.LlamaConfig(**SHAPE, use_cache=False)
    auto: Any = transformers.AutoModelForCausalLM
    model = auto.from_config(config, attn_implementation="sdpa").float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1, foreach=True)
    tokens = torch.randint(0, VOCABULARY, (SEQUENCES, LENGTH + 1))
    seconds = []
    for _ in range(steps):
        begun = time.perf_counter()
        logits = model(tokens[:, :-1]).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        seconds.append(time.perf_counter() - begun)
    return {
        "tokens_per_second": rate(seconds),
        "peak_bytes": peak_bytes(),
        "import_bytes": imported,
    }


def measure_cairn(binary: str, steps: int, folder: Path) -> dict[str, float]:
    """Trains with the command."""
    write_run(folder, steps)
    done = subprocess.run([binary, "train", folder / "run.toml", "--json"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    lines = (folder / "run" / "metrics.jsonl").read_text().splitlines()
    seconds = [json.loads(line)["seconds"] for line in lines]
    return {"tokens_per_second": rate(seconds), "peak_bytes": json.loads(done.stdout)["peak_memory_bytes"]}


def write_run(folder: Path, steps: int) -> None:
    import numpy as np

    count = SEQUENCES * LENGTH * steps + 1
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, count)
    tokens.astype("<u2").tofile(folder / "tokens.bin")
    index = b"MMIDIDX\x00\x00" + np.array([1], "<u8").tobytes() + bytes([8]) + np.array([1, 2], "<u8").tobytes()
    index += np.array([count], "<i4").tobytes() + np.array([0], "<i8").tobytes() + np.array([0, 1], "<i8").tobytes()
    (folder / "tokens.idx").write_bytes(index)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"], **SHAPE}))
    (folder / "run.toml").write_text(f"""
steps = {steps}
model.config = "config.json"
data.sources = "tokens.bin"
batch = {{sequences = {SEQUENCES}, length = {LENGTH}}}
checkpoints.folder = "run"
log.tensorboard = false
""")


def rate(seconds: list[float]) -> float:
    """Tokens a second of the median step."""
    return SEQUENCES * LENGTH / statistics.median(seconds[WARM_UP:])


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_side(side: str, threads: int, steps: int) -> dict[str, float]:
    """Measures a side in a process of its own, on as many cores as it has threads."""
    cores = ",".join(map(str, sorted(os.sched_getaffinity(0))[:threads]))
    command = ["taskset", "-c", cores, sys.executable, __file__, "--side", side, "--threads", str(threads), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def table(found: dict[tuple[str, int], list[dict[str, float]]]) -> str:
    """Medians over the rounds, and the ratios of the same round."""
    lines = ["| threads | cairn tokens/s | torch tokens/s | ratio | cairn peak | torch peak (import) |", "|---|---|---|---|---|---|"]
    for threads in sorted({threads for _, threads in found}):
        ours, theirs = found["cairn", threads], found["torch", threads]
        median = {side: statistics.median(one["tokens_per_second"] for one in rounds) for side, rounds in (("c", ours), ("t", theirs))}
        ratio = statistics.median(a["tokens_per_second"] / b["tokens_per_second"] for a, b in zip(ours, theirs, strict=True))
        mega = [f"{max(one[key] for one in rounds) / 1e6:.0f} MB" for rounds, key in ((ours, "peak_bytes"), (theirs, "peak_bytes"), (theirs, "import_bytes"))]
        lines.append(f"| {threads} | {median['c']:.0f} | {median['t']:.0f} | {ratio:.2f} | {mega[0]} | {mega[1]} ({mega[2]}) |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--side", choices=["cairn", "torch"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side == "torch":
        print(json.dumps(measure_torch(options.steps, options.threads[0])))
    elif options.side == "cairn":
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure_cairn(os.environ["CAIRN_BIN"], options.steps, Path(folder))))
    else:
        found: dict[tuple[str, int], list[dict[str, float]]] = {}
        for _ in range(options.rounds):
            for threads in options.threads:
                for side in ("cairn", "torch"):
                    found.setdefault((side, threads), []).append(one_side(side, threads, options.steps))
        text = table(found)
        print(text, end="")
        if options.out:
            options.out.write_text(text)


if __name__ == "__main__":
    main()
