"""A tensor in a checkpoint that is read when it is indexed, and only where."""

from __future__ import annotations

import math
import operator
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from ._dtypes import numpy_dtype
from .errors import StateError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

T = TypeVar("T")

#: Iteration reads as many rows at once as fit here.
ITERATION_BYTES = 1 << 20


class Reader(Protocol):
    """Where a lazy tensor reads from: a checkpoint."""

    def read_boxes(
        self, name: str, boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], out: Sequence[Any]
    ) -> None:
        """Reads each box (offset, extent) of a tensor into the contiguous ``uint8`` array beside it."""


class LazyTensor:
    """A tensor whose name, shape and element type are known, and whose data is read when it is indexed.

    Indexing follows numpy in everything and returns a fresh array or scalar. It reads only what it needs:

    >>> checkpoint["model.embed"][[7, 99, 512]]  # three rows
    >>> checkpoint["model.embed"].torch()  # everything

    Numpy's functions take it for an array and read all of it, and so does an operator with an array on its left. Its
    own operators, comparisons among them, are errors: each ``lazy + 1`` would hide a read of the whole tensor.
    """

    __slots__ = ("_dtype", "_name", "_reader", "_shape")

    def __init__(self, reader: Reader, name: str, shape: tuple[int, ...], dtype: str) -> None:
        self._reader = reader
        self._name = name
        self._shape = shape
        self._dtype = dtype

    @property
    def name(self) -> str:
        """The tensor's name in the checkpoint."""
        return self._name

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each dim."""
        return self._shape

    @property
    def cairn_dtype(self) -> str:
        """The element type by Cairn's name, such as ``bf16``."""
        return self._dtype

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type in numpy.

        Raises:
            StateError: if numpy has none, or `ml_dtypes` is needed and not installed.
        """
        found: np.dtype[Any] = numpy_dtype(self._dtype)
        return found

    @property
    def ndim(self) -> int:
        """The number of dims."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The size of the data in bytes."""
        return self.size * _bits(self._dtype) // 8

    def __repr__(self) -> str:
        return f"LazyTensor({self._name!r}, {self._dtype}{list(self._shape)})"

    def __len__(self) -> int:
        return len(self._without_data())

    def __getitem__(self, index: Any) -> Any:
        """Reads ``array[index]`` by numpy's rules; what numpy refuses is refused in its words, before any read."""
        from ._index import take

        return take(self._shape, self.dtype, index, self._read)

    def __iter__(self) -> Iterator[Any]:
        """Goes through the rows, reading some of them at a time."""
        if not self._shape:
            return iter(self._without_data())  # numpy refuses
        rows = max(1, ITERATION_BYTES * len(self) // max(1, self.nbytes))
        return (row for start in range(0, len(self), rows) for row in self[start : start + rows])

    def __contains__(self, value: object) -> bool:
        return value in self.numpy()

    def numpy(self) -> npt.NDArray[Any]:
        """Reads the whole tensor into a numpy array."""
        array: npt.NDArray[Any] = self[...]
        return array

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> npt.NDArray[Any]:
        if copy is False:
            raise ValueError(f"`{self._name}` is not in memory: it becomes an array only by a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def torch(self) -> Any:
        """Reads the whole tensor into a ``torch.Tensor`` in host memory.

        Raises:
            StateError: if torch has no such element type.
        """
        import torch

        from .torch._dtypes import torch_dtype

        if _bits(self._dtype) < 8:
            raise StateError(
                f"`{self._name}` is `{self._dtype}`: torch has no tensors of elements smaller than a byte",
                hint="read its bytes instead: `.read_bytes()`",
            )
        tensor = torch.empty(self._shape, dtype=torch_dtype(self._dtype, self._name))
        if self.nbytes:
            self._read([self._box], [tensor.reshape(-1).view(torch.uint8).numpy()])
        return tensor

    def read_bytes(self) -> bytearray:
        """Reads the whole tensor as it is stored: little-endian, and elements smaller than a byte packed."""
        import numpy as np

        data = bytearray(self.nbytes)
        if data:
            self._read([self._box], [np.frombuffer(data, np.uint8)])
        return data

    def __dlpack__(self, **options: Any) -> Any:
        """Reads the whole tensor and hands it over, so that ``torch.from_dlpack(lazy)`` works.

        Raises:
            BufferError: for ``bf16`` and ``f8_*`` while torch is not imported: numpy cannot hand them over.
        """
        if not self._dtype.startswith(("bf16", "f8")):
            return self.numpy().__dlpack__(**options)
        if "torch" not in sys.modules:
            raise BufferError(f"numpy cannot hand over `{self._dtype}`; import torch, which can")
        return self.torch().__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)  # host memory

    def item(self) -> Any:
        """Reads the only element, as a Python number."""
        return self._converted(operator.methodcaller("item"))

    def __bool__(self) -> bool:
        return self._converted(bool)

    def __int__(self) -> int:
        return self._converted(int)

    def __float__(self) -> float:
        return self._converted(float)

    def __complex__(self) -> complex:
        return self._converted(complex)

    def _converted(self, convert: Callable[[Any], T]) -> T:
        """Converts as numpy does: where there is not one element it refuses, and then nothing is read."""
        return convert(self.numpy() if self.size == 1 else self._without_data())

    def _without_data(self) -> npt.NDArray[Any]:
        """An array of this shape, all one zero: for numpy to refuse what it would."""
        import numpy as np

        return np.broadcast_to(np.zeros((), np.uint8), self._shape)

    @property
    def _box(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """All of it."""
        return (0,) * self.ndim, self._shape

    def _read(self, boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], out: Sequence[Any]) -> None:
        self._reader.read_boxes(self._name, boxes, out)
        if self._dtype == "bool":
            import numpy as np

            for data in out:  # any stored byte but zero is true; to numpy and torch only one is
                np.minimum(data, 1, out=data)


def _bits(dtype: str) -> int:
    """The size of an element, which its name tells: ``f6_e2m3`` has 6 bits."""
    digits = re.search(r"\d+", dtype)
    return int(digits[0]) if digits else 8  # bool


def _refusal(symbol: str) -> Callable[..., NoReturn]:
    def refuse(*_: object) -> NoReturn:
        raise TypeError(f"`{symbol}` is not defined on a lazy tensor; index it first: lazy[...]")

    return refuse


_ARITHMETIC = {
    **{"add": "+", "sub": "-", "mul": "*", "matmul": "@", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**"},
    **{"divmod": "divmod", "and": "&", "or": "|", "xor": "^", "lshift": "<<", "rshift": ">>"},
}
_COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_UNARY = {"neg": "-", "pos": "+", "abs": "abs", "invert": "~"}

for _word, _symbol in (_ARITHMETIC | _COMPARISONS | _UNARY).items():
    setattr(LazyTensor, f"__{_word}__", _refusal(_symbol))
for _word, _symbol in _ARITHMETIC.items():
    setattr(LazyTensor, f"__r{_word}__", _refusal(_symbol))
