"""Tensors of which a rank holds some boxes: listed one by one instead of by a formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from .._cairn import Spec
from .._part import Context, Part, replicated
from ..errors import StateError
from ._dtypes import dtype_name
from ._memory import owned_part, tensor_part

Box = tuple[Any, tuple[int, ...]]
_ANNOTATIONS = ("global_offsets", "local_offsets", "local_sizes")


class Shards:
    """One tensor of which this rank holds some boxes, each a tensor of its own.

    >>> state = {"table": cairn.torch.Shards((1000, 64), [(rows, (0, 0)), (more_rows, (600, 0))])}

    Args:
        global_shape: the shape of the whole tensor.
        shards: this rank's boxes: the tensor, and the place of its first element in the whole one.
        dtype: the element type; only needed where a rank holds no box.
    """

    def __init__(
        self,
        global_shape: Sequence[int],
        shards: Sequence[tuple[torch.Tensor, Sequence[int]]],
        dtype: torch.dtype | None = None,
    ) -> None:
        self.global_shape = tuple(global_shape)
        self.shards: list[Box] = [(tensor, tuple(offset)) for tensor, offset in shards]
        kinds = {tensor.dtype for tensor, _ in self.shards} | ({dtype} if dtype is not None else set())
        if len(kinds) != 1:
            found = ", ".join(sorted(map(str, kinds))) or "none"
            raise StateError(f"the shards of a tensor must have one element type, not {found}", hint="pass dtype=…")
        (self.dtype,) = kinds

    def __repr__(self) -> str:
        return f"Shards({self.global_shape}, {len(self.shards)} of {self.dtype})"


def shards_part(value: Shards, path: str, context: Context) -> Part:
    """This rank's boxes."""
    return pieces_part(dtype_name(value.dtype, path), value.global_shape, value.shards, path, context)


def sharded_tensor_part(value: Any, path: str, context: Context) -> Part:
    """This rank's boxes of a ``ShardedTensor``."""
    boxes = [(shard.tensor, tuple(shard.metadata.shard_offsets)) for shard in value.local_shards()]
    return pieces_part(dtype_name(value.dtype, path), tuple(value.size()), boxes, path, context)


def is_annotated(tensor: Any) -> bool:
    """Whether a plain tensor says itself which boxes of a bigger one it holds (torch's ``CheckpointableTensor``)."""
    return hasattr(tensor, "global_shape") and all(hasattr(tensor, name) for name in _ANNOTATIONS)


def annotated_part(tensor: Any, path: str, context: Context) -> Part:
    """The boxes that an annotated tensor holds; what lies between them is padding."""
    boxes = []
    for offset, start, extent in zip(tensor.global_offsets, tensor.local_offsets, tensor.local_sizes, strict=True):
        box = tensor.detach()
        for dim, (first, size) in enumerate(zip(start, extent, strict=False)):
            box = box.narrow(dim, first, size)
        boxes.append((box, tuple(offset)))
    return pieces_part(dtype_name(tensor.dtype, path), tuple(tensor.global_shape), boxes, path, context)


def pieces_part(dtype: str, shape: tuple[int, ...], boxes: Sequence[Box], path: str, context: Context) -> Part:
    """The part of a rank that holds ``boxes`` of a tensor.

    Raises:
        StateError: if a box does not lie in the tensor.
    """
    if dtype == "f4":
        raise StateError(f"`{path}` has shards of packed four-bit numbers", hint="save them as bytes: `.view(torch.uint8)`")
    for tensor, offset in boxes:
        _check_box(tensor, offset, shape, path)
    rank = context.world.rank
    if 0 in shape:
        return Part(replicated(dtype, shape, context.world.size), _no_bytes(0))
    held = [(tensor.detach(), offset) for tensor, offset in boxes if tensor.numel()]
    if not held and context.loading:
        return nothing_to_load(dtype, shape, context)
    spec = Spec.listed(dtype, shape, {rank: [(offset, tuple(tensor.shape), None) for tensor, offset in held]})
    if len(held) == 1:
        return tensor_part(held[0][0], spec, path, context)
    tensors = [tensor for tensor, _ in held]
    if not tensors:
        return Part(spec, _no_bytes(0))
    if not context.loading:
        return owned_part(torch.cat([tensor.reshape(-1) for tensor in tensors]), spec, path, context)
    return _load_apart(tensors, spec, path, context)


def nothing_to_load(dtype: str, shape: tuple[int, ...], context: Context) -> Part:
    """The part of a rank that holds nothing. The engine wants memory for every name, so it gets that of one element."""
    rank = context.world.rank
    if 0 in shape:
        return Part(replicated(dtype, shape, context.world.size), _no_bytes(0))
    spec = Spec.listed(dtype, shape, {rank: [([0] * len(shape), [1] * len(shape), None)]})
    return Part(spec, _no_bytes((spec.nbytes or 0) // math.prod(shape)))


def _no_bytes(count: int) -> Any:
    """Memory that nobody looks at."""
    return np.empty(count, dtype=np.uint8)


def _load_apart(tensors: list[Any], spec: Spec, path: str, context: Context) -> Part:
    """A part that loads all boxes, one after another, and then gives each its own."""
    joint = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)
    part = tensor_part(joint, spec, path, context)

    def after() -> None:
        start = 0
        for tensor in tensors:
            tensor.copy_(joint[start : start + tensor.numel()].view(tensor.shape))
            start += tensor.numel()

    return Part(part.spec, part.memory, after=after)


def _check_box(tensor: Any, offset: tuple[int, ...], shape: tuple[int, ...], path: str) -> None:
    fits = len(offset) == tensor.ndim == len(shape) and all(
        0 <= first and first + size <= whole for first, size, whole in zip(offset, tensor.shape, shape, strict=True)
    )
    if not fits:
        raise StateError(f"`{path}` has a shard {list(tensor.shape)} at {list(offset)}, which does not lie in {list(shape)}")
