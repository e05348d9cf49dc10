"""Which boxes of a stored tensor an index needs, and the answer picked from them.

``take`` equals ``array[index]`` on a numpy array, but reads only what the index asks for:

1. numpy judges the index on an array of that shape without bytes, so its rules and its error messages are numpy's own;
2. the index becomes the positions *wanted* along each dim, ascending and without repeats (`_wanted`);
3. wanted positions that lie near each other are read together as one *run*; a box is one run per dim (`_runs`);
4. boxes are read, many per call, into a *compact* array that holds the wanted positions only (`_fill`);
5. numpy picks the answer from the compact array, by the index renumbered.

    tensor [8]   . W . W . . . W      wanted 1, 3, 7       index [-1, 1, 1]
    runs           └─────┘       └┘   two boxes
    compact        W W W              renumbered index [2, 0, 0]

Memory beside the answer: the compact array, at most twice the answer or ``SLACK_BYTES``; ``STAGING_BYTES`` for boxes
with gaps; some integers for each entry of an array in the index, and some hundred bytes for each box. This module needs
numpy, so it is imported on first use.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Shape: TypeAlias = tuple[int, ...]
Box: TypeAlias = tuple[Shape, Shape]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Positions: TypeAlias = npt.NDArray[np.intp]
_Gaps: TypeAlias = list[tuple[int, slice | Positions]]
Read: TypeAlias = Callable[[Sequence[Box], Sequence[Bytes]], None]

#: Storage is read in blocks of this size: a smaller gap costs nothing to read across.
BLOCK_BYTES = 64 << 10
#: The most bytes read at once into memory that is not yet the compact array.
STAGING_BYTES = 64 << 20
#: A compact array may always be this large, however small the answer.
SLACK_BYTES = 16 << 20
#: The most boxes in one call of the reader.
MAX_BOXES = 1 << 16


class _Run(NamedTuple):
    """Neighbouring wanted positions, read together."""

    #: The first position: one coordinate for each dim of the axis.
    start: Shape
    #: How many positions the box covers along the last dim of the axis.
    extent: int
    #: Where the wanted positions begin in the compact array.
    at: int
    #: How many positions are wanted.
    wanted: int
    #: Which of the covered positions are wanted.
    inside: slice | Positions


@dataclass(frozen=True)
class _Axis:
    """The wanted positions of one dim, or the wanted points of several dims that integer arrays pick together.

    Points lie along the last of their dims in the compact array, and the others have length one.
    """

    dims: Shape
    #: Ascending; points are numbered in row-major order over ``dims``.
    wanted: range | Positions


class _Entry(NamedTuple):
    """One entry of an index: the tensor's dim it consumes, if it does, and its value."""

    value: Any
    dim: int | None


