"""DCP's storage writer: every rank writes its planned pieces, ``finish`` commits them.

A save of N ranks has N + 1 writers. Writers 1 to N are the ranks: each puts its tensors in ``write_data``. Writer 0 is ``finish``
on the coordinator, which has heard of every rank's success: it adds the plain values and commits. So nothing is ever committed
that DCP has not declared complete, and until then readers find the checkpoint before.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import BlockingAsyncStager
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from .._cairn import Memory, Outline, Run, Saving
from .._course import course_of
from .._retention import Keep
from ..errors import Error, StateError
from ._dcp_items import ASSET, closing, pieces
from ._dcp_ticket import Ticket, accept, issue

logger = logging.getLogger("cairn")

#: Who still watches over the last save to a place: a save notices its commit a moment after the coordinator has made it.
_watching: dict[str, threading.Thread] = {}
#: How long the next save to the same place gives it for that.
_PATIENCE_SECONDS = 1.0


class Writer(StorageWriter, BlockingAsyncStager):
    """Saves what DCP plans to a Cairn run.

    >>> dcp.save(state_dict, storage_writer=Writer("checkpoints/100"))
    >>> dcp.save(state_dict, storage_writer=Writer("run", step=100, keep=cairn.Keep(last=3)))

    It is its own stager for ``dcp.async_save`` (one copy to the host), unless another is passed, and it can be pickled, so that
    ``AsyncCheckpointerType.PROCESS`` works.

    Args:
        url: where the run lies. ``checkpoint_id`` of ``dcp.save`` replaces it.
        step: the step to save. Without it the place holds one checkpoint, as a folder of DCP does: a repeated save becomes the
            next step, and the one before is deleted when it is committed.
        overwrite: whether ``step`` may be committed already.
        keep: which steps stay after a save; without it only the new one if no ``step`` is given, else all.
        tags: words to find the step by; a step that has one is never deleted by ``keep``.
        commit_timeout: seconds to wait for the slowest rank's bytes after all ranks have handed them over.
        staging_bytes: the most memory for captured bytes; without a limit as much as the rank writes.
        cache_staged_state_dict: whether ``dcp.async_save`` keeps its copy for the next one. Then wait for each save before the next.
    """

    def __init__(
        self,
        url: str | os.PathLike[str] | None = None,
        *,
        step: int | None = None,
        overwrite: bool = True,
        keep: Keep | None = None,
        tags: Sequence[str] = (),
        commit_timeout: float = 600.0,
        staging_bytes: int | None = None,
        cache_staged_state_dict: bool = False,
    ) -> None:
        BlockingAsyncStager.__init__(self, cache_staged_state_dict=cache_staged_state_dict)
        self._url = None if url is None else os.fspath(url)
        self._step = step
        self._overwrite = overwrite
        self._keep = Keep(last=1) if keep is None and step is None else keep
        self._tags = list(tags)
        self._options: dict[str, Any] = {"commit_timeout": commit_timeout, "staging_bytes": staging_bytes}
        self._coordinator = True
        self._rank: int | None = None
        self._ticket: Ticket | None = None
        self._saving: Saving | None = None

    @property
    def checkpoint_id(self) -> str:
        """Where the run lies."""
        if self._url is None:
            raise StateError("this Writer does not know where to write", hint="pass it a path, or pass `checkpoint_id`")
        return self._url

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begins a new save, at another place if one is given."""
        if checkpoint_id is not None:
            self._url = os.fspath(checkpoint_id)
        self._ticket = self._saving = None

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Learns this rank's part in the save: its number if ranks plan for themselves (``use_collectives=False``)."""
        self._coordinator = is_coordinator
        self._rank = None if kwargs.get("use_collectives", True) else int(kwargs.get("rank", 0))

    def storage_meta(self) -> StorageMeta:
        """What planners may know of the place."""
        return StorageMeta(checkpoint_id=self.checkpoint_id)

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Leaves the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Gives every rank a ticket: the name of this save, and which writer of how many it is."""
        return issue(plans, self.checkpoint_id, self._step, self._rank)

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Writes this rank's pieces. What fails here fails ``dcp.save`` on every rank.

        Raises:
            StateError: if an item cannot be kept without pickle; the message names it.
            StoreError: if the disk or object store refuses.
        """
        watcher = _watching.pop(self.checkpoint_id, None)
        if watcher is not None:
            watcher.join(_PATIENCE_SECONDS)
        ticket = self._ticket = accept(plan, self.checkpoint_id, self._step)
        run = self._open(ticket, ticket.rank + 1)
        try:
            tensors, values, results = pieces(plan, planner, ticket.rank + 1)
        except BaseException as error:
            run.give_up(ticket.step, f"{type(error).__name__}: {error}")
            raise
        rank_values = {} if self._rank is None else values
        self._saving = self._save(run, ticket, ticket.rank + 1, tensors, rank_values=rank_values)
        _watch(self.checkpoint_id, run, self._saving)
        _wait_until_written(self._saving)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Commits the save, then deletes the steps that are not to be kept. Returns when the commit is durable.

        Raises:
            RankFailed: if a rank's bytes did not become durable. Nothing is committed then.
        """
        ticket, own = self._ticket, self._saving
        if ticket is None or own is None:
            raise StateError("`finish` without `write_data`: this rank has written nothing")
        if not self._coordinator:
            own.wait()
            return
        run = self._open(ticket, 0)
        try:
            tensors, values, asset = closing(metadata, results, per_rank=self._rank is not None)
        except BaseException as error:
            run.give_up(ticket.step, f"{type(error).__name__}: {error}")
            raise
        course = course_of(self.checkpoint_id)
        course.tell_again(run)
        self._save(run, ticket, 0, tensors, values, asset=asset).wait()
        course.saved(run, ticket.step, metadata.state_dict_metadata.keys())
        self._prune(run)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether this is a place a run can lie at: a path or a ``file://`` URL."""
        text = os.fspath(checkpoint_id)
        return bool(text) and ("://" not in text or text.startswith("file://"))

    def _open(self, ticket: Ticket, writer: int) -> Run:
        # The coordinator has made the name up, so that no other launch has it.
        return Run(self.checkpoint_id, writer, ticket.size + 1, ticket.name, unique=True, **self._options)

    def _save(
        self,
        run: Run,
        ticket: Ticket,
        writer: int,
        tensors: list[Any],
        values: dict[str, Any] | None = None,
        *,
        rank_values: dict[str, Any] | None = None,
        asset: bytes | None = None,
    ) -> Saving:
        return run.save(
            ticket.step,
            Outline(writer, [(name, spec, memory.nbytes, strides) for name, spec, memory, strides in tensors]),
            Memory([memory for _, _, memory, _ in tensors]),
            json.dumps(values or {}),
            json.dumps(rank_values or {}),
            self._tags,
            streams={},
            owners=None,
            replace=self._overwrite,
            assets=None if asset is None else {ASSET: asset},
        )

    def _prune(self, run: Run) -> None:
        keep = self._keep
        if keep is None:
            return
        try:
            run.prune(keep._policy())
        except Error:
            logger.exception("`%s`: old steps could not be deleted", self.checkpoint_id)

    def __getstate__(self) -> dict[str, Any]:
        told = None if self._url is None else course_of(self._url).told
        return self.__dict__ | {"_ticket": None, "_saving": None, "state_dict_cache": None, "_told": told}

    def __setstate__(self, state: dict[str, Any]) -> None:
        told = state.pop("_told")
        self.__dict__ |= state
        if told is not None and self._url is not None:
            course_of(self._url).hear(told)

    def __repr__(self) -> str:
        return f"<Writer {self._url!r}>"


def _wait_until_written(saving: Saving) -> None:
    """Waits until this rank's bytes are handed to the disk, or could not be; ``finish`` waits until all are durable."""
    pause = 0.0005
    while not saving.is_done():
        written, total = saving.progress()
        if written == total:
            return
        time.sleep(pause)
        pause = min(pause * 2, 0.02)
    saving.wait()


def _watch(url: str, run: Run, saving: Saving) -> None:
    """Holds on to ``run`` until the save ends. Letting go of it would wait for that, maybe for a coordinator that is gone."""

    def watch(run: Run) -> None:
        # Not `saving.wait()`: at exit the interpreter stops this thread, and it must not be in native code then.
        while not saving.is_done():
            time.sleep(0.02)

    _watching[url] = threading.Thread(target=watch, args=(run,), name="cairn-dcp", daemon=True)
    _watching[url].start()
