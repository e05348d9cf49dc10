"""The handle of a save that goes on in the background."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast, overload

from . import _cairn
from ._logger import logger
from ._progress import Progress
from .errors import StateError

if TYPE_CHECKING:
    from concurrent.futures import Future

#: How safe a save is: captured, on the fast tier, or where steps stay. On one store the last two are one.
Level = Literal["staged", "local", "durable"]


@dataclass(frozen=True)
class SaveReport:
    """What a finished save did."""

    step: int
    #: The attempt that holds it.
    attempt: str
    #: The bytes this rank wrote.
    len_bytes: int
    #: How long it took to plan; next to nothing if the state had the same outline as the one before.
    planning_seconds: float
    #: From the call of ``save`` until this rank's bytes were durable.
    durable_seconds: float
    #: From the call of ``save`` until the step was committed; on tiers, until the fast one had it.
    committed_seconds: float
    #: How long ``save`` held its caller.
    stall_seconds: float
    #: On tiers, from the call of ``save`` until the durable one had the step; None until then.
    uploaded_seconds: float | None = None
    #: Tensors of this rank with the same bytes as in the save before.
    unchanged: tuple[str, ...] = ()
    #: How the state was captured: ``host image``, ``device scratch`` or ``ring``.
    capture: str = ""
    #: What is worth knowing, such as why a fence had to wait.
    notes: tuple[str, ...] = ()
    #: ``training stall 4 ms of 6.1 s``.
    headline: str = ""
    #: Where the time went, as ``cairn report`` draws it.
    timeline: dict[str, Any] = field(default_factory=dict, repr=False)


class Saving:
    """A save in the background: wait for it, await it, or hand out :attr:`future`.

    Dropping the handle does not stop the save; a failure nobody looked at is raised by the next ``save`` or ``close``.
    """

    def __init__(self, native: _cairn.Saving) -> None:
        self._native = native
        self._process = os.getpid()
        self._future: Future[SaveReport] | None = None

    @property
    def step(self) -> int:
        """The step being saved."""
        return self._native.step

    @property
    def staged(self) -> bool:
        """Whether the state has been captured. On the CPU it has when ``save`` returns; tensors on a device are fenced until then."""
        return self._native.is_captured()

    @property
    def skipped(self) -> bool:
        """Whether the step was passed over, because the save before was not done."""
        return self._native.is_skipped()

    def cancel(self) -> None:
        """Asks the save to stop. Nothing is committed, unless the commit is already under way."""
        self._native.cancel()

    @property
    def stall_seconds(self) -> float:
        """How long ``save`` held its caller."""
        return self._native.stall

    def done(self) -> bool:
        """Whether the save has ended, well or not."""
        return self._native.is_done()

    def progress(self) -> tuple[int, int]:
        """The bytes of this rank that are written, and all there are."""
        return self._native.progress()

    @property
    def level(self) -> Level | None:
        """How safe what was saved is by now; None while it is being captured, or if it could not be saved."""
        return cast("Level | None", self._native.level())

    @overload
    def wait(
        self, timeout: float | None = None, *, until: Literal["local", "durable"] = "durable", progress: bool | None = None
    ) -> SaveReport: ...
    @overload
    def wait(self, timeout: float | None = None, *, until: Literal["staged"], progress: bool | None = None) -> None: ...
    def wait(
        self, timeout: float | None = None, *, until: Level = "durable", progress: bool | None = None
    ) -> SaveReport | None:
        """Waits until the step is committed: every rank's bytes are durable and readers see them.

        On tiers ``until`` chooses how safe is safe enough: ``"local"``, when the fast tier has it, or ``"durable"``, when the durable one
        does. ``"staged"`` waits until all of the state is captured. ``progress`` draws a line that shows how far it is; by default on a
        terminal and in a notebook.

        Raises:
            TimeoutError: if ``timeout`` seconds pass first; the save goes on.
            cairn.Error: whatever stopped this rank, another one, or the commit; on tiers, also why an upload failed that is tried again.
        """
        if self._process != os.getpid():
            raise StateError("this save belongs to the process that began it, and this is a fork of that process")
        with Progress(f"step {self.step}", self.progress()[1], lambda: self.progress()[0], show=progress):
            in_time = self._native.wait(timeout, until)
        if not in_time:
            raise TimeoutError(f"step {self.step} is still being saved after {timeout} s")
        report = self._native.report()
        if until == "staged" or report is None:
            return None
        report["unchanged"], report["notes"] = tuple(report["unchanged"]), tuple(report["notes"])
        report["timeline"] = json.loads(report["timeline"])
        return SaveReport(**report, stall_seconds=self.stall_seconds)

    def report(self) -> SaveReport:
        """What the save did; waits for it."""
        return self.wait()

    @property
    def future(self) -> Future[SaveReport]:
        """The same as a :class:`concurrent.futures.Future`."""
        if self._future is None:
            from concurrent.futures import Future

            self._future = Future()
            threading.Thread(target=_fulfil, args=(self._future, self), daemon=True).start()
        return self._future

    def __await__(self) -> Generator[Any, None, SaveReport]:
        import asyncio

        return asyncio.wrap_future(self.future).__await__()

    def __repr__(self) -> str:
        written, total = self.progress()
        return f"<Saving step {self.step}: {'done' if self.done() else f'{written} of {total} bytes'}>"


def _fulfil(future: Future[SaveReport], saving: Saving) -> None:
    try:
        future.set_result(saving.wait(progress=False))
    except BaseException as error:
        future.set_exception(error)


def warn_of_unchanged(saving: Saving | None, trainable: Collection[str]) -> None:
    """Names parameters that an optimizer is to change and that have the bytes of the save before."""
    if saving is None or not trainable:
        return
    stale = [name for name in saving._native.unchanged() if name in trainable]
    if stale:
        shown = ", ".join(f"`{name}`" for name in stale[:8]) + (f" and {len(stale) - 8} more" if len(stale) > 8 else "")
        logger.warning("step %d: same bytes as in the save before: %s", saving.step, shown)
