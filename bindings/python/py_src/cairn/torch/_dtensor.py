"""Where the shards of a ``DTensor`` lie: its mesh and placements as a Cairn placement."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._cairn import Spec
from .._part import Context, Part
from .._world import World
from ..errors import StateError
from ._dtypes import dtype_name
from ._memory import tensor_part
from ._shards import nothing_to_load, pieces_part

#: What the name of a mesh axis may look like.
_AXIS = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_specs: dict[object, Spec | None] = {}


def dtensor_part(value: Any, path: str, context: Context) -> Part:
    """This rank's shard of a ``DTensor``.

    Raises:
        StateError: if it is a sum still to be made, or if this rank's shard is not what the placements say.
    """
    local, rank = local_of(value), context.world.rank
    spec = _spec(value, path, context.world)
    held = None if spec is None else spec.local_shape(rank)
    if spec is not None and held == list(local.shape):
        return tensor_part(local, spec, path, context)
    if spec is not None and held is None and value.device_mesh.get_coordinate() is None:
        is_load = context.loading
        return nothing_to_load(spec.dtype, tuple(spec.shape), context) if is_load else tensor_part(local, spec, path, context)
    boxes = _boxes(value, local, path)
    return pieces_part(dtype_name(value.dtype, path), tuple(value.shape), boxes, path, context)


def local_of(value: Any) -> Any:
    """This rank's shard, once it has arrived."""
    local = value._local_tensor
    return local.wait() if hasattr(local, "wait") else local


def _spec(value: Any, path: str, world: World) -> Spec | None:
    """The placement as a formula; ``None`` if torch cuts in a way that nested cuts cannot say."""
    described = value._spec
    order = getattr(described, "shard_order", None)
    key = (described.mesh, described.placements, order, value.shape, value.dtype, world.size, world.members)
    if key not in _specs:
        _specs[key] = _make_spec(value, order, path, world)
    return _specs[key]


def _make_spec(value: Any, order: Any, path: str, world: World) -> Spec | None:
    mesh, placements = value.device_mesh, value.placements
    name = dtype_name(value.dtype, path)
    if name == "f4":
        raise StateError(f"`{path}` is a DTensor of packed four-bit numbers", hint="save it as bytes: `.view(torch.uint8)`")
    if any(placement.is_partial() for placement in placements):
        raise StateError(
            f"`{path}` is a partial DTensor {placements}: its ranks hold summands, not elements",
            hint="sum them first: `.redistribute(placements=…)` with `Replicate()` or `Shard()`",
        )
    sizes = mesh.shape
    dims = _dims_by_order(order, value.ndim) if order else _dims_by_factor(placements, sizes, value.ndim)
    if dims is None:
        return None
    return Spec.mesh(name, value.shape, _axes(mesh), _ranks(mesh, path, world), dims)


def _dims_by_order(order: Any, count: int) -> list[list[int]]:
    """For each tensor dim the mesh axes that cut it, from torch's own record of the order."""
    dims: list[list[int]] = [[] for _ in range(count)]
    for entry in order:
        dims[entry.tensor_dim] = list(entry.mesh_dims)
    return dims


def _dims_by_factor(placements: Sequence[Any], sizes: Sequence[int], count: int) -> list[list[int]] | None:
    """For each tensor dim the mesh axes that cut it, outermost first.

    A strided shard says how many cuts of axes to its right come before its own; seen from the right, each axis goes to the place
    in the order where that many shards exist already.
    """
    dims: list[list[int]] = [[] for _ in range(count)]
    for axis in reversed(range(len(placements))):
        placement = placements[axis]
        if placement.is_replicate():
            continue
        if not hasattr(placement, "dim"):
            return None
        cuts, factor = dims[placement.dim], int(getattr(placement, "split_factor", 1))
        before = [math.prod(sizes[cut] for cut in cuts[:place]) for place in range(len(cuts) + 1)]
        if factor not in before:
            return None
        cuts.insert(before.index(factor), axis)
    return dims


def _axes(mesh: Any) -> list[tuple[str, int]]:
    names = mesh.mesh_dim_names or ()
    if len(set(names)) != mesh.ndim or not all(_AXIS.fullmatch(name) for name in names):
        names = [f"axis{axis}" for axis in range(mesh.ndim)]
    return list(zip(names, mesh.shape, strict=True))


def _ranks(mesh: Any, path: str, world: World) -> list[int]:
    """The mesh's ranks as those who save together count them."""
    found: list[int] = mesh.mesh.flatten().tolist()
    if world.members is not None:
        place = {member: rank for rank, member in enumerate(world.members)}
        outside = [rank for rank in found if rank not in place]
        found = [place.get(rank, 0) for rank in found]
    else:
        outside = [rank for rank in found if rank >= world.size]
    if outside:
        raise StateError(
            f"`{path}` has shards on rank {outside[0]}, which is not one of the {world.size} ranks that save together",
            hint="make the Checkpointer with the process group that spans the tensor's mesh, or without one",
        )
    return found


def _boxes(value: Any, local: Any, path: str) -> list[tuple[Any, tuple[int, ...]]]:
    """This rank's elements as boxes, by doing torch's cuts, left to right, on the indices of each dim."""
    coordinate = value.device_mesh.get_coordinate()
    if coordinate is None:
        return []
    indices = [np.arange(size) for size in value.shape]
    for placement, size, place in zip(value.placements, value.device_mesh.shape, coordinate, strict=True):
        if placement.is_replicate():
            continue
        if not hasattr(placement, "dim"):
            raise StateError(f"`{path}` is a DTensor placed as {placement}, which this version does not know")
        factor = int(getattr(placement, "split_factor", 1))
        blocks = _chunks(indices[placement.dim], factor)
        indices[placement.dim] = np.concatenate([_chunks(block, size)[place] for block in blocks])
    if [len(dim) for dim in indices] != list(local.shape):
        raise StateError(
            f"`{path}`: this rank holds {list(local.shape)} of the DTensor {list(value.shape)}, "
            f"but {value.placements} on {value.device_mesh} means {[len(dim) for dim in indices]}"
        )
    boxes: list[tuple[Any, tuple[int, ...]]] = [(local, ())]
    for dim, held in enumerate(indices):
        boxes = [
            (tensor.narrow(dim, start, stop - start), (*offset, int(held[start])))
            for tensor, offset in boxes
            for start, stop in _runs(held)
        ]
    return boxes


def _chunks(indices: Any, count: int) -> list[Any]:
    """Like ``torch.chunk``, with empty chunks where it has none."""
    size = -(-len(indices) // count)
    return [indices[place * size : (place + 1) * size] for place in range(count)]


def _runs(indices: Any) -> list[tuple[int, int]]:
    """The ranges of places at which the indices go up by one."""
    breaks = np.flatnonzero(np.diff(indices) != 1) + 1
    return list(zip([0, *breaks.tolist()], [*breaks.tolist(), len(indices)], strict=True)) if len(indices) else []
