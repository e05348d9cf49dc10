"""Element types: Cairn's names and numpy's."""

from __future__ import annotations

from functools import cache
from typing import Any

from .errors import StateError

_NUMPY = {
    "bool": "bool",
    "u8": "uint8",
    "i8": "int8",
    "i16": "int16",
    "u16": "uint16",
    "f16": "float16",
    "i32": "int32",
    "u32": "uint32",
    "f32": "float32",
    "c64": "complex64",
    "f64": "float64",
    "i64": "int64",
    "u64": "uint64",
}
_ML_DTYPES = {
    "bf16": "bfloat16",
    "f8_e5m2": "float8_e5m2",
    "f8_e4m3": "float8_e4m3fn",
    "f8_e8m0": "float8_e8m0fnu",
    "f8_e4m3fnuz": "float8_e4m3fnuz",
    "f8_e5m2fnuz": "float8_e5m2fnuz",
}
_BY_NUMPY_NAME = {numpy: name for name, numpy in (_NUMPY | _ML_DTYPES).items()}


@cache
def cairn_dtype(dtype: Any) -> str | None:
    """Cairn's name of a numpy element type, or ``None`` if it has none."""
    return _BY_NUMPY_NAME.get(dtype.name)


@cache
def numpy_dtype(name: str) -> Any:
    """The numpy element type of a Cairn name.

    Raises:
        StateError: if numpy has none, or `ml_dtypes` is needed and not installed.
    """
    import numpy as np

    if name in _NUMPY:
        return np.dtype(_NUMPY[name])
    if name not in _ML_DTYPES:
        raise StateError(f"numpy has no element type for `{name}`", hint="read its bytes instead: `.read_bytes()`")
    try:
        import ml_dtypes
    except ImportError:
        raise StateError(f"numpy alone has no `{name}`", hint="pip install ml_dtypes") from None
    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[name]))
