"""A training job whose state goes on changing behind every save, and what its state was at each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

#: The width of its layers: 50 MB of weights and moments.
WIDTH = 1024 if torch.cuda.is_available() else 128


class Job:
    """Large and small tensors on a device, buffers of a forward pass, two optimizers, tensors of odd kinds and tensors of the host."""

    def __init__(self, device: str, seed: int = 0) -> None:
        self.device = device
        torch.manual_seed(seed)
        middle = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.ReLU())]
        self.model = nn.Sequential(nn.Linear(64, WIDTH), *middle, nn.Linear(WIDTH, 10)).to(device)
        layers = list(self.model.children())
        self.optimizers = {
            "adamw": torch.optim.AdamW((p for layer in layers[:7] for p in layer.parameters()), lr=1e-2),
            "sgd": torch.optim.SGD((p for layer in layers[7:] for p in layer.parameters()), lr=1e-2, momentum=0.9),
        }
        self.odd = {
            "transposed": torch.randn(300, 200, device=device).to(torch.bfloat16).t(),
            "flags": torch.rand(1000, device=device) > 0.5,
            "scalar": torch.tensor(float(seed), device=device),
            "empty": torch.empty(0, 3, device=device),
            "fp8": torch.randn(5000, device=device).to(torch.float8_e4m3fn),
            "count": torch.full((7,), seed, dtype=torch.int64, device=device),
        }
        # Not pinned: a save waits for the device then, and less would be under way.
        self.host = {"plain": torch.randn(100_000)}

    @property
    def state(self) -> dict[str, Any]:
        return {"model": self.model, "optim": self.optimizers, "odd": self.odd, "host": self.host}

    def train(self) -> None:
        """Changes everything on the device."""
        inputs = torch.randn(32, 64, device=self.device)
        self.model(inputs).square().mean().backward()
        for optimizer in self.optimizers.values():
            optimizer.step()
            optimizer.zero_grad()
        self.odd["transposed"].add_(1)
        self.odd["flags"].logical_not_()
        self.odd["scalar"].add_(1)
        self.odd["fp8"].copy_(torch.randn(5000, device=self.device))
        self.odd["count"].add_(1)

    def change_host(self) -> None:
        """Changes what lies on the host, as is allowed as soon as a save has returned."""
        for tensor in self.host.values():
            tensor.add_(1)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Every tensor, by the name it is stored under."""
        found = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        for kind, optimizer in self.optimizers.items():
            for parameter, state in optimizer.state.items():
                found |= {f"optim.{kind}.state.{names[id(parameter)]}.{key}": value for key, value in state.items() if value is not None}
        found |= {f"odd.{name}": tensor for name, tensor in self.odd.items()}
        return found | {f"host.{name}": tensor for name, tensor in self.host.items()}

    def clone(self) -> dict[str, torch.Tensor]:
        """The state as it is at this place in the device's work."""
        return {name: tensor.detach().clone() for name, tensor in self.tensors().items()}


def differing(expected: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> list[str]:
    """The names whose bytes are not the expected ones."""
    return [name for name in expected if name not in found or not torch.equal(as_bytes(expected[name]), as_bytes(found[name]))]


def differing_files(expected: dict[str, torch.Tensor], opened: Any) -> list[str]:
    """The names whose bytes in the files, as numpy reads them, are not the expected ones."""
    wrong = []
    for name, tensor in expected.items():
        # NumPy alone has no type for the others.
        if tensor.dtype in (torch.float32, torch.int64, torch.bool):
            found = torch.from_numpy(np.array(opened[name][...], copy=True)) if name in opened else None
            if found is None or found.shape != tensor.shape or not torch.equal(as_bytes(found), as_bytes(tensor.cpu())):
                wrong.append(name)
    return wrong


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Averages:
    """Running averages of weights in float64."""

    def __init__(self, decay: float) -> None:
        self.decay, self.means = decay, dict[str, Any]()

    def update(self, model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            weight = parameter.detach().double()
            self.means[name] = self.means[name] + (1 - self.decay) * (weight - self.means[name]) if name in self.means else weight.clone()

    def clone(self) -> dict[str, Any]:
        return {name: mean.clone() for name, mean in self.means.items()}


def differing_averages(expected: dict[str, Any], opened: Any, label: str) -> list[str]:
    """The averages that are not the expected ones, to the last place of fp32."""
    wrong = []
    for name, mean in expected.items():
        stored = np.asarray(opened[f"ema/{label}/model.{name}"][...], dtype=np.float64)
        own = mean.cpu().numpy()
        if not (np.abs(stored - own) <= np.spacing(np.abs(own).astype(np.float32))).all():
            wrong.append(name)
    return wrong
