"""What a checkpoint has under an optimizer's name, while it is loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from .._part import Context
from .._values import decode


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in the checkpoint."""

    dtype: str
    shape: tuple[int, ...]


def stored_value(path: str, key: str, context: Context) -> Any:
    """The plain value ``key`` of the object at ``path``; ``None`` if there is none, or if it holds tensors.

    An object without any tensor is stored as one value.
    """
    values = _values(context)
    if path in values:
        return decode(values[path]).get(key)
    name = f"{path}.{key}" if path else key
    return decode(values[name]) if name in values else None


def stored_below(path: str, context: Context) -> dict[str, Any]:
    """Everything below ``path``: tensors as :class:`StoredTensor`, plain values as they are."""
    source, prefix = context.source, f"{path}."
    assert source is not None, "this is a load"
    found: dict[str, Any] = {}
    for name in source.names():
        described = source.find(name) if name.startswith(prefix) else None
        if described is not None:
            found[name.removeprefix(prefix)] = StoredTensor(described[0], tuple(described[1]))
    for name, value in _values(context).items():
        if name.startswith(prefix):
            found[name.removeprefix(prefix)] = decode(value)
    return found


def _values(context: Context) -> dict[str, Any]:
    assert context.source is not None and context.notes is not None, "this is a load"
    if "torch.values" not in context.notes:
        context.notes["torch.values"] = json.loads(context.source.values())
    values: dict[str, Any] = context.notes["torch.values"]
    return values
