"""Where a step is in the history of its run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SavedStep:
    """A committed step. A run is on line 0 until it goes back to an older step than the newest; then a new line begins."""

    step: int
    line: int
    #: The step that the state came from: the one that was loaded, or saved before. None if that is not known.
    parent: int | None
    #: An identifier of the launch that saved it, which no other launch has. None of steps that were saved before launches were recorded.
    launch: str | None
    #: Whether the run went back to before it since.
    abandoned: bool
