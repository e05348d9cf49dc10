"""Items of DCP's load plans that are read together, straight into their tensors where that is possible."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint.planner import LoadPlanner, ReadItem

from .._cairn import Spec
from ._dcp_opened import Opened
from ._dcp_tensors import memory, torch_dtype

#: The most memory for tensors that cannot be read in place: those of other devices, types or strides.
STAGING_BYTES = 1 << 30


class Batch:
    """Items that are read together, and what is to be done with them afterwards."""

    def __init__(self, opened: Opened, verify: bool) -> None:
        self._opened = opened
        self._verify = verify
        self._slots: list[tuple[str, Spec, int, Any, None]] = []
        self._after: list[Callable[[], None]] = []
        self._staged_bytes = 0
        #: The memory that is read into, from address to address, in order: the same cannot be lent twice.
        self._lent: list[tuple[int, int]] = []

    def add(self, item: ReadItem, planner: LoadPlanner) -> None:
        """Plans to read an item; reads what is planned if memory for staging is used up."""
        target = planner.resolve_tensor(item).detach()
        name = item.storage_index.fqn
        dtype, shape = self._opened.stored(name)
        kind = torch_dtype(dtype, name)
        buffer = target
        if target.numel() and not self._lend(target, kind):
            if self._staged_bytes + target.numel() * kind.itemsize > STAGING_BYTES:
                self.load()
            buffer = torch.empty(target.shape, dtype=kind)
            self._staged_bytes += buffer.nbytes
        if target.numel():
            origin = item.storage_index.offset or [0] * len(shape)
            offset = [chunk + inside for chunk, inside in zip(origin, item.storage_offsets, strict=True)]
            spec = Spec.listed(dtype, shape, {0: [(offset, item.lengths, None)]})
            self._slots.append((name, spec, 0, memory(buffer), None))

        def after() -> None:
            if buffer is not target:
                target.copy_(buffer)
            planner.commit_tensor(item, target)

        self._after.append(after)

    def load(self) -> None:
        """Reads everything that is planned."""
        if self._slots:
            self._opened.checkpoint._source.load(self._slots, ["missing", "mismatched"], verify=self._verify)
        for after in self._after:
            after()
        self._slots, self._after, self._lent, self._staged_bytes = [], [], [], 0

    def _lend(self, target: torch.Tensor, kind: torch.dtype) -> bool:
        """Whether the bytes can be read right into ``target``, where no other item's go."""
        plain = target.device.type == "cpu" and target.dtype == kind and target.is_contiguous()
        if not plain or target.is_conj() or target.is_neg():
            return False
        start, end = target.data_ptr(), target.data_ptr() + target.nbytes
        place = bisect(self._lent, (start, end))
        if place and self._lent[place - 1][1] > start or place < len(self._lent) and self._lent[place][0] < end:
            return False
        self._lent.insert(place, (start, end))
        return True
