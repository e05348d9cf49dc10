"""Numpy arrays as tensors. In a launch of several ranks an array counts as the same on all of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from ._cairn import Spec
from ._dtypes import cairn_dtype
from ._part import Context, Node, Part, replicated
from .errors import StateError


def part(value: object, path: str, context: Context) -> Part | None:
    """The array's part: all of it."""
    if not isinstance(value, np.ndarray):
        return None
    name = cairn_dtype(value.dtype)
    if name is None:
        raise StateError(f"`{path}` is a numpy array of {value.dtype}, which has no element type in a checkpoint")
    if context.loading and not value.flags.writeable:
        raise StateError(f"`{path}` is a read-only numpy array, so nothing can be loaded into it")
    spec = replicated(name, value.shape, context.world.size)
    if value.flags.c_contiguous and value.dtype.isnative:
        return Part(spec, memory(value), key=_key(value) if context.loading else None)
    return _through_a_copy(value, spec, context)


def is_tensor(value: object) -> bool:
    """Whether ``value`` is an array."""
    return isinstance(value, np.ndarray)


def node(value: object, path: str, context: Context) -> Node | None:
    """Numpy has no stateful objects of its own."""
    return None


def memory(array: Any) -> Any:
    """The bytes of a contiguous array, shared with it."""
    return array.reshape(-1).view(np.uint8)


def _key(array: Any) -> object:
    return (array.__array_interface__["data"][0], array.nbytes) if array.nbytes else None


def _through_a_copy(array: Any, spec: Spec, context: Context) -> Part:
    native = array.dtype.newbyteorder("=")
    if not context.loading:
        return Part(spec, memory(np.ascontiguousarray(array, dtype=native).reshape(array.shape)))
    staging = np.empty(array.shape, dtype=native)

    def after() -> None:
        array[...] = staging

    return Part(spec, memory(staging), after=after)
