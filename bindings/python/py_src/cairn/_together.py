"""Ranks of one machine find out whether they all load the same now, so that each stored byte is read by one of them.

Nobody has to come: a rank that loads alone waits a moment for the others, and then loads alone. The key-value store that joins
the ranks makes sure that all of them decide the same.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from . import _cairn
from ._world import World, host_key

#: How long a rank waits for the others of its machine to load with it.
PATIENCE_SECONDS = 3.0
_POLL_SECONDS = 0.005
#: Below this many bytes the others are not worth waiting for.
_WORTH_BYTES = 64 << 20

Peers = tuple[int, list[int], str]


def worth_it(len_bytes: int) -> bool:
    """Whether a load is large enough to look for company."""
    return len_bytes >= _WORTH_BYTES


def peers(world: World, place: str, targets: Iterable[tuple[str, _cairn.Spec]]) -> Peers | None:
    """The ranks of this machine that load with this one: its number, their ranks, and a name for this load; or ``None``."""
    board: Any = world.board
    if world.size == 1 or not hasattr(board, "compare_set"):
        return None
    deadline = time.monotonic() + PATIENCE_SECONDS
    neighbours = _neighbours(world, deadline)
    if len(neighbours) < 2:
        return None
    topic = f"cairn/load/{neighbours[0]}/{_digest(place, targets)}"
    generation = _arrive(board, topic, len(neighbours), deadline)
    if generation is None:
        return None
    return neighbours.index(world.rank), neighbours, f"{world.session}/{topic}/{generation}"


def _neighbours(world: World, deadline: float) -> list[int]:
    """The ranks on this machine, once every rank has said where it is; this one alone if some have not by then."""
    board: Any = world.board
    keys = [host_key(rank) for rank in world.ranks]
    if not _wait(board, keys, deadline):
        return [world.rank]
    hosts = [bytes(board.get(key)) for key in keys]
    return [rank for rank in world.ranks if hosts[rank] == hosts[world.rank]]


def _arrive(board: Any, topic: str, size: int, deadline: float) -> int | None:
    """Joins the first load under ``topic`` that is not decided yet; returns its number if all ranks have joined it."""
    generation = 0
    while board.check([f"{topic}/{generation}/decision"]):
        generation += 1
    decision = f"{topic}/{generation}/decision"
    if board.add(f"{topic}/{generation}/arrived", 1) == size:
        return generation if _decide(board, decision, "together") == "together" else None
    if not _wait(board, [decision], deadline):
        _decide(board, decision, "alone")
    return generation if bytes(board.get(decision)) == b"together" else None


def _wait(board: Any, keys: list[str], deadline: float) -> bool:
    """Whether all the keys are there before the deadline."""
    while not board.check(keys):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def _decide(board: Any, key: str, wish: str) -> str:
    """What is decided: the wish of whoever came first."""
    return bytes(board.compare_set(key, "", wish)).decode()


def _digest(place: str, targets: Iterable[tuple[str, _cairn.Spec]]) -> str:
    import hashlib

    digest = hashlib.sha256(place.encode())
    for name, spec in targets:
        digest.update(f"\n{name} {spec}".encode())
    return digest.hexdigest()[:32]
