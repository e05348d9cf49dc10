"""Which steps of a run stay, and who deletes the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from . import _cairn
from ._logger import logger
from .errors import Error, StateError


@dataclass(frozen=True)
class Keep:
    """Which steps stay. One stays if any rule says so; the newest good one and those with a tag always do.

    >>> cairn.Keep(last=3, every=1000, best="min:eval_loss:2", within=["24h", "30d/1d"])
    """

    #: The newest this many, of those that led to the newest.
    last: int = 1
    #: Every step that is a multiple of this.
    every: int | None = None
    #: The best by one of the ``metrics`` given to ``save``: ``"min:eval_loss:3"``, ``"max:accuracy:1"``.
    best: str | Sequence[str] = ()
    #: Those of a time before now: ``"24h"`` for all of them, ``"30d/1d"`` for the first of each day.
    within: str | Sequence[str] = ()
    #: Where the run went back, it abandoned steps: ``"newest"`` keeps the newest of each such line, ``"all"`` all, ``"none"`` none.
    abandoned: str = "newest"
    #: How long the files of a deleted step stay, for those who have it open.
    grace: str = "0s"
    #: How much of the newest step is read and compared before anything is deleted, from 0 to 1. If it is damaged, it does not count.
    read_data: float = 0.0

    def _policy(self) -> _cairn.Policy:
        return _cairn.Policy(
            self.last,
            self.every,
            _listed("best", '"min:eval_loss:1"', self.best),
            _listed("within", '"24h"', self.within),
            self.abandoned,
            self.grace,
            float(self.read_data),
        )


class Pruner:
    """Deletes what no rule keeps, in the background."""

    def __init__(self, keep: Keep) -> None:
        if not isinstance(keep, Keep):
            raise StateError(f"keep={keep!r} does not say which steps stay", hint="pass rules: keep=cairn.Keep(last=3)")
        self._policy = keep._policy()
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
            run.prune(self._policy)
        except Error:
            logger.exception("old steps could not be deleted")


def _listed(what: str, example: str, rules: object) -> list[str]:
    listed = [rules] if isinstance(rules, str) else rules
    if isinstance(listed, (list, tuple)) and all(isinstance(rule, str) for rule in listed) and not _is_torn(listed):
        return list(listed)
    raise StateError(f"{what}={rules!r} is no rule", hint=f"write each as one string: {what}={example}")


def _is_torn(rules: Sequence[str]) -> bool:
    """Whether these are the words of one rule."""
    return len(rules) > 1 and rules[0] in ("min", "max")
