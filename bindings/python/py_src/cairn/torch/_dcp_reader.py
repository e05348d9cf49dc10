"""DCP's storage reader: any region of any tensor, straight into the planner's memory."""

from __future__ import annotations

import io
import json
import os
from bisect import bisect
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .._cairn import Spec, is_run
from .._checkpoint import Checkpoint
from .._checkpointer import Checkpointer
from .._opening import open as open_checkpoint
from .._values import decode
from .._world import World
from ..errors import StateError
from ._dcp_items import ASSET
from ._dcp_tensors import memory, torch_dtype

#: The most memory for tensors that cannot be read in place: those of other devices, types or strides.
STAGING_BYTES = 1 << 30


class Reader(StorageReader):
    """Loads what DCP plans from a Cairn run, or from anything else that ``cairn.open`` opens.

    >>> dcp.load(state_dict, storage_reader=Reader("checkpoints/100"))

    Every tensor is shown to planners as one chunk, whatever ranks wrote it: a rank's part of it is one item, read once.

    Args:
        url: where the run lies. ``checkpoint_id`` of ``dcp.load`` replaces it.
        step: the step; by default the newest good one, the same for all ranks.
        verify: whether checksums are checked while reading.
    """

    def __init__(
        self, url: str | os.PathLike[str] | None = None, *, step: int | Literal["latest"] = "latest", verify: bool = True
    ) -> None:
        self._url = None if url is None else os.fspath(url)
        self._step = step
        self._verify = verify
        self._opened: Checkpoint | None = None

    @property
    def checkpoint_id(self) -> str:
        """Where the run lies."""
        if self._url is None:
            raise StateError("this Reader does not know where to read", hint="pass it a path, or pass `checkpoint_id`")
        return self._url

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a new load, from another place if one is given."""
        if checkpoint_id is not None:
            self._url = os.fspath(checkpoint_id)
        self._opened = None

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """What the checkpoint holds, as DCP describes it."""
        opened = self._opened = self._open(None if self._step == "latest" else self._step)
        notes, values = _notes(opened), _values(opened)
        entries: dict[str, STORAGE_TYPES] = {name: _entry(opened, name) for name in opened}
        entries |= {name: BytesStorageMetadata() for name in values}
        paths = notes.get("planner_data")
        return Metadata(
            state_dict_metadata=entries,
            planner_data={name: (name,) for name in entries} if paths is None else decode(paths),
            storage_meta=StorageMeta(checkpoint_id=self.checkpoint_id),
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Leaves the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Tells every rank the coordinator's step: a newer one may have been committed while they looked."""
        for plan in plans:
            plan.storage_data = None if self._opened is None else self._opened.step
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads all items of the plan, tensors in as few passes as memory for staging allows.

        Raises:
            Damaged: if bytes are not what was written. The state then holds a mixture and must not be used.
        """
        opened = self._opened
        if opened is None or opened.step != plan.storage_data:
            opened = self._opened = self._open(plan.storage_data)
        values, batch = _values(opened), _Batch(opened, self._verify)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, _pickled(values, item.storage_index.fqn))
            else:
                batch.add(item, planner)
        batch.load()
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a place a run can lie at: a path or a ``file://`` URL."""
        text = os.fspath(checkpoint_id)
        return bool(text) and ("://" not in text or text.startswith("file://"))

    def _open(self, step: int | None) -> Checkpoint:
        url = self.checkpoint_id
        if step is not None or is_run(url):
            return Checkpointer(url, world=World()).open("latest" if step is None else step)
        return open_checkpoint(url, world=World())

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __repr__(self) -> str:
        return f"<Reader {self._url!r}>"


class _Batch:
    """Items that are read together, and what is to be done with them afterwards."""

    def __init__(self, opened: Checkpoint, verify: bool) -> None:
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
        dtype, shape = _stored(self._opened, name)
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
            self._opened._source.load(self._slots, ["missing", "mismatched"], verify=self._verify)
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


def _entry(opened: Checkpoint, name: str) -> TensorStorageMetadata:
    dtype, shape = _stored(opened, name)
    whole = ChunkStorageMetadata(offsets=torch.Size([0] * len(shape)), sizes=torch.Size(shape))
    return TensorStorageMetadata(TensorProperties(dtype=torch_dtype(dtype, name)), torch.Size(shape), [whole])


def _stored(opened: Checkpoint, name: str) -> tuple[str, list[int]]:
    found = opened._source.find(name)
    if found is None:
        raise StateError(f"`{name}` is to be loaded, but step {opened.step} has no such tensor")
    return found


def _notes(opened: Checkpoint) -> dict[str, Any]:
    asset = opened.assets.get(ASSET)
    notes: dict[str, Any] = {} if asset is None else json.loads(asset)
    return notes


def _values(opened: Checkpoint) -> dict[str, Any]:
    """The plain values: those all ranks share, or this rank's own if every rank saved for itself."""
    if not _notes(opened).get("values_per_rank"):
        return opened.plain
    rank = dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
    return opened.of_rank(rank + 1) or opened.of_rank(1)


def _pickled(values: dict[str, Any], name: str) -> io.BytesIO:
    """The value as planners want it: pickled, in memory only."""
    if name not in values:
        raise StateError(f"`{name}` is to be loaded, but the checkpoint has no such value")
    stream = io.BytesIO()
    torch.save(values[name], stream)
    stream.seek(0)
    return stream
