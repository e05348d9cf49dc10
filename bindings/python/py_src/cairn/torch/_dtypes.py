"""Element types: torch's and Cairn's names."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import StateError

_NAMES = {
    "bool": "bool",
    "uint8": "u8",
    "int8": "i8",
    "int16": "i16",
    "uint16": "u16",
    "float16": "f16",
    "bfloat16": "bf16",
    "int32": "i32",
    "uint32": "u32",
    "float32": "f32",
    "complex64": "c64",
    "float64": "f64",
    "int64": "i64",
    "uint64": "u64",
    "float8_e5m2": "f8_e5m2",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e8m0fnu": "f8_e8m0",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float4_e2m1fn_x2": "f4",
}
_BY_TORCH: dict[Any, str] = {getattr(torch, long): short for long, short in _NAMES.items() if hasattr(torch, long)}
_BY_NAME = {short: dtype for dtype, short in _BY_TORCH.items()}


def dtype_name(dtype: Any, path: str) -> str:
    """Cairn's name of an element type.

    Raises:
        StateError: if it has none.
    """
    try:
        return _BY_TORCH[dtype]
    except KeyError:
        raise StateError(
            f"`{path}` is a tensor of {dtype}, which has no element type in a checkpoint",
            hint="save it as another type, such as its real and imaginary parts, or the integers behind it",
        ) from None


def torch_dtype(name: str, path: str) -> Any:
    """The element type of a Cairn name.

    Raises:
        StateError: if this torch has none.
    """
    try:
        return _BY_NAME[name]
    except KeyError:
        raise StateError(f"`{path}` is stored as `{name}`, which torch {torch.__version__} does not have") from None


def stored_shape(name: str, shape: tuple[int, ...], path: str) -> tuple[int, ...]:
    """The shape in elements: torch counts the bytes of four-bit numbers, two of which share one."""
    if name != "f4":
        return shape
    if not shape:
        raise StateError(f"`{path}` is a single byte of four-bit numbers without a dim to unpack it along")
    return (*shape[:-1], shape[-1] * 2)
