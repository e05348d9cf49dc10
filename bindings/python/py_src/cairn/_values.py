"""Plain values as JSON and back, exactly, without pickle.

JSON says most of it. What it cannot say becomes an object with one key that starts with ``$``, such as
``{"$tuple": [1, 2]}``; ``docs/format.md`` lists them all.
"""

from __future__ import annotations

import base64
import math
import sys
from collections.abc import Callable
from typing import Any

from .errors import StateError

_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
#: The most levels of JSON in a value; readers refuse a file with more than 128.
MAX_DEPTH = 100


class NotPlain(Exception):
    """A value that plain data cannot say; ``path`` is where it stands."""

    def __init__(self, path: str, value: object) -> None:
        super().__init__(path)
        self.path = path
        self.value = value


def refused(error: NotPlain) -> StateError:
    """The error a user sees for a value that cannot be kept."""
    kind = type(error.value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    place = f"`{error.path}`" if error.path else "the state"
    return StateError(
        f"{place} is a {name}, which cannot be saved without pickle",
        hint="save tensors, numbers, strings, bytes, None, and dicts, lists, tuples or sets of them; "
        "give other objects `state_dict` and `load_state_dict`, or leave them out",
    )


def too_deep(path: str) -> StateError:
    """The error for containers within containers within containers …"""
    return StateError(
        f"`{path[:40]}…` is nested more than {MAX_DEPTH} levels deep, or contains itself",
        hint="tuples, sets and dicts with other keys than strings count as two or three levels",
    )


def encode(value: object, path: str = "", depth: int = 0) -> Any:
    """``value`` as JSON data; ``depth`` counts the levels of JSON above it.

    Raises:
        NotPlain: if something in it is no plain data.
        StateError: if it is nested too deeply, or has text that is not Unicode.
    """
    if depth > MAX_DEPTH:
        raise too_deep(path)
    if value is None or value is True or value is False:
        return value
    kind = type(value)
    encoder = _ENCODERS.get(kind)
    if encoder is not None:
        return encoder(value, path, depth)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, (numpy.ndarray, numpy.generic)):
        return _encode_array(value, path)
    for base in _SUBCLASSED:
        # OrderedDict, defaultdict, namedtuple …: the data is kept, the class is not.
        if isinstance(value, base):
            return _ENCODERS[base](value, path, depth)
    raise NotPlain(path, value)


def _encode_int(value: Any, path: str, depth: int) -> Any:
    number = int(value)
    return number if _INT_MIN <= number <= _INT_MAX else {"$int": hex(number)}


def _encode_float(value: Any, path: str, depth: int) -> Any:
    number = float(value)
    return number if math.isfinite(number) else {"$float": repr(number)}


def _encode_str(value: Any, path: str, depth: int) -> Any:
    if not is_unicode(value):
        raise StateError(f"`{path}` is a string that is not valid Unicode: {value!r}")
    return str(value)


def is_unicode(text: str) -> bool:
    """Whether text can be written down."""
    try:
        str.encode(text)
    except UnicodeEncodeError:
        return False
    return True


def _encode_list(value: Any, path: str, depth: int) -> Any:
    if depth < MAX_DEPTH and set(map(type, value)) == {str} and is_unicode("".join(value)):
        return list(value)  # the names of an optimizer's parameters are many
    return [encode(item, _at(path, i), depth + 1) for i, item in enumerate(value)]


def _encode_tuple(value: Any, path: str, depth: int) -> Any:
    return {"$tuple": _encode_list(value, path, depth + 1)}


def _encode_set(value: Any, path: str, depth: int) -> Any:
    items = _encode_list(list(value), path, depth + 1)
    return {"$frozenset" if isinstance(value, frozenset) else "$set": sorted(items, key=repr)}


def _encode_dict(value: Any, path: str, depth: int) -> Any:
    if all(type(key) is str and not key.startswith("$") for key in value):
        return {_encode_str(key, path, depth): encode(item, _at(path, key), depth + 1) for key, item in value.items()}
    pairs = value.items()
    return {"$dict": [[encode(k, path, depth + 3), encode(v, _at(path, k), depth + 3)] for k, v in pairs]}


def _encode_bytes(value: Any, path: str, depth: int) -> Any:
    return {"$bytes": base64.b64encode(bytes(value)).decode()}


def _encode_complex(value: Any, path: str, depth: int) -> Any:
    return {"$complex": [_encode_float(value.real, path, depth), _encode_float(value.imag, path, depth)]}


def _encode_array(value: Any, path: str) -> Any:
    import numpy as np

    array = np.ascontiguousarray(value)
    if array.dtype.hasobject or array.dtype.kind not in "biufc":
        raise NotPlain(path, value)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    shape = list(np.shape(value))
    return {"$ndarray": {"dtype": little.dtype.str, "shape": shape, "data": base64.b64encode(little.tobytes()).decode()}}


_ENCODERS: dict[type, Callable[[Any, str, int], Any]] = {
    int: _encode_int,
    float: _encode_float,
    str: _encode_str,
    list: _encode_list,
    tuple: _encode_tuple,
    set: _encode_set,
    frozenset: _encode_set,
    dict: _encode_dict,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    complex: _encode_complex,
}
_SUBCLASSED: tuple[type, ...] = (int, float, str, bytes, tuple, list, dict, set, frozenset)


def decode(data: Any) -> Any:
    """The value that :func:`encode` made ``data`` of."""
    if isinstance(data, list):
        return [decode(item) for item in data]
    if not isinstance(data, dict):
        return data
    if len(data) == 1:
        ((tag, body),) = data.items()
        if tag.startswith("$"):
            return _decode_tagged(tag, body)
    return {key: decode(item) for key, item in data.items()}


def _decode_tagged(tag: str, body: Any) -> Any:
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise StateError(
            f"a stored value is marked `{tag}`, which this version does not know",
            hint="install a newer Cairn to read it",
        )
    return decoder(body)


def _decode_array(body: Any) -> Any:
    import numpy as np

    raw = base64.b64decode(body["data"])
    array = np.frombuffer(raw, dtype=np.dtype(body["dtype"])).reshape(body["shape"]).copy()
    return array if body["shape"] else array[()]


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda body: int(body, 0),
    "$float": float,
    "$bytes": base64.b64decode,
    "$tuple": lambda body: tuple(decode(body)),
    "$set": lambda body: set(decode(body)),
    "$frozenset": lambda body: frozenset(decode(body)),
    "$complex": lambda body: complex(*decode(body)),
    "$dict": lambda body: {decode(key): decode(item) for key, item in body},
    "$ndarray": _decode_array,
    "$opaque": lambda body: Opaque(body),
}


class Opaque:
    """An object in another tool's file that plain data cannot say; only its class is known."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"<opaque {self.name}>"


def _at(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def encoded(value: Any, path: str) -> Any:
    """``value`` as it is stored.

    Raises:
        StateError: if it is not plain; the message gives its path.
    """
    try:
        return encode(value, path)
    except NotPlain as error:
        raise refused(error) from None
