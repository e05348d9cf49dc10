"""A training loop on one GPU that the benchmarks of this folder save: 0.94 B parameters in bf16 with fp32 master weights and Adam.

The state has 13.1 GB. ``accumulate`` micro-batches make a step as long as is asked for.
"""

from __future__ import annotations

import time
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

WIDTH, LAYERS, HEADS, VOCABULARY, BATCH, LENGTH = 2048, 16, 16, 32000, 8, 1024


class Block(nn.Module):
    """Attention and a feed-forward layer."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Any) -> Any:
        split = self.qkv(self.attention_norm(x)).view(x.shape[0], x.shape[1], 3, HEADS, WIDTH // HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.feed_norm(x))))


class Model(nn.Module):
    """A decoder."""

    def __init__(self, layers: int = LAYERS) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens: Any) -> Any:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), tokens.flatten())


class MasterAdam(torch.optim.Optimizer):
    """Adam on fp32 copies of bf16 weights, all tensors at once."""

    def __init__(self, parameters: Any, rate: float = 1e-4) -> None:
        super().__init__(parameters, {"lr": rate})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        weights = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        for weight in weights:
            if not self.state[weight]:
                master = weight.float().clone()
                self.state[weight] = {"master": master, "mean": torch.zeros_like(master), "square": torch.zeros_like(master)}
        states = [self.state[weight] for weight in weights]
        masters, means, squares = ([state[name] for state in states] for name in ("master", "mean", "square"))
        gradients = [weight.grad.float() for weight in weights]
        torch._foreach_lerp_(means, gradients, 0.1)
        torch._foreach_mul_(squares, 0.95)
        torch._foreach_addcmul_(squares, gradients, gradients, 0.05)
        roots = torch._foreach_sqrt(squares)
        torch._foreach_add_(roots, 1e-8)
        torch._foreach_addcdiv_(masters, means, roots, -self.param_groups[0]["lr"])
        torch._foreach_copy_(weights, masters)


class Training:
    """A model, its optimizer, and how long its steps take."""

    def __init__(self, accumulate: int = 1, layers: int = LAYERS) -> None:
        torch.manual_seed(0)
        self.model = Model(layers).cuda().bfloat16()
        self.optimizer = MasterAdam(self.model.parameters())
        self.accumulate = accumulate

    @property
    def state(self) -> dict[str, Any]:
        """What is saved."""
        return {"model": self.model, "optim": self.optimizer}

    def tensors(self) -> dict[str, Any]:
        """The same as plain tensors, for those who want them so."""
        found = {f"model.{name}": tensor.detach() for name, tensor in self.model.named_parameters()}
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        for parameter, state in self.optimizer.state.items():
            found |= {f"optim.{key}.{names[id(parameter)]}": tensor for key, tensor in state.items()}
        return found

    def step(self) -> float:
        """One step; the seconds it took."""
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(self.accumulate):
            tokens = torch.randint(0, VOCABULARY, (BATCH, LENGTH), device="cuda")
            (self.model(tokens) / self.accumulate).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        torch.cuda.synchronize()
        return time.perf_counter() - begun

    def steps(self, count: int) -> list[float]:
        """Some steps; the seconds each took."""
        return [self.step() for _ in range(count)]
