"""What the engine is told of a state: what it consists of, and where it lies."""

from __future__ import annotations

from typing import Any

from ._cairn import Memory, Outline
from ._containers import leaves
from ._fences import Fences
from ._tree import Flat


class Handover:
    """The outline and the memory of one rank's states: the same objects as long as nothing has changed."""

    def __init__(self, rank: int, fences: Fences) -> None:
        self._rank = rank
        self._fences = fences
        self._outline: tuple[object, Outline] | None = None
        self._held: tuple[object, Outline, Memory] | None = None

    def of(self, flat: Flat, state: Any) -> tuple[Outline, Memory]:
        """What ``state`` consists of and where it lies."""
        held = self._held
        if held is None or flat.token is None or held[0] is not flat.token or self._fences.is_outdated():
            memory = Memory(self._fences.look(flat, leaves(state)))
            held = flat.token, self._outline_of(flat), memory
            self._held = held if flat.token is not None else None
        self._fences.settle()
        return held[1:]

    def _outline_of(self, flat: Flat) -> Outline:
        """The outline of a state; an equal one is not made again, so that it is planned once."""
        parts = flat.parts
        derived = [(name, dtype, of) for name, (dtype, of) in flat.derived.items()]
        names = [flat.stored.get(name, name) for name in parts] if flat.stored else [*parts]
        described = names, [part.spec for part in parts.values()], [part.strides for part in parts.values()], derived
        if self._outline is None or self._outline[0] != described:
            tensors = [
                (name, part.spec, part.memory.nbytes, part.strides) for name, part in zip(names, parts.values(), strict=True)
            ]
            self._outline = described, Outline(self._rank, tensors, derived)
        return self._outline[1]
