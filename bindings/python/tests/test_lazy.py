"""Lazy tensors answer exactly as numpy does, and read no more than they need.

A reader in memory stands for the checkpoint. It checks every request and counts what it hands out.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import operator
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cairn import _dtypes, _index
from cairn._lazy import ITERATION_BYTES, LazyTensor
from cairn.errors import StateError

KIB, MIB = 1 << 10, 1 << 20
Box = tuple[tuple[int, ...], tuple[int, ...]]


class CountingReader:
    """Serves boxes of a tensor whose elements are computed, so that it can be larger than memory."""

    def __init__(self, shape: tuple[int, ...], dtype: Any = np.float32, *, serve: bool = True) -> None:
        self.shape, self.dtype, self.serve = shape, np.dtype(dtype), serve
        self.calls: list[list[Box]] = []

    def elements(self, offset: tuple[int, ...], extent: tuple[int, ...]) -> np.ndarray[Any, Any]:
        """Every element tells its place in the tensor."""
        places = np.zeros(extent, np.int64)
        for dim, (start, length) in enumerate(zip(offset, extent, strict=True)):
            places *= self.shape[dim]
            places += np.arange(start, start + length).reshape(-1, *[1] * (len(extent) - dim - 1))
        return places.astype(self.dtype)

    def read_boxes(self, name: str, boxes: Sequence[Box], out: Sequence[Any]) -> None:
        assert name == "tensor"
        assert 0 < len(boxes) == len(out) <= _index.MAX_BOXES
        self.calls.append(list(boxes))
        for (offset, extent), memory in zip(boxes, out, strict=True):
            ends = [start + length for start, length in zip(offset, extent, strict=True)]
            assert all(type(number) is int for number in (*offset, *extent))
            assert all(0 <= s < e <= n for s, e, n in zip(offset, ends, self.shape, strict=True))
            assert memory.dtype == np.uint8 and memory.ndim == 1 and memory.flags.c_contiguous
            assert memory.nbytes == math.prod(extent) * self.dtype.itemsize
            if self.serve:
                memory[:] = self.elements(offset, extent).reshape(-1).view(np.uint8)

    @property
    def boxes(self) -> list[Box]:
        return [box for call in self.calls for box in call]

    @property
    def bytes(self) -> int:
        return sum(math.prod(extent) * self.dtype.itemsize for _, extent in self.boxes)


class StoredReader:
    """Serves the bytes it was given, whatever the box."""

    def __init__(self, stored: bytes) -> None:
        self.stored = stored

    def read_boxes(self, name: str, boxes: Sequence[Box], out: Sequence[Any]) -> None:
        (memory,) = out
        memory[:] = np.frombuffer(self.stored, np.uint8)


class NoReader:
    """Nothing may be read."""

    def read_boxes(self, name: str, boxes: Sequence[Box], out: Sequence[Any]) -> None:
        raise AssertionError(f"{boxes} were read")


def counted(shape: tuple[int, ...], *, serve: bool = True) -> tuple[LazyTensor, CountingReader]:
    reader = CountingReader(shape, serve=serve)
    return LazyTensor(reader, "tensor", shape, "f32"), reader


def unread(shape: tuple[int, ...], dtype: str = "f32") -> LazyTensor:
    return LazyTensor(NoReader(), "tensor", shape, dtype)


def stored(array: Any, dtype: str) -> LazyTensor:
    return LazyTensor(StoredReader(array.tobytes()), "tensor", array.shape, dtype)


def outcome(of: Any, *arguments: Any) -> Any:
    """What a call returns, or the kind and words of what it raises."""
    try:
        return of(*arguments)
    except Exception as error:
        return type(error), str(error)


# Indexing: the same as numpy.


@contextlib.contextmanager
def limits(**values: int) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(mock.patch.object(_index, name, value))
        yield


def positions(length: int) -> st.SearchStrategy[int]:
    return st.integers(-length, length - 1) if length else st.integers(-1, 0)


@st.composite
def integer_arrays(draw: st.DrawFn, length: int, shape: tuple[int, ...]) -> Any:
    broadcastable = tuple(draw(st.sampled_from([n, n, 1])) for n in shape[draw(st.integers(0, len(shape))) :])
    kind = draw(st.sampled_from([np.int64, np.int32, np.int8]))
    array = draw(hnp.arrays(kind, broadcastable, elements=positions(length)))
    return array.tolist() if draw(st.booleans()) else array


def slices(length: int) -> st.SearchStrategy[slice]:
    end = st.none() | st.integers(-length - 2, length + 2)
    return st.builds(slice, end, end, st.sampled_from([None, 1, 2, 3, 7, -1, -2, -3, -7]))


@st.composite
def indices(draw: st.DrawFn, shape: tuple[int, ...]) -> Any:
    """An index, mostly one that fits; its integer arrays mostly broadcast with each other."""
    entries: list[Any] = []
    together = draw(hnp.array_shapes(min_dims=1, max_dims=2, min_side=0, max_side=4))
    dim, end = 0, draw(st.integers(0, len(shape)))
    while dim < end:
        length = shape[dim]
        kind = draw(st.sampled_from(["integer", "slice", "slice", "array", "array", "mask", "none", "truth"]))
        if kind == "integer":
            entries.append(draw(st.one_of(positions(length), positions(length).map(np.array))))
        elif kind == "slice":
            entries.append(draw(slices(length)))
        elif kind == "array":
            entries.append(draw(integer_arrays(length, together)))
        elif kind == "mask":
            dims = draw(st.integers(1, len(shape) - dim))
            entries.append(draw(hnp.arrays(np.bool_, shape[dim : dim + dims])))
            dim += dims - 1
        else:
            entries.append(None if kind == "none" else draw(st.booleans()))
        dim += kind not in ("none", "truth")
    if draw(st.booleans()):
        entries.insert(draw(st.integers(0, len(entries))), Ellipsis)
    return entries[0] if len(entries) == 1 and draw(st.booleans()) else tuple(entries)


wild_entries = st.one_of(
    st.integers(-9, 9),
    slices(5),
    st.sampled_from(
        [None, ..., True, False, 1.5, "name", [], [[]], {}, slice(0, 3, 0), [True, 2], 2**70, np.uint64(1)]
    ),
    hnp.arrays(np.int64, hnp.array_shapes(max_dims=2, max_side=3), elements=st.integers(-7, 7)),
    hnp.arrays(np.bool_, hnp.array_shapes(max_dims=3, max_side=6)),
    hnp.arrays(np.float32, (2,)),
)
wild_indices = st.lists(wild_entries, max_size=6).map(tuple) | wild_entries

shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6)
some_limits = st.fixed_dictionaries(
    {
        "BLOCK_BYTES": st.sampled_from([1, 4, 13, 64, 64 * KIB]),
        "STAGING_BYTES": st.sampled_from([1, 24, 100, 64 * MIB]),
        "SLACK_BYTES": st.sampled_from([0, 40, 16 * MIB]),
        "MAX_BOXES": st.sampled_from([1, 3, 1 << 16]),
    }
)


def assert_same_as_numpy(shape: tuple[int, ...], index: Any) -> None:
    lazy, reader = counted(shape)
    array = reader.elements((0,) * len(shape), shape)
    expected, found = outcome(array.__getitem__, index), outcome(lazy.__getitem__, index)
    assert type(found) is type(expected)
    if isinstance(expected, tuple):
        assert found == expected
        assert not reader.calls
    else:
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(found, expected)
        assert np.asarray(found).flags.c_contiguous


@settings(max_examples=3000, deadline=None)
@given(st.data(), some_limits)
def test_any_index_gives_what_numpy_gives(data: st.DataObject, limit: dict[str, int]) -> None:
    shape = data.draw(shapes)
    index = data.draw(indices(shape))
    with limits(**limit):
        assert_same_as_numpy(shape, index)


@settings(max_examples=2000, deadline=None)
@given(shapes, wild_indices)
def test_any_refused_index_is_refused_in_the_words_of_numpy(shape: tuple[int, ...], index: Any) -> None:
    assert_same_as_numpy(shape, index)


@settings(max_examples=1000, deadline=None)
@given(st.data(), st.integers(3, 8), some_limits)
def test_any_scattered_points_give_what_numpy_gives(data: st.DataObject, points: int, limit: dict[str, int]) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=2, max_dims=4, min_side=2, max_side=6))
    picks = [st.lists(positions(length), min_size=points, max_size=points) for length in shape]
    index = data.draw(st.tuples(*picks))
    kept = data.draw(st.integers(0, len(shape) - 1)) if len(shape) > 2 else None
    with limits(**limit | {"SLACK_BYTES": 0}):
        assert_same_as_numpy(shape, tuple(slice(None) if dim == kept else pick for dim, pick in enumerate(index)))


def test_points_on_both_sides_of_a_row_end_are_two_boxes() -> None:
    lazy, reader = counted((5, 6))
    with limits(SLACK_BYTES=0):
        assert lazy[[0, 1, 1, 4], [5, 0, 2, 3]].tolist() == [5, 6, 8, 27]
    assert reader.boxes == [((0, 5), (1, 1)), ((1, 0), (1, 3)), ((4, 3), (1, 1))]


@pytest.mark.parametrize(
    "index",
    [
        np.s_[[0, 1], :, [2, 3]],  # arrays apart: their dims come first
        np.s_[:, [0, 1], [2, 3]],  # arrays together: their dims stay
        np.s_[0, :, [2, 3]],  # an integer counts as an array
        np.s_[:, 0, [2, 3]],
        np.s_[[[0], [1]], ..., [2, 3]],
        np.s_[..., 0, None],
        np.s_[True, ..., [1]],
        np.s_[None, [True, False, True, False, False], 1:0:-1],
        np.ix_([4, 0, 4], [1], [6, -1]),
        (),
        Ellipsis,
        -5,
        -6,
        np.s_[0, 0, 0],
        np.s_[0, 0, 0, ...],
        np.s_[0, 0, 0, 0],
        np.s_[..., ...],
        (0, 1),
        [0, 1],
        [],
        np.ones((5, 6), bool),
        np.ones((5, 7), bool),
    ],
)
def test_remarkable_indices_give_what_numpy_gives(index: Any) -> None:
    assert_same_as_numpy((5, 6, 7), index)
    with limits(BLOCK_BYTES=1, STAGING_BYTES=1, SLACK_BYTES=0, MAX_BOXES=1):
        assert_same_as_numpy((5, 6, 7), index)


def test_an_answer_is_fresh_memory_of_its_own_size() -> None:
    lazy, _ = counted((100, 100))
    for index in (np.s_[::2], np.s_[::-1], np.s_[:, 3], np.s_[[1, 1], ::5], ...):
        answer = lazy[index]
        base = answer if answer.base is None else answer.base
        assert answer.flags.writeable and base.nbytes == answer.nbytes


def test_an_empty_answer_reads_nothing() -> None:
    assert unread((3, 0))[1].shape == (0,)
    assert unread((3, 4))[:, 4:].shape == (3, 0)
    assert unread((3, 4))[np.zeros((3, 4), bool)].shape == (0,)


def test_a_tensor_can_be_an_index() -> None:
    rows = stored(np.array([2, 0]), "i64")
    lazy, reader = counted((3, 4))
    np.testing.assert_array_equal(lazy[rows], reader.elements((0, 0), (3, 4))[[2, 0]])


# What is read.


def test_rows_far_apart_are_read_alone() -> None:
    lazy, reader = counted((100_000, 1024))
    rows = np.random.default_rng(0).choice(100_000, 200, replace=False)
    answer = lazy[rows]
    np.testing.assert_array_equal(answer[:, 0], (rows * 1024).astype(np.float32))
    assert len(reader.calls) == 1
    assert reader.bytes <= 200 * 4 * KIB + 200 * 64 * KIB


@pytest.mark.parametrize(("step", "boxes"), [(16, 1), (17, 60)])
def test_a_gap_of_a_block_is_not_read_a_smaller_one_is(step: int, boxes: int) -> None:
    lazy, reader = counted((1020, 1024))
    lazy[::step]
    assert len(reader.boxes) == boxes
    lazy[list(range(0, 1020, step))]
    assert len(reader.boxes) == 2 * boxes


def test_repeated_rows_are_read_once() -> None:
    lazy, reader = counted((100_000, 1024))
    lazy[[70_000, 5, -30_000, 5]]
    assert reader.bytes == 2 * 4 * KIB


def test_columns_are_one_box() -> None:
    lazy, reader = counted((100_000, 1024))
    lazy[:, 10:20]
    assert reader.boxes == [((0, 10), (100_000, 10))]


def test_a_diagonal_does_not_read_the_matrix() -> None:
    lazy, reader = counted((100_000, 100_000))
    places = np.arange(0, 100_000, 7)
    np.testing.assert_array_equal(lazy[places, places], (places * 100_001).astype(np.float32))
    assert reader.bytes == 4 * len(places)


def test_a_grid_of_rows_and_columns_is_read_as_boxes() -> None:
    lazy, reader = counted((100_000, 100_000))
    lazy[np.ix_([5, 90_000], [7, 8, 50_000])]
    assert sorted(reader.boxes) == [
        ((row, column), (1, n)) for row in (5, 90_000) for column, n in ((7, 2), (50_000, 1))
    ]


def test_a_dense_mask_is_read_as_one_box() -> None:
    lazy, reader = counted((1000, 1000))
    mask = np.random.default_rng(0).random((1000, 1000)) < 0.5
    assert lazy[mask].size == mask.sum()
    assert len(reader.boxes) == 1


@pytest.mark.parametrize(
    ("shape", "index"),
    [
        ((1 << 30,), np.s_[::16_000]),  # gaps just under a block: every block is needed, but not at once
        ((1 << 22, 256), np.s_[:, ::128]),
        ((1 << 16, 32, 512), np.s_[:, ::31, 1:2]),
        ((1 << 28,), np.random.default_rng(0).integers(0, 1 << 28, 25_000)),
    ],
    ids=["steps", "columns", "middle", "scattered"],
)
def test_memory_is_that_of_the_answer_and_the_staging(shape: tuple[int, ...], index: Any) -> None:
    lazy, reader = counted(shape, serve=False)
    tracemalloc.start()
    try:
        answer = lazy[index]
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    index_bytes = index.nbytes if isinstance(index, np.ndarray) else 0
    bookkeeping_bytes = 8 * index_bytes + 512 * len(reader.boxes)
    assert peak <= 2 * answer.nbytes + _index.STAGING_BYTES + bookkeeping_bytes + MIB


def test_many_boxes_are_read_in_several_calls() -> None:
    lazy, reader = counted((200_000, 1 << 17), serve=False)
    lazy[:, 0][::2]
    assert len(reader.calls) == 1
    lazy[::2, 0]
    assert [len(call) for call in reader.calls[1:]] == [65_536, 34_464]


def test_iteration_reads_some_rows_at_a_time() -> None:
    lazy, reader = counted((1000, 1024))
    assert [row[0] for row in lazy] == [1024 * row for row in range(1000)]
    assert len(reader.calls) == 4
    assert max(extent[0] for _, extent in reader.boxes) * 4 * KIB == ITERATION_BYTES


# The rest of an array's manners.


def test_it_knows_itself_without_reading() -> None:
    lazy = unread((4, 3), "bf16")
    assert repr(lazy) == "LazyTensor('tensor', bf16[4, 3])"
    assert (lazy.name, lazy.shape, lazy.ndim, lazy.size, lazy.nbytes, len(lazy)) == ("tensor", (4, 3), 2, 12, 24, 4)
    assert (lazy.dtype, lazy.cairn_dtype) == (ml_dtypes.bfloat16, "bf16")
    assert repr(unread(())) == "LazyTensor('tensor', f32[])"
    assert list(unread((0, 3))) == []


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (2,), (0,), (3, 0)])
@pytest.mark.parametrize("convert", [bool, int, float, complex, len, iter, np.ndarray.item])
def test_conversions_succeed_and_fail_as_for_arrays(shape: tuple[int, ...], convert: Any) -> None:
    array = np.full(shape, 7, np.float32)
    lazy = stored(array, "f32") if array.size == 1 or convert is iter else unread(shape)
    expected = outcome(convert, array)
    found = outcome(LazyTensor.item if convert is np.ndarray.item else convert, lazy)
    if convert is iter and shape:
        assert [row.tolist() for row in found] == [row.tolist() for row in expected]
    else:
        assert (type(found), found) == (type(expected), expected)


def test_numpy_functions_read_it_and_operators_refuse() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    lazy: Any = stored(array, "f32")
    assert np.mean(lazy) == 2.5
    assert np.array(lazy, dtype=np.int32).dtype == np.int32
    np.testing.assert_array_equal(array + lazy, 2 * array)
    assert 5 in lazy and 7 not in lazy
    assert lazy in {lazy}
    refused: list[tuple[Any, ...]] = [(operator.add, lazy, 1), (operator.sub, 1, lazy), (operator.matmul, lazy, lazy)]
    refused += [(operator.neg, lazy), (operator.eq, lazy, lazy), (operator.lt, lazy, 1), (divmod, lazy, 2)]
    for of, *operands in refused:
        with pytest.raises(TypeError, match=r"index it first: lazy\[\.\.\.\]"):
            of(*operands)


def test_an_array_without_a_copy_is_refused() -> None:
    with pytest.raises(ValueError, match="`tensor` is not in memory"):
        unread((2,)).__array__(copy=False)


def test_any_byte_but_zero_is_true() -> None:
    lazy = LazyTensor(StoredReader(b"\x00\x01\x02\xff"), "tensor", (4,), "bool")
    assert lazy[:].view(np.uint8).tolist() == [0, 1, 1, 1]


EXACT = {"bf16": "bfloat16", "f8_e5m2": "float8_e5m2", "f8_e4m3": "float8_e4m3fn", "f8_e8m0": "float8_e8m0fnu"}
EXACT |= {"f8_e4m3fnuz": "float8_e4m3fnuz", "f8_e5m2fnuz": "float8_e5m2fnuz"}
PLAIN = {"bool": "bool", "f16": "float16", "f32": "float32", "f64": "float64", "c64": "complex64"}
PLAIN |= {f"{kind}{bits}": f"{word}{bits}" for kind, word in (("i", "int"), ("u", "uint")) for bits in (8, 16, 32, 64)}


@pytest.mark.parametrize(("dtype", "numpy_name"), (EXACT | PLAIN).items())
def test_every_element_type_is_read_by_numpy(dtype: str, numpy_name: str) -> None:
    array = np.array([[1, 0, 1], [1, 1, 2]]).astype(getattr(ml_dtypes, numpy_name, numpy_name))
    lazy = stored(array, dtype)
    assert lazy.nbytes == array.nbytes
    assert lazy[...].dtype == array.dtype
    assert lazy[...].tobytes() == lazy.read_bytes() == array.tobytes()


@pytest.mark.parametrize(("dtype", "torch_name"), (EXACT | PLAIN).items())
def test_every_element_type_is_read_by_torch(dtype: str, torch_name: str) -> None:
    torch = pytest.importorskip("torch")
    array = np.array([[1, 0, 1], [1, 1, 2]]).astype(getattr(ml_dtypes, torch_name, torch_name))
    for tensor in (stored(array, dtype).torch(), torch.from_dlpack(stored(array, dtype))):
        assert tensor.dtype == getattr(torch, torch_name)
        assert tensor.shape == (2, 3)
        assert tensor.view(torch.uint8).numpy().tobytes() == array.tobytes()


def test_scalars_and_empty_tensors_are_read_by_torch() -> None:
    torch = pytest.importorskip("torch")
    assert stored(np.array(7, np.float32), "f32").torch().item() == 7
    assert torch.from_dlpack(stored(np.array(7, ml_dtypes.bfloat16), "bf16")).item() == 7
    assert unread((3, 0), "bf16").torch().shape == (3, 0)


def test_bf16_without_torch_says_what_to_do() -> None:
    with mock.patch.dict(sys.modules), pytest.raises(BufferError, match="import torch"):
        sys.modules.pop("torch", None)
        unread((2,), "bf16").__dlpack__()


@pytest.mark.parametrize(("dtype", "len_bytes"), [("f4", 4), ("f6_e2m3", 6), ("f6_e3m2", 6)])
def test_elements_smaller_than_a_byte_come_as_bytes_only(dtype: str, len_bytes: int) -> None:
    lazy = LazyTensor(StoredReader(bytes(range(len_bytes))), "tensor", (2, 4), dtype)
    assert lazy.nbytes == len_bytes
    assert lazy.read_bytes() == bytes(range(len_bytes))
    assert dtype in repr(lazy)
    refusals: list[Callable[[], Any]] = [lambda: lazy[0], lambda: lazy.numpy(), lambda: lazy.dtype]
    if importlib.util.find_spec("torch"):
        refusals.append(lambda: lazy.torch())
    for refused in refusals:
        with pytest.raises(StateError, match=rf"`{dtype}`(.|\n)*read_bytes"):
            refused()


def test_missing_ml_dtypes_says_what_to_install() -> None:
    _dtypes.numpy_dtype.cache_clear()
    with mock.patch.dict(sys.modules, {"ml_dtypes": None}), pytest.raises(StateError, match="pip install ml_dtypes"):
        unread((2,), "bf16")[0]
    assert unread((2,), "bf16").nbytes == 4


def test_importing_it_does_not_import_numpy() -> None:
    program = "import sys, cairn._lazy; assert not {'numpy', 'torch', 'ml_dtypes'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": ":".join(sys.path)})
