"""Trains a small model with FSDP2, saves in the background, and goes on from the newest checkpoint on any number of ranks.

    torchrun --nproc-per-node 4 torch_fsdp2.py runs/demo --steps 20
    torchrun --nproc-per-node 2 torch_fsdp2.py runs/demo --steps 40      # goes on from step 20
"""

from __future__ import annotations

import argparse
from typing import Any

import cairn
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard


def build() -> nn.Module:
    layers: list[nn.Module] = [nn.Embedding(1000, 64)]
    layers += [nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64), nn.LayerNorm(64)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(64, 1000))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("run")
    arguments.add_argument("--steps", type=int, default=20)
    arguments.add_argument("--save-every", type=int, default=5)
    chosen = arguments.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    if device == "cuda":
        torch.cuda.set_device(rank % torch.cuda.device_count())
    torch.manual_seed(rank)

    mesh = init_device_mesh(device, (size,), mesh_dim_names=("dp",))
    model = build().to(device)
    for layer in model.children():
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=100)

    state: dict[str, Any] = {"model": model, "optim": optimizer, "schedule": schedule, "rng": cairn.Rng(), "step": 0}
    with cairn.Checkpointer(chosen.run, keep=cairn.Keep(last=2)) as checkpointer:
        if checkpointer.steps():
            state = checkpointer.load(into=state).state
        for step in range(state["step"] + 1, chosen.steps + 1):
            tokens = torch.randint(1000, (8, 16), device=device)
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            state["step"] = step
            if step % chosen.save_every == 0:
                checkpointer.save(step, state)  # Returns when the state is captured; training goes on.
            if rank == 0:
                print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
