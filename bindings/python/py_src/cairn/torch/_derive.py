"""Whether tensors on a device are casts of others, found out on that device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .._part import DeviceMemory

_DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}


@dataclass(frozen=True)
class _View:
    """Memory on a device, as torch takes it from other libraries."""

    memory: DeviceMemory
    typestr: str

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        count = self.memory.len_bytes // int(self.typestr[2:])
        return {"shape": (count,), "typestr": self.typestr, "data": (self.memory.address, False), "version": 2}


def casts_hold(claims: Sequence[tuple[DeviceMemory, DeviceMemory, str]]) -> list[bool]:
    """Which of the claims (source of type f32, target, type of the target; all on one device) hold on every element.

    The comparison comes after all work on the current stream, so it sees what a save sees. It waits for the device once.
    NaN counts as equal to NaN, whatever its payload.
    """
    with torch.no_grad():
        return torch.stack([_holds(*claim) for claim in claims]).tolist()


def _holds(source: DeviceMemory, target: DeviceMemory, dtype: str) -> torch.Tensor:
    device = torch.device("cuda", source.device)
    if not target.len_bytes:
        return torch.tensor(True, device=device)
    wide = torch.as_tensor(_View(source, "<f4"), device=device)
    bits = torch.as_tensor(_View(target, "<i2"), device=device)
    cast = wide.to(_DTYPES[dtype])
    same = cast.view(torch.int16) == bits
    return (same | (cast.isnan() & bits.view(_DTYPES[dtype]).isnan())).all()
