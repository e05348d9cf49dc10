"""The memory that a load fills."""

from __future__ import annotations

import itertools
from collections.abc import Container
from typing import Any

from . import _cairn
from ._tree import Flat
from ._world import World
from .errors import StateError

#: Name, placement, rank, memory, and strides if it is not row-major.
Slot = tuple[str, _cairn.Spec, int, Any, tuple[int, ...] | None]


def slots_of(flat: Flat, world: World, stored: Container[str]) -> list[Slot]:
    """The memory to fill. Of several names for the same memory the first that is stored fills it; others are only compared."""
    slots: list[Slot] = []
    fillers: dict[object, str] = {}
    for name in sorted(flat.parts, key=lambda name: name not in stored):
        fillers.setdefault(flat.parts[name].key, name)
    for name, part in flat.parts.items():
        if part.key is None or fillers[part.key] == name or not part.memory.nbytes:
            slots.append((name, part.spec, world.rank, part.memory, part.strides))
        else:
            nothing = _cairn.Spec.listed(part.spec.dtype, part.spec.shape, {})
            slots.append((name, nothing, world.rank, part.memory[:0].copy(), None))
    return slots


def finish(flat: Flat, untouched: set[str]) -> None:
    """Moves what was loaded to where it belongs, once for each memory."""
    flat.untouched = untouched
    done = set()
    for name, part in flat.parts.items():
        if part.after is not None and name not in untouched and part.key not in done:
            part.after()
            if part.key is not None:
                done.add(part.key)


def overlap(slots: list[Slot]) -> StateError | None:
    """The error for two tensors that share some of their memory, if there are such."""
    placed = sorted((slot[3].__array_interface__["data"][0], slot[3].nbytes, slot[0]) for slot in slots if slot[3].nbytes)
    for (start, len_bytes, name), (next_start, _, other) in itertools.pairwise(placed):
        if start + len_bytes > next_start:
            return StateError(f"`{name}` and `{other}` share some of their memory, so they cannot be loaded together")
    return None
