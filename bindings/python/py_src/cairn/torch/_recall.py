"""Parts remembered from one save to the next, because a training state rarely moves.

A part follows from a tensor's address, shape, strides, element type and placement; while these are the same, so is the part.
Nothing here keeps a tensor alive.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._part import Context, Part
from .._world import World

#: How many names are remembered before all are forgotten.
LIMIT = 1_000_000
_Mark = tuple[int, Any, Any, Any]
_known: dict[str, tuple[_Mark, object, World, Part]] = {}


def recalled(
    make: Callable[[Any, str, Context], Part], value: Any, local: Any, placement: object, path: str, context: Context
) -> Part:
    """The part that was made of the same memory under the same name before, or a new one."""
    mark = _mark(local)
    if mark is None or context.loading:
        return make(value, path, context)
    known = _known.get(path)
    if known is not None and known[0] == mark and known[1] is placement and known[2] is context.world:
        return known[3]
    part = make(value, path, context)
    if part.key is not None and part.after is None:
        if len(_known) >= LIMIT:
            _known.clear()
        _known[path] = (mark, placement, context.world, part)
    return part


def _mark(tensor: Any) -> _Mark | None:
    """What tells a tensor's memory apart; ``None`` if its bytes are not simply there."""
    if not tensor.is_cpu or tensor.is_conj() or tensor.is_neg():
        return None
    try:
        return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype
    except RuntimeError:
        # Sparse tensors and the like have no address.
        return None
