"""Arrays to bytes and back: the pieces on this process's devices, and the memory on the host that stands for them."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._cairn import Spec
from .._dtypes import cairn_dtype
from .._part import Context, Part, replicated
from ..errors import StateError
from ..numpy import memory
from ._placement import Box, Placement, box_of, placement

#: XLA takes memory on the host as it is, without a copy, if it begins at a multiple of this.
ALIGNMENT_BYTES = 64


def save_part(value: Any, path: str, context: Context) -> Part:
    """What this process holds of an array. Copies from all devices run at once; the walk ends when they have ended."""
    placed = _place(value, path, context)
    part = Part(_spec(value, placed, path, context), None)
    shards = {box_of(shard.index, value.shape): shard.data for shard in value.addressable_shards}
    local_shape = _local_shape(value, placed, context)
    len_bytes = math.prod(local_shape) * np.dtype(value.dtype).itemsize
    if context.behind is not None and _is_away(value) and context.behind.allows(len_bytes):
        # Copied on the device, in the order of its work: the array itself may be donated at once.
        copies = {box: jnp.copy(data) for box, data in shards.items()}
        part.memory = context.behind.promise(len_bytes, partial(_gather, copies, local_shape, value.dtype, placed))
        return part
    for data in shards.values():
        data.copy_to_host_async()

    def gather() -> None:
        part.memory = _gather(shards, local_shape, value.dtype, placed)

    context.settle[part.spec, id(value)] = gather
    return part


def load_part(value: Any, path: str, context: Context) -> Part:
    """Memory for what this process is to hold, and how the new array is made of it, once for all its names."""
    placed = _place(value, path, context)
    spec = _spec(value, placed, path, context)
    staging = _aligned(_local_shape(value, placed, context), np.dtype(value.dtype))

    @cache
    def rebuild() -> Any:
        return _array(value, placed, staging)

    return Part(spec, memory(staging), key=("jax", id(value)), rebuild=rebuild)


def _place(value: Any, path: str, context: Context) -> Placement | None:
    """What every process holds; ``None`` if all of it: an array of this process alone counts as the same in the others."""
    sharding, processes = value.sharding, jax.process_count()
    if sharding is None or sharding.is_fully_addressable or 0 in value.shape:
        return None
    if processes != context.world.size:
        raise StateError(
            f"`{path}` belongs to {processes} processes of JAX, but {context.world.size} ranks save together",
            hint="call jax.distributed.initialize before the first save, and let Cairn find the world itself",
        )
    placed = placement(sharding, tuple(value.shape))
    if len(placed.boxes) == 1:
        raise StateError(
            f"`{path}` lies on devices of another process alone, which looks like an array of its own there",
            hint="place it on devices of several processes, or give each process a copy",
        )
    return placed


def _spec(value: Any, placed: Placement | None, path: str, context: Context) -> Spec:
    dtype = cairn_dtype(np.dtype(value.dtype))
    if dtype is None:
        raise StateError(f"`{path}` is an array of {value.dtype}, which has no element type in a checkpoint")
    shape = tuple(value.shape)
    return replicated(dtype, shape, context.world.size) if placed is None else placed.spec(dtype, shape)


def _local_shape(value: Any, placed: Placement | None, context: Context) -> tuple[int, ...]:
    return tuple(value.shape) if placed is None else placed.local_shape(context.world.rank)


def _is_away(value: Any) -> bool:
    """Whether an array is where only JAX can reach it."""
    return any(device.platform != "cpu" for device in value.sharding.addressable_devices)


def _gather(shards: dict[Box, Any], local_shape: tuple[int, ...], dtype: Any, placed: Placement | None) -> Any:
    """The bytes of this process: those of its only piece as they are, or a copy of several pieces in their places."""
    if len(shards) == 1:
        return memory(np.ascontiguousarray(next(iter(shards.values()))))
    local = np.empty(local_shape, np.dtype(dtype))
    for box, view in _views(local, shards, placed).items():
        view[...] = shards[box]
    return memory(local)


def _array(value: Any, placed: Placement | None, staging: Any) -> Any:
    """An array like ``value`` of what was loaded."""
    if value.sharding is None or not getattr(value, "committed", True):
        return jax.device_put(staging)
    shape, sharding = tuple(value.shape), value.sharding
    boxes = {box_of(index, shape) for index in sharding.addressable_devices_indices_map(shape).values()}
    views = _views(staging, boxes, placed)
    return jax.make_array_from_callback(shape, sharding, lambda index: views[box_of(index, shape)], dtype=staging.dtype)


def _views(local: Any, boxes: Any, placed: Placement | None) -> dict[Box, Any]:
    """Where each box lies in this process's memory: in one box around them, or one after another."""
    views, begin = {}, 0
    corner = [min(starts) for starts in zip(*(offset for offset, _ in boxes), strict=True)]
    for offset, extent in sorted(boxes):
        if placed is None or placed.grid is not None:
            places = [slice(at - first, at - first + size) for at, first, size in zip(offset, corner, extent, strict=True)]
            views[offset, extent] = local[tuple(places)]
        else:
            end = begin + math.prod(extent)
            views[offset, extent] = local[begin:end].reshape(extent)
            begin = end
    return views


def _aligned(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """Fresh memory at an address that XLA takes without a copy."""
    len_bytes = math.prod(shape) * dtype.itemsize
    raw = np.empty(len_bytes + ALIGNMENT_BYTES, np.uint8)
    start = -raw.__array_interface__["data"][0] % ALIGNMENT_BYTES
    return raw[start : start + len_bytes].view(dtype).reshape(shape)
