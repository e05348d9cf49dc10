"""What a checkpoint has under an optimizer's name, while it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .._part import Context
from .._shared import stored_values
from .._values import decode


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in the checkpoint."""

    dtype: str
    shape: tuple[int, ...]


def stored_values_at(path: str, key: str, context: Context) -> list[Any]:
    """The plain values ``key`` of the object at ``path``: one, or where ranks differ one for each rank that had the object.

    There is none if it holds tensors. An object without any tensor is stored as one value.
    """
    name, found = f"{path}.{key}" if path else key, []
    for values in _values(context):
        if path in values:
            found.append(decode(values[path]).get(key))
        elif name in values:
            found.append(decode(values[name]))
    return found


def stored_below(path: str, context: Context) -> dict[str, Any]:
    """Everything below ``path``: tensors as :class:`StoredTensor`, plain values as they are."""
    source, prefix = context.source, f"{path}."
    assert source is not None, "this is a load"
    found: dict[str, Any] = {}
    for name in source.names():
        described = source.find(name) if name.startswith(prefix) else None
        if described is not None:
            found[name.removeprefix(prefix)] = StoredTensor(described[0], tuple(described[1]))
    for values in _values(context):
        for name, value in values.items():
            if name.startswith(prefix):
                found[name.removeprefix(prefix)] = decode(value)
    return found


def _values(context: Context) -> list[dict[str, Any]]:
    assert context.source is not None and context.notes is not None, "this is a load"
    if "torch.values" not in context.notes:
        context.notes["torch.values"] = stored_values(context.source)
    values: list[dict[str, Any]] = context.notes["torch.values"]
    return values
