"""Which steps of a run stay, and who deletes the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from . import _cairn
from ._logger import logger
from .errors import Error


@dataclass(frozen=True)
class Keep:
    """Which steps stay; the newest good one always does."""

    #: The newest this many.
    last: int = 1
    #: Every step that is a multiple of this.
    every: int | None = None
    #: Steps with one of these tags.
    tags: Sequence[str] = ()


class Pruner:
    """Deletes what no rule keeps, in the background."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._thread: threading.Thread | None = None

    def start(self, run: _cairn.Run, saving: _cairn.Saving) -> None:
        """Begins when ``saving`` is over: a disk that deletes writes slowly."""
        before = self._thread
        self._thread = threading.Thread(target=self._prune, args=(run, saving, before), name="cairn-prune", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for what was begun."""
        if self._thread is not None:
            self._thread.join()

    def _prune(self, run: _cairn.Run, saving: _cairn.Saving, before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        saving.join()
        try:
            run.prune(self._keep.last, self._keep.every, list(self._keep.tags))
        except Error:
            logger.exception("old steps could not be deleted")
