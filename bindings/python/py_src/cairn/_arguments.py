"""Arguments that make no sense are refused before anything is done."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import StateError


def choose(name: str, choice: object, choices: Sequence[str]) -> None:
    """Refuses a choice that there is not."""
    if choice not in choices:
        raise StateError(f"{name}={choice!r} is not a choice", hint="use " + " or ".join(f'"{one}"' for one in choices))


def check_time(name: str, seconds: float) -> None:
    """Refuses what is not a time to wait."""
    if not seconds >= 0:
        raise StateError(
            f"{name}={seconds} is not a time to wait",
            hint="give seconds, 0 or more; `float('inf')` waits for ever",
        )
