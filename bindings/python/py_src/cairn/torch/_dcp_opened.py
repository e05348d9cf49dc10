"""A checkpoint in DCP's terms: what it holds, and its plain values."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata

from .._checkpoint import Checkpoint
from ..errors import StateError
from ._dcp_items import ASSET
from ._dcp_tensors import torch_dtype


@dataclass(frozen=True)
class Opened:
    """A checkpoint as DCP sees it on this rank."""

    checkpoint: Checkpoint
    rank: int

    @cached_property
    def notes(self) -> dict[str, Any]:
        """What the writer left for DCP alone; nothing if it was another one."""
        asset = self.checkpoint.assets.get(ASSET)
        notes: dict[str, Any] = {} if asset is None else json.loads(asset)
        return notes

    @cached_property
    def values(self) -> dict[str, Any]:
        """The plain values: those all ranks share, or this rank's own if every rank saved for itself."""
        if not self.notes.get("values_per_rank"):
            return self.checkpoint.plain
        return self.checkpoint.of_rank(self.rank + 1) or self.checkpoint.of_rank(1)

    def stored(self, name: str) -> tuple[str, list[int]]:
        """A tensor's element type and shape."""
        found = self.checkpoint._source.find(name)
        if found is None:
            raise StateError(f"`{name}` is to be loaded, but step {self.checkpoint.step} has no such tensor")
        return found

    def entry(self, name: str) -> TensorStorageMetadata:
        """A tensor as one chunk."""
        dtype, shape = self.stored(name)
        whole = ChunkStorageMetadata(offsets=torch.Size([0] * len(shape)), sizes=torch.Size(shape))
        return TensorStorageMetadata(TensorProperties(dtype=torch_dtype(dtype, name)), torch.Size(shape), [whole])

    def pickled(self, name: str) -> io.BytesIO:
        """A value as planners want it: pickled, in memory only."""
        if name not in self.values:
            raise StateError(f"`{name}` is to be loaded, but step {self.checkpoint.step} has no such value")
        stream = io.BytesIO()
        torch.save(self.values[name], stream)
        stream.seek(0)
        return stream
