"""A run on two tiers: a fast folder that is saved to, and a durable store behind it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .errors import StateError

_SHARED, _PER_NODE = "tiers:", "node-tiers:"


@dataclass(frozen=True)
class Tiered:
    """A run that is saved to a fast folder first, and uploaded to a durable store behind the back of training.

    >>> tiers = cairn.Tiered(fast="/nvme/7b", durable="s3://bucket/7b")
    >>> checkpointer = cairn.Checkpointer(tiers, keep=cairn.Keep(last=10))
    >>> saving = checkpointer.save(step, state)
    >>> saving.wait(until="local")      # survives the process
    >>> saving.wait()                   # survives the machine

    It stands wherever the address of a run does: ``os.fspath`` gives ``tiers:/nvme/7b,s3://bucket/7b``, which the command takes, too.
    """

    #: A folder on a disk of this machine, or in its memory. A comma in it is written ``%2C``, in a ``file://`` URL.
    fast: str | os.PathLike[str]
    #: Where steps stay: the address of any store. ``keep`` of the checkpointer is about these.
    durable: str | os.PathLike[str]
    #: Whether each node has a fast folder of its own at that path, so that a rank finds there what its own node wrote and nothing else.
    per_node: bool = False
    #: How many of the newest steps stay on the fast tier once they are durable; None for all. What is not durable always stays.
    keep_fast: int | None = 2

    def __post_init__(self) -> None:
        if "," in os.fspath(self.fast):
            raise StateError(
                f"the fast tier {os.fspath(self.fast)!r} has a comma in its path",
                hint="give it as a `file://` URL with `%2C` for each comma",
            )

    def __fspath__(self) -> str:
        scheme = _PER_NODE if self.per_node else _SHARED
        return f"{scheme}{os.fspath(self.fast)},{os.fspath(self.durable)}"


def is_tiered(url: str) -> bool:
    """Whether the address names two tiers."""
    return url.startswith((_SHARED, _PER_NODE))


def is_per_node(url: str) -> bool:
    """Whether the address names two tiers, the fast one of which each node has for itself."""
    return url.startswith(_PER_NODE)
