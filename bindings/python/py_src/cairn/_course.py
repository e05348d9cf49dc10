"""Where the states of this process come from: which step of which run was loaded last to train on.

A save says which step it follows, so that a run that goes back begins a new line. Whoever loads and whoever saves need not be the same
object, so this is kept for each run of the process.
"""

from __future__ import annotations

import os
from collections.abc import Set
from typing import NamedTuple

from ._cairn import Run, Source


class Told(NamedTuple):
    """What another process is told: how many loads there were, and the step of the last."""

    loads: int
    step: int


class Course:
    """What was loaded from one run."""

    def __init__(self) -> None:
        self._came_from: Source | int | None = None
        self._covers: Set[str] = frozenset()
        self._loads = 0
        self._is_told = True

    def loaded(self, source: Source, names: Set[str]) -> None:
        """Notes that ``names`` were loaded from ``source``.

        Less than what was loaded or saved before is a look at an older step, such as an evaluation of its weights.
        """
        if source.step is not None and names >= self._covers:
            self._came_from, self._covers, self._is_told = source, names, False
            self._loads += 1

    def tell(self, run: Run, names: Set[str]) -> None:
        """Says once, before ``names`` are saved, which step they come from."""
        if not self._is_told:
            self.tell_again(run)
            self._is_told = True
        self._covers = names

    def tell_again(self, run: Run) -> None:
        """Says it to one of several objects that save in turn."""
        if isinstance(self._came_from, int):
            self._came_from = run.open(self._came_from)
        if self._came_from is not None:
            run.resumed_from(self._came_from)

    def saved(self, run: Run, step: int, names: Set[str]) -> None:
        """Notes what the next of several objects that save in turn follows; without a load before, numbers say it."""
        if self._came_from is not None:
            self._came_from = run.open(step)
        self._covers = names

    @property
    def told(self) -> Told | None:
        """For the process that saves in the place of this one."""
        step = self._came_from.step if isinstance(self._came_from, Source) else self._came_from
        return None if step is None else Told(self._loads, step)

    def hear(self, told: Told) -> None:
        """Takes over what another process was told, unless it is old."""
        if told.loads > self._loads:
            self._loads, self._came_from, self._is_told = told.loads, told.step, False


_courses: dict[str, Course] = {}


def course_of(url: str) -> Course:
    """The course of the run at ``url``, the same for every object of this process."""
    return _courses.setdefault(url if "://" in url or "," in url else os.path.abspath(url), Course())