def take(shape: Shape, dtype: np.dtype[Any], index: Any, read: Read) -> Any:
    """Reads ``array[index]`` of the tensor, as a fresh C-contiguous array or a scalar, as numpy would return.

    Raises what numpy raises for the index, with the same words, before anything is read.
    """
    judged = np.broadcast_to(np.empty((), "V0"), shape)[index]
    if judged.size == 0:
        return np.empty(judged.shape, dtype)
    entries = _parse(index, len(shape))
    budget = max(2 * judged.size, SLACK_BYTES // dtype.itemsize)
    axes, pick = _wanted(shape, entries, budget)
    compact = np.empty(_compact_shape(axes, len(shape)), dtype)
    _fill(compact, axes, shape, read)
    answer = compact[pick]
    return answer if answer.flags.c_contiguous else answer.copy()


def _parse(index: Any, ndim: int) -> list[_Entry]:
    """Spells out an index that numpy has accepted: which dim each entry consumes."""
    parts = index if isinstance(index, tuple) else (index,)
    values = [value for part in parts for value in _values(part)]
    under_ellipsis = ndim - sum(map(_consumes_a_dim, values))
    entries, dim = [], 0
    for value in values:
        consumes = _consumes_a_dim(value)
        entries.append(_Entry(value, dim if consumes else None))
        dim += under_ellipsis if value is Ellipsis else consumes
    return entries


def _values(part: Any) -> list[Any]:
    """Reduces an entry to ``None``, ``...``, truths, slices, integers and integer arrays (a mask: one per dim)."""
    if part is None or part is Ellipsis or isinstance(part, slice):
        return [part]
    array = np.asarray(part)
    if array.dtype == np.bool_:
        return list(array.nonzero()) if array.ndim else [bool(array)]
    return [array.astype(np.intp, copy=False) if array.ndim else operator.index(part)]


def _consumes_a_dim(value: Any) -> bool:
    return not (value is None or value is Ellipsis or isinstance(value, bool))


def _wanted(shape: Shape, entries: list[_Entry], budget: int) -> tuple[list[_Axis], tuple[Any, ...]]:
    """The wanted positions of every dim, and the index that picks the answer from them alone."""
    ranges = {dim: range(length) for dim, length in enumerate(shape)}
    arrays: dict[int, Positions] = {}
    picks: dict[int | None, Any] = {}
    for value, dim in entries:
        if dim is None:
            continue
        length = shape[dim]
        if isinstance(value, slice):
            ranges[dim] = chosen = range(*value.indices(length))
            picks[dim] = slice(None, None, 1 if chosen.step > 0 else -1)
        elif isinstance(value, int):
            ranges[dim] = range(value % length, value % length + 1)
            picks[dim] = 0
        else:
            arrays[dim] = np.where(value < 0, value + length, value)
            del ranges[dim]
    axes = [_Axis((dim,), chosen if chosen.step > 0 else chosen[::-1]) for dim, chosen in ranges.items()]
    for axis, renumbered in _array_axes(shape, arrays, budget // math.prod(map(len, ranges.values()))):
        axes.append(axis)
        picks |= {**dict.fromkeys(axis.dims, 0), axis.dims[-1]: renumbered}
    axes.sort(key=lambda axis: axis.dims[-1])
    return axes, tuple(picks[dim] if dim is not None else value for value, dim in entries)


def _array_axes(shape: Shape, arrays: dict[int, Positions], budget: int) -> list[tuple[_Axis, Positions]]:
    """One axis for each integer array, or one for all where a box around their points would hold too much else."""
    alone = {dim: _distinct(array) for dim, array in arrays.items()}
    if math.prod(map(len, alone.values())) <= budget or len(arrays) == 1:
        return [(_Axis((dim,), alone[dim]), np.searchsorted(alone[dim], array)) for dim, array in arrays.items()]
    dims = tuple(arrays)
    points = np.ravel_multi_index(np.broadcast_arrays(*arrays.values()), [shape[dim] for dim in dims])
    wanted = _distinct(points)
    return [(_Axis(dims, wanted), np.searchsorted(wanted, points))]


def _distinct(positions: Positions) -> Positions:
    """The positions, ascending and without repeats.

    ``numpy.unique`` gives the same, but in numpy 2.4 it hashes: on a mask of 8 million, 3 to 88 times as slow.
    """
    ordered = np.sort(positions, axis=None)
    return ordered[np.concatenate(([True], ordered[1:] != ordered[:-1]))]


def _compact_shape(axes: list[_Axis], ndim: int) -> Shape:
    lengths = {axis.dims[-1]: len(axis.wanted) for axis in axes}
    return tuple(lengths.get(dim, 1) for dim in range(ndim))


def _runs(axes: list[_Axis], shape: Shape, itemsize: int) -> list[list[_Run]]:
    """The runs of every axis, cut so that a box fits ``STAGING_BYTES`` unless it is read in place."""
    runs: list[list[_Run]] = []
    box_bytes, in_place = itemsize, True
    for axis in reversed(axes):
        last = axis.dims[-1]
        dense = isinstance(axis.wanted, range) and axis.wanted.step == 1
        longest = len(axis.wanted) if dense and in_place else max(1, STAGING_BYTES // box_bytes)
        nearest = (BLOCK_BYTES - 1) // (itemsize * math.prod(shape[last + 1 :]))
        if isinstance(axis.wanted, range):
            found = list(_range_runs(axis.wanted, longest, nearest))
        else:
            found = list(_array_runs(axis.wanted, [shape[dim] for dim in axis.dims], longest, nearest))
        runs.append(found)
        box_bytes *= max(run.extent for run in found)
        in_place = in_place and dense
    return runs[::-1]


def _range_runs(wanted: range, longest: int, nearest: int) -> Iterator[_Run]:
    """Cuts a range into runs of at most ``longest`` positions whose gaps are at most ``nearest`` positions."""
    together = (longest - 1) // wanted.step + 1 if wanted.step - 1 <= nearest else 1
    for at in range(0, len(wanted), together):
        part = wanted[at : at + together]
        yield _Run((part[0],), part[-1] - part[0] + 1, at, len(part), slice(None, None, wanted.step))


def _array_runs(wanted: Positions, lengths: list[int], longest: int, nearest: int) -> Iterator[_Run]:
    """Cuts points into runs along the last dim, of at most ``longest`` positions whose gaps are at most ``nearest``."""
    steps, rows = np.diff(wanted), wanted // lengths[-1]
    far = (steps - 1 > nearest) | (np.diff(rows) != 0)
    first = np.concatenate(([0], np.flatnonzero(far) + 1))
    since_first = wanted - np.repeat(wanted[first], np.diff(first, append=len(wanted)))
    cut = far | (np.diff(since_first // longest) != 0)
    bounds = [0, *(np.flatnonzero(cut) + 1).tolist(), len(wanted)]
    starts = np.stack(np.unravel_index(wanted[bounds[:-1]], lengths), axis=1).tolist()
    for start, (at, end) in zip(starts, itertools.pairwise(bounds), strict=True):
        extent = int(wanted[end - 1] - wanted[at]) + 1
        dense = extent == end - at
        yield _Run(tuple(start), extent, at, end - at, slice(None, None, 1) if dense else wanted[at:end] - wanted[at])


def _fill(compact: npt.NDArray[Any], axes: list[_Axis], shape: Shape, read: Read) -> None:
    """Reads every box into its place in the compact array, many boxes per call."""
    batch = _Batch(read)
    for runs in itertools.product(*_runs(axes, shape, compact.itemsize)):
        offset, extent = [0] * len(shape), [1] * len(shape)
        place: list[Any] = [slice(0, 1)] * len(shape) + [...]
        gaps = []
        for axis, run in zip(axes, runs, strict=True):
            last = axis.dims[-1]
            for dim, start in zip(axis.dims, run.start, strict=True):
                offset[dim] = start
            extent[last] = run.extent
            place[last] = slice(run.at, run.at + run.wanted)
            if run.extent != run.wanted:
                gaps.append((last, run.inside))
        batch.add((tuple(offset), tuple(extent)), compact[tuple(place)], gaps)
    batch.flush()


class _Batch:
    """Boxes that are read in one call; those with gaps, or whose place is not contiguous, by way of staging memory."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._clear()

    def _clear(self) -> None:
        self._boxes: list[Box] = []
        self._out: list[Bytes] = []
        self._staged: list[tuple[npt.NDArray[Any], npt.NDArray[Any], _Gaps]] = []
        self._staged_bytes = 0

    def add(self, box: Box, target: npt.NDArray[Any], gaps: _Gaps) -> None:
        """Adds a box whose wanted positions belong into ``target``."""
        direct = not gaps and target.flags.c_contiguous
        staged_bytes = 0 if direct else math.prod(box[1]) * target.itemsize
        if len(self._boxes) == MAX_BOXES or (self._boxes and self._staged_bytes + staged_bytes > STAGING_BYTES):
            self.flush()
        memory = target if direct else np.empty(box[1], target.dtype)
        if not direct:
            self._staged.append((memory, target, gaps))
            self._staged_bytes += staged_bytes
        self._boxes.append(box)
        self._out.append(memory.reshape(-1).view(np.uint8))

    def flush(self) -> None:
        """Reads the boxes added so far and moves what was staged."""
        self._read(self._boxes, self._out)
        for memory, target, gaps in self._staged:
            for dim, inside in gaps:
                memory = memory[(slice(None),) * dim + (inside,)]
            target[...] = memory
        self._clear()
