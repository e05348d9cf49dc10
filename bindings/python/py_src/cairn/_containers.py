"""Dicts, lists and tuples: what a state is nested in."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from .errors import StateError


def leaves(tree: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Everything in the tree that is no container."""
    inside = children(tree)
    if inside is None:
        yield path, tree
        return
    for key, child in inside:
        yield from leaves(child, f"{path}.{key}" if path else str(key))


def children(value: object) -> Collection[tuple[object, Any]] | None:
    """The items of a container; ``None`` for everything else."""
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=True))
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    return None


def join(path: str, key: object) -> str:
    """The path of a child."""
    if not isinstance(key, (str, int)) or isinstance(key, bool):
        place = f"`{path}`" if path else "the state"
        raise StateError(f"{place} has the key {key!r}, but above tensors only strings and integers can be keys")
    return f"{path}.{key}" if path else str(key)
