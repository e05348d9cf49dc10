"""The memory that a load fills."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping
from typing import Any

from . import _cairn
from ._logger import logger
from ._part import Part
from ._replicas import name_on
from ._tree import Flat
from ._world import World
from .errors import StateError

#: Name, placement, rank, memory, and strides if it is not row-major.
Slot = tuple[str, _cairn.Spec, int, Any, tuple[int, ...] | None]


def slots_of(flat: Flat, world: World, stored: Container[str], apart: Mapping[str, set[int]]) -> list[Slot]:
    """The memory to fill. Of several names for the same memory the first that is stored fills it; others are only compared.

    ``apart`` are tensors that each rank has stored for itself: a rank that did not exist keeps its own.
    """
    slots: list[Slot] = []
    fillers: dict[object, str] = {}
    for name in sorted(flat.parts, key=lambda name: name not in stored):
        fillers.setdefault(flat.parts[name].key, name)
    for name, part in flat.parts.items():
        if name in apart and name not in stored:
            flat.stored[name] = name_on(world.rank, name)
            slots += [_nothing(name_on(rank, name), part, world) for rank in apart[name] - {world.rank}]
            if world.rank not in apart[name]:
                logger.warning("rank %d did not exist when `%s` was saved: it keeps its own", world.rank, name)
                flat.untouched.add(name)
                continue
        if part.key is None or fillers[part.key] == name or not part.memory.nbytes:
            slots.append((flat.stored.get(name, name), part.spec, world.rank, part.memory, part.strides))
        else:
            slots.append(_nothing(flat.stored.get(name, name), part, world))
    return slots


def _nothing(name: str, part: Part, world: World) -> Slot:
    """A name that is only compared."""
    return name, _cairn.Spec.listed(part.spec.dtype, part.spec.shape, {}), world.rank, part.memory[:0].copy(), None


def finish(flat: Flat, untouched: set[str]) -> None:
    """Moves what was loaded to where it belongs, once for each memory. ``untouched`` are names in the checkpoint."""
    flat.untouched |= {name for name in flat.parts if flat.stored.get(name, name) in untouched} if untouched else set()
    untouched = flat.untouched
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
