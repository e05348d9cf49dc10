"""Where a state's tensors lay at the last save, and whether they still lie there.

A part follows from a tensor's class, address, shape, strides, element type and placement; while these are the same, so is the
part. Nothing here keeps a tensor alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any

import torch

from .._part import Part
from .._recall import picker

_local, _placement = attrgetter("_local_tensor"), attrgetter("_spec")
_Mark = tuple[type, int, Any, Any, Any]


class Recollection:
    """The tensors of a state, of which those with shards are ``DTensor``.

    Args:
        steady: the places of those whose parts can be told to be the same.
        sharded: those among them that are shards.
    """

    def __init__(self, tensors: Sequence[Any], steady: Sequence[int], sharded: Sequence[int]) -> None:
        self.unsteady: Sequence[int] = sorted(set(range(len(tensors))).difference(steady))
        self._places = [*sorted(set(steady).difference(sharded)), *sharded]
        self._whole = picker(self._places[: len(self._places) - len(sharded)], len(tensors))
        self._sharded = picker(sharded)
        held, self._placements = self._look(tensors)
        self._marks = list(map(_mark, held))
        self._addresses = [0 if mark is None else mark[1] for mark in self._marks]
        self._guard = _guard(held)

    def moved(self, tensors: Sequence[Any]) -> Sequence[int]:
        """The places of the tensors whose parts have to be made anew."""
        held, placements = self._look(tensors)
        is_placed = list(map(id, placements)) == list(map(id, self._placements))
        if is_placed and self._guard is not None and self._guard.check(*held):
            if list(map(torch.Tensor.data_ptr, held)) == self._addresses:
                return self.unsteady
        return self._compared(held, placements)

    def _look(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What lies in this process's memory, and the placements of shards."""
        sharded = self._sharded(tensors)
        return [*self._whole(tensors), *map(_local, sharded)], list(map(_placement, sharded))

    def _compared(self, held: list[Any], placements: list[Any]) -> Sequence[int]:
        """As :meth:`moved`, one by one."""
        marks = list(map(_mark, held))
        moved = {place for place, old, new in zip(self._places, self._marks, marks, strict=True) if old is None or old != new}
        sharded = self._places[len(self._places) - len(placements) :]
        moved.update(place for place, old, new in zip(sharded, self._placements, placements, strict=True) if old is not new)
        if not moved:
            self._guard = _guard(held)  # what it minds, such as gradients, may have changed
        return sorted(moved.union(self.unsteady))


def is_steady(local: Any, part: Part) -> bool:
    """Whether a part is that of memory that simply lies there."""
    return part.key is not None and part.after is None and _mark(local) is not None


def _mark(tensor: Any) -> _Mark | None:
    """What tells a tensor's memory apart; ``None`` if its bytes are not simply there."""
    if not (tensor.is_cpu or tensor.is_cuda) or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        return type(tensor), tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    except RuntimeError:
        # Sparse tensors and the like have no address.
        return None


def _guard(tensors: Sequence[Any]) -> Any:
    """Sees at once whether tensors have the classes, shapes, strides, types and devices that these have.

    Compiled functions are guarded by the same thing. It is no public part of torch, so that it is taken if it does what it should,
    and else tensors are compared one by one.
    """
    return _made_guard(tensors) if tensors and _guards_hold() else None


def _made_guard(tensors: Sequence[Any]) -> Any:
    from torch._C._dynamo.guards import TensorGuards

    sizes: Any = [list(tensor.shape) for tensor in tensors]
    strides: Any = [list(tensor.stride()) for tensor in tensors]
    return TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)


@cache
def _guards_hold() -> bool:
    """Whether torch has guards, and they see every difference that counts."""
    one = torch.ones(2, 2, dtype=torch.float32)
    others = [one.t(), one.view(4), one.view(torch.int32), torch._neg_view(one), torch.nn.Parameter(one), one.to("meta")]
    try:
        guard = _made_guard([one])
        return guard.check(one) is True and not any(map(guard.check, others))
    except Exception:
        return False
