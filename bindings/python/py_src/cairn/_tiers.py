"""A run on two tiers: a fast folder that is saved to, and a durable store behind it."""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from . import _cairn
from ._logger import logger
from ._world import World
from .errors import Error, StateError

#: How often ranks have waited for each other's uploads to a run, which all ranks count alike.
_uploads: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
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


def bring_up(run: _cairn.Run, url: str, world: World) -> None:
    """Takes up the uploads that earlier launches left. With a fast tier for each node, waits until all ranks are done with theirs:
    files that lie on several nodes can be opened only when all of them are on the durable tier."""
    run.resume_uploads()
    if not url.startswith(_PER_NODE):
        return
    try:
        run.wait_uploads()
    except Error as error:
        logger.warning("not everything on the fast tier could be uploaded: %s", error.message)
    if world.size > 1 and world.board is not None:
        world.exchange(f"{world.session}/uploaded/{url}/{next(_uploads[url])}", "")
