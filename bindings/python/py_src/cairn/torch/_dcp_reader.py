"""DCP's storage reader: any region of any tensor, straight into the planner's memory."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Literal

import torch.distributed as dist
from torch.distributed.checkpoint.metadata import STORAGE_TYPES, BytesStorageMetadata, Metadata, StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from .._checkpointer import Checkpointer
from .._course import course_of
from .._opening import open as open_checkpoint
from .._values import decode
from .._world import World
from ..errors import Damaged, StateError
from ._dcp_batch import Batch
from ._dcp_opened import Opened


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
        self._opened: Opened | None = None

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
        entries: dict[str, STORAGE_TYPES] = {name: opened.entry(name) for name in opened.checkpoint}
        entries |= {name: BytesStorageMetadata() for name in opened.values}
        paths = opened.notes.get("planner_data")
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
            plan.storage_data = None if self._opened is None else self._opened.checkpoint.step
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Reads all items of the plan, tensors in as few passes as memory for staging allows.

        Raises:
            Damaged: if bytes are not what was written. The state then holds a mixture and must not be used.
        """
        opened = self._opened
        if opened is None or opened.checkpoint.step != plan.storage_data:
            opened = self._opened = self._open(plan.storage_data)
        batch = Batch(opened, self._verify)
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, opened.pickled(item.storage_index.fqn))
            else:
                batch.add(item, planner)
        batch.load()
        # The plan has only what this rank holds, the planner all of the state.
        names = {item.storage_index.fqn for item in plan.items}.union(getattr(planner, "state_dict", ()))
        course_of(self.checkpoint_id).loaded(opened.checkpoint._source, names)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a place a run can lie at: a path or a ``file://`` URL."""
        text = os.fspath(checkpoint_id)
        return bool(text) and ("://" not in text or text.startswith("file://"))

    def _open(self, step: int | None) -> Opened:
        """Opens a step, or the newest. One rank looks for the newest that is whole; the others are told before they read."""
        url, rank = self.checkpoint_id, _rank()
        run = Checkpointer(url, world=World())
        if step is not None:
            return Opened(run.open(step), rank)
        steps = run.steps()
        if not steps:
            return Opened(open_checkpoint(url, world=World()), rank)
        with suppress(Damaged):
            if rank:
                return Opened(run.open(steps[-1]), rank)
        return Opened(run.open(), rank)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None}

    def __repr__(self) -> str:
        return f"<Reader {self._url!r}>"


def _rank() -> int:
    return dist.get_rank() if dist.is_available() and dist.is_initialized() else 0
