"""What each process holds of an array, worked out from its sharding alone.

Devices hold boxes of an array, and processes have devices. Where the boxes of every process make up one box, and these form a
regular grid, the placement is a mesh of processes; replicas then share the writing. Anything else is a list of boxes.

    8 devices, 2 processes, P("x", "y")     process 0: rows 0–3     f32[8@dim0, 8]
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from .._cairn import Spec

#: Offset and extent.
Box = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class Placement:
    """What every process holds of an array."""

    #: The boxes of each process, ascending.
    boxes: dict[int, tuple[Box, ...]]
    #: The one box each process holds, ascending, with the processes that hold it, if these boxes form a regular grid.
    grid: dict[Box, tuple[int, ...]] | None

    def local_shape(self, process: int) -> tuple[int, ...]:
        """The shape of a process's memory: that of its box, or flat if it holds its boxes one after another."""
        boxes = self.boxes.get(process, ())
        if self.grid is None or not boxes:
            return (sum(math.prod(extent) for _, extent in boxes),)
        return _hull(boxes)[1]

    def spec(self, dtype: str, shape: tuple[int, ...]) -> Spec:
        """The placement as the engine knows it."""
        if self.grid is None:
            pieces = {process: [(*box, None) for box in boxes] for process, boxes in self.boxes.items()}
            return Spec.listed(dtype, shape, pieces)
        cuts = [len({offset[dim] for offset, _ in self.grid}) for dim in range(len(shape))]
        axes = [(f"dim{dim}", count) for dim, count in enumerate(cuts) if count > 1]
        dims = [[axes.index((f"dim{dim}", count))] if count > 1 else [] for dim, count in enumerate(cuts)]
        ranks = [process for processes in self.grid.values() for process in processes]
        replicas = len(ranks) // len(self.grid)
        if replicas > 1:
            axes.append(("replica", replicas))
        return Spec.mesh(dtype, shape, axes, ranks, dims)


@lru_cache(maxsize=4096)
def placement(sharding: Any, shape: tuple[int, ...]) -> Placement:
    """What every process holds of an array of this shape."""
    found: defaultdict[int, set[Box]] = defaultdict(set)
    for device, index in sharding.devices_indices_map(shape).items():
        found[device.process_index].add(box_of(index, shape))
    boxes = {process: tuple(sorted(held)) for process, held in sorted(found.items())}
    return Placement(boxes, _grid(boxes, shape))


def box_of(index: tuple[slice, ...] | None, shape: tuple[int, ...]) -> Box:
    """The box that slices pick."""
    ranges = [part.indices(length)[:2] for part, length in zip(index or (), shape, strict=True)]
    return tuple(start for start, _ in ranges), tuple(stop - start for start, stop in ranges)


def _grid(boxes: dict[int, tuple[Box, ...]], shape: tuple[int, ...]) -> dict[Box, tuple[int, ...]] | None:
    """The box of each process, if it holds just one and they form a regular grid."""
    holders: defaultdict[Box, list[int]] = defaultdict(list)
    for process, held in boxes.items():
        hull = _hull(held)
        if math.prod(hull[1]) != sum(math.prod(extent) for _, extent in held):
            return None
        holders[hull].append(process)
    if len({len(processes) for processes in holders.values()}) > 1 or set(holders) != _regular(holders, shape):
        return None
    return {box: tuple(holders[box]) for box in sorted(holders)}


def _hull(boxes: tuple[Box, ...]) -> Box:
    """The smallest box around boxes."""
    ends = [[start + length for start, length in zip(*box, strict=True)] for box in boxes]
    first = tuple(map(min, zip(*(offset for offset, _ in boxes), strict=True)))
    last = map(max, zip(*ends, strict=True))
    return first, tuple(end - start for start, end in zip(first, last, strict=True))


def _regular(found: Any, shape: tuple[int, ...]) -> set[Box]:
    """The grid with as many cuts along each dim as were found, cut by the one rule for cutting."""
    cuts = []
    for dim, length in enumerate(shape):
        count = len({offset[dim] for offset, _ in found})
        size = -(-length // count)
        cuts.append([(place * size, min(size, length - place * size)) for place in range(count)])
    return {(tuple(start for start, _ in cell), tuple(size for _, size in cell)) for cell in itertools.product(*cuts)}
