"""Trains with FSDP2 and torch.distributed.checkpoint, stored by Cairn; goes on from the last checkpoint on any number of ranks.

    torchrun --nproc-per-node 4 dcp_fsdp2.py checkpoints --steps 20
    torchrun --nproc-per-node 2 dcp_fsdp2.py checkpoints --steps 40      # goes on from step 20

What differs from DCP's own recipe is `storage_writer=` and `storage_reader=`.
"""

from __future__ import annotations

import argparse
import os
from concurrent.futures import Future
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from cairn.torch.dcp import Reader, Writer
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


class AppState(Stateful):
    """Model, optimizer and progress, as DCP asks for them."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model = model
        self.optimizer = optimizer
        self.step = 0

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {"model": model, "optim": optimizer, "step": self.step}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state_dict["model"], optim_state_dict=state_dict["optim"]
        )
        self.step = state_dict["step"]


def build() -> AppState:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    model.to(device)
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return AppState(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def train(app: AppState, folder: str, steps: int) -> None:
    device = next(app.model.parameters()).device
    # Training goes on while DCP's ranks talk to each other: they need a group of their own for that.
    group: Any = dist.new_group(backend="gloo")
    saving: object = None
    while app.step < steps:
        batch = torch.randn(8, 64, generator=torch.Generator().manual_seed(app.step)).to(device)
        loss = (app.model(batch) - batch).square().mean()
        loss.backward()
        app.optimizer.step()
        app.optimizer.zero_grad()
        app.step += 1
        if app.step % 10 == 0:
            wait(saving)
            saving = dcp.async_save({"app": app}, storage_writer=Writer(folder), process_group=group)
    wait(saving)
    print(f"rank {dist.get_rank()}: step {app.step}, loss {loss.item():.4f}")


def wait(saving: object) -> None:
    if isinstance(saving, Future):
        saving.result()


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder")
    arguments.add_argument("--steps", type=int, default=20)
    options = arguments.parse_args()
    dist.init_process_group("cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    app = build()
    if os.path.isdir(options.folder):
        dcp.load({"app": app}, storage_reader=Reader(options.folder))
        print(f"rank {dist.get_rank()}: going on from step {app.step}")
    train(app, options.folder, options.steps)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
