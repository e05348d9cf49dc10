"""Paddle's tensors: where they lie, and their memory without a copy where the host can reach it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._cairn import Spec
from .._part import Context, Part, replicated
from ..errors import StateError

if TYPE_CHECKING:
    paddle: Any
    ShardedWeight: Any
else:
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeight

_DTYPES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float64": "f64",
    "complex64": "c64",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e5m2": "f8_e5m2",
}


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor, or a description of a piece of one."""
    return isinstance(value, (paddle.Tensor, ShardedWeight))


def part(value: Any, path: str, context: Context) -> Part | None:
    """This rank's part of a tensor; ``None`` for anything else.

    Raises:
        StateError: if its element type, its kind or its placement cannot be kept.
    """
    if isinstance(value, ShardedWeight):
        return _of_sharded_weight(value, path, context)
    if not isinstance(value, paddle.Tensor):
        return None
    dtype = _dtype(value, path)
    if value.is_dist():
        return _of_distributed(value, dtype, path, context)
    if getattr(value, "is_distributed", False) and context.world.size > 1:
        raise StateError(
            f"`{path}` is one rank's slice of a tensor, but does not say which one",
            hint="pass the layer itself, or `layer.sharded_state_dict()`, which know where each slice belongs",
        )
    spec = replicated(dtype, tuple(value.shape), context.world.size)
    return _with_memory(spec, value, path, context)


def _dtype(tensor: Any, path: str) -> str:
    if not tensor.is_dense() and not tensor.is_dist():
        raise StateError(
            f"`{path}` is a sparse tensor, which a checkpoint cannot keep",
            hint="save its indices and values, or `to_dense()`",
        )
    name = str(tensor.dtype).removeprefix("paddle.")
    if name not in _DTYPES:
        raise StateError(f"`{path}` is a tensor of {name}, which has no element type in a checkpoint")
    return _DTYPES[name]


def _of_distributed(tensor: Any, dtype: str, path: str, context: Context) -> Part:
    mesh = tensor.process_mesh
    dims: list[list[int]] = [[] for _ in tensor.shape]
    for axis, placement in enumerate(tensor.placements):
        if placement.is_partial():
            raise StateError(
                f"`{path}` holds partial sums along `{mesh.dim_names[axis]}`, so no rank knows its values",
                hint="reshard it to Replicate() or Shard(dim) first",
            )
        if placement.is_shard():
            _place(dims, axis, placement, path)
    axes = list(zip(mesh.dim_names, mesh.shape, strict=True))
    spec = Spec.mesh(dtype, tensor.shape, axes, mesh.process_ids, dims)
    if context.world.rank not in mesh.process_ids:
        return Part(spec, np.empty(0, np.uint8))
    return _with_memory(spec, tensor._local_value(), path, context)


def _place(dims: list[list[int]], axis: int, placement: Any, path: str) -> None:
    """Notes that a mesh axis cuts a dim.

    Raises:
        StateError: if the cut is one that a mesh and its dims do not say.
    """
    # Where two axes cut one dim, Paddle hands out placements without it.
    dim = placement.get_dim() if hasattr(placement, "get_dim") else None
    if dim is None or dims[dim]:
        raise StateError(
            f"`{path}` has a dim that two axes of its mesh cut, and Paddle does not say in which order",
            hint="reshard it so that each dim is cut along one axis, or join the two axes into one",
        )
    factor = placement.get_split_factor() if hasattr(placement, "get_split_factor") else 1
    if factor > 1:
        raise StateError(
            f"`{path}` is cut with a split factor of {factor}, so a rank's rows do not follow each other",
            hint=f"reshard it to `Shard({dim})` without a split factor before it is saved",
        )
    dims[dim].append(axis)


def _of_sharded_weight(weight: Any, path: str, context: Context) -> Part:
    local, dtype = weight.local_tensor, _dtype(weight.local_tensor, path)
    if 0 in weight.global_shape:
        spec = replicated(dtype, tuple(weight.global_shape), context.world.size)
    else:
        flat = weight.flattened_range if weight.is_flattened else None
        piece = (list(weight.global_offset), list(weight.local_shape), (flat.start, flat.stop) if flat else None)
        spec = Spec.listed(dtype, weight.global_shape, {context.world.rank: [piece]})
    return _with_memory(spec, local, path, context)


def _with_memory(spec: Spec, local: Any, path: str, context: Context) -> Part:
    """The part with this rank's bytes; a device's, or scattered ones, go through a contiguous copy."""
    _compare(spec, local, path, context)
    on_host = local.place.is_cpu_place() or local.place.is_cuda_pinned_place()
    if local.size == 0:
        return Part(spec, np.empty(0, np.uint8))
    if on_host and local.is_contiguous():
        memory = _memory(local)
        return Part(spec, memory, key=(local.data_ptr(), memory.nbytes))
    if not context.loading:
        return _fetched(spec, local, context)
    staging = paddle.empty(local.shape, dtype=local.dtype, device="cpu")
    return Part(spec, _memory(staging), after=lambda: local.copy_(staging, True))


def _fetched(spec: Spec, local: Any, context: Context) -> Part:
    """A part of what the host cannot reach, or what does not lie in one piece."""
    on_device, len_bytes = not local.place.is_cpu_place(), local.size * local.element_size()
    if on_device and context.behind is not None and context.behind.allows(len_bytes):
        copy = local.detach().clone()
        return Part(spec, context.behind.promise(len_bytes, lambda: _memory(copy.cpu().contiguous())))
    return Part(spec, _memory(local.cpu().contiguous()))


def _compare(spec: Spec, local: Any, path: str, context: Context) -> None:
    """What a rank holds must be as large as its placement says: here, and not as a torn tensor later."""
    expected = spec.local_shape(context.world.rank)
    if expected is not None and int(np.prod(expected)) != local.size:
        raise StateError(f"`{path}` has a local shape of {list(local.shape)}, but its placement says {expected}")
    if local.size and not local._is_initialized():
        raise StateError(f"`{path}` has no memory yet", hint="initialise it, or leave it out")


class _Bytes:
    """The bytes of a contiguous host tensor, kept alive as long as someone looks at them."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (tensor.size * tensor.element_size(),),
            "data": (tensor.data_ptr(), False),
        }


def _memory(tensor: Any) -> Any:
    return np.asarray(_Bytes(tensor))
