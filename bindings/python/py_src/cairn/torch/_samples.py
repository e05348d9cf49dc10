"""Some bytes of tensors on GPUs, copied there in the order of their work and fetched later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from .._part import DeviceMemory

#: Torch has not typed all of it.
cuda: Any = torch.cuda
_Wanted = tuple[str, DeviceMemory, list[tuple[int, int]]]


class _Bytes:
    """Memory of a device as torch takes it over, without a copy."""

    def __init__(self, memory: DeviceMemory) -> None:
        self.__cuda_array_interface__ = {
            "shape": (memory.len_bytes,),
            "typestr": "|u1",
            "data": (memory.address, False),
            "version": 3,
        }


def copied(wanted: list[_Wanted]) -> Callable[[], list[tuple[str, bytes]]]:
    """Copies ranges of each memory; what is returned fetches them, and waits for that on the caller's thread."""
    by_device: defaultdict[int, list[_Wanted]] = defaultdict(list)
    for one in wanted:
        by_device[one[1].device].append(one)
    copies = [(device, group, *_copied(device, group)) for device, group in by_device.items()]

    def fetch() -> list[tuple[str, bytes]]:
        found = []
        for device, group, joint, event in copies:
            event.synchronize()
            with cuda.stream(cuda.Stream(device)):
                raw = joint.cpu().numpy().tobytes()
            start = 0
            for name, _, ranges in group:
                size = sum(end - begin for begin, end in ranges)
                found.append((name, raw[start : start + size]))
                start += size
        return found

    return fetch


def _copied(device: int, group: list[_Wanted]) -> tuple[Any, Any]:
    """All ranges of one device in one tensor, and an event behind the copy."""
    with cuda.device(device), torch.no_grad():
        pieces = []
        for _, memory, ranges in group:
            whole = torch.as_tensor(_Bytes(memory), device=f"cuda:{device}")
            pieces += [whole[begin:end] for begin, end in ranges]
        event = cuda.Event()
        joint = torch.cat(pieces)
        event.record()
    return joint, event
