"""Saves every 5 steps for 200 steps under a fast optimizer, and compares each checkpoint with a copy made at the same step, bit by bit.

Run: ``python bench/gpu/exact.py FOLDER [--steps 200] [--every 5]``. Prints one line of JSON for each way to capture; exits with 1 if a
byte differs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import cairn

WAYS: dict[str, dict[str, Any]] = {
    "host image": {},
    "device scratch": {"scratch_bytes": 4 << 30},
    "half scratch": {"scratch_bytes": 200 << 20},
    "ring": {"staging_bytes": 64 << 20},
    "queue": {"overlap": "queue"},
    "no fence": {"fence": "none"},
    "read twice": {"read_twice": True},
}


def network() -> nn.Module:
    """Large tensors, small ones, and buffers that change in the forward pass."""
    torch.manual_seed(0)
    middle = [layer for _ in range(6) for layer in (nn.Linear(2048, 2048), nn.BatchNorm1d(2048), nn.ReLU())]
    return nn.Sequential(nn.Linear(64, 2048), *middle, nn.Linear(2048, 10)).cuda()


def clone(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """The state as it is now, copied where everybody can see it."""
    torch.cuda.synchronize()
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = {f"model.{name}": tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()}
    for parameter, state in optimizer.state.items():
        found |= {f"optim.state.{names[id(parameter)]}.{key}": value.cpu().clone() for key, value in state.items()}
    torch.cuda.synchronize()
    return found


def differing(run: cairn.Checkpointer, step: int, expected: dict[str, torch.Tensor]) -> list[str]:
    """The names whose bytes are not the expected ones."""
    opened = run.open(step)
    wrong = [name for name in expected if name not in opened]
    for name in expected.keys() - wrong:
        found = torch.from_numpy(opened[name][...].copy())
        if not torch.equal(found.reshape(-1).view(torch.uint8), expected[name].contiguous().reshape(-1).view(torch.uint8)):
            wrong.append(name)
    return wrong


def trial(way: str, folder: Path, steps: int, every: int) -> int:
    """Trains, saves and compares; returns how many checkpoints were wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    run = cairn.Checkpointer(folder, **WAYS[way])
    expected: dict[int, dict[str, torch.Tensor]] = {}
    wrong = 0
    for step in range(1, steps + 1):
        inputs = torch.randn(256, 64, device="cuda")
        model(inputs).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % every == 0:
            expected[step] = clone(model, optimizer)
            run.save(step, {"model": model, "optim": optimizer})
        if len(expected) >= 8 or step == steps:
            run.wait()
            for saved, tensors in expected.items():
                names = differing(run, saved, tensors)
                wrong += bool(names)
                if names:
                    print(json.dumps({"way": way, "step": saved, "wrong": names[:5]}), file=sys.stderr)
            expected.clear()
            shutil.rmtree(folder)
    report = {"way": way, "saves": steps // every, "wrong": wrong}
    print(json.dumps(report), flush=True)
    run.close()
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--every", type=int, default=5)
    parser.add_argument("--ways", default=",".join(WAYS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    ways = arguments.ways.split(",")
    wrong = sum(trial(way, arguments.folder / "run", arguments.steps, arguments.every) for way in ways)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
