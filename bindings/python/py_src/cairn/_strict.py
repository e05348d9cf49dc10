"""How exactly a checkpoint and what it is loaded into must fit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from ._tree import Flat
from .errors import KeyMismatch, StateError

Strict = bool | Literal["partial"]
#: What stops a load, for each strictness.
_REFUSED: dict[Strict, list[str]] = {
    True: ["missing", "unexpected", "mismatched"],
    "partial": ["missing", "mismatched"],
    False: [],
}
#: A tuple without anything in it, as it is stored.
_NO_ITEMS: dict[str, Any] = {"$tuple": []}
#: What to do about names that nobody asked for.
LOAD_A_PART = "to load a part of the checkpoint, pass strict='partial'"


def refused_by(strict: Strict) -> list[str]:
    """The kinds of differences that stop a load.

    Raises:
        StateError: if ``strict`` is no choice.
    """
    if strict not in _REFUSED:
        raise StateError(f"strict={strict!r} is not a choice", hint='use True, False or "partial"')
    return _REFUSED[strict]


def scope_of(into: Any) -> list[str] | None:
    """The top-level keys of ``into``: what the checkpoint has beside them is not unexpected."""
    return [str(key) for key in into] if isinstance(into, Mapping) else None


def in_scope(name: str, scope: list[str] | None) -> bool:
    """Whether a stored name lies under one of these keys."""
    return scope is None or any(name == prefix or name.startswith(f"{prefix}.") for prefix in scope)


def without_empty(names: list[str], values: Mapping[str, Any], others: Collection[str]) -> list[str]:
    """``names`` without containers that are empty on this side, and not on the other: a stage may have no part of the model."""
    empty = [name for name in names if isinstance(values[name], (dict, list, tuple)) and values[name] in ({}, [], (), _NO_ITEMS)]
    filled = {name for name in empty if any(other.startswith(f"{name}.") for other in others)}
    return [name for name in names if name not in filled]


def refuse_derived(flat: Flat, derived: Mapping[str, str]) -> None:
    """Refuses tensors that would have to be worked out from others.

    Raises:
        KeyMismatch: if there are such.
    """
    names = [name for name in flat.parts if name in derived]
    if names:
        lines = ["these tensors are not stored, because they are casts of others"]
        lines += [f"  `{name}` of `{derived[name]}`" for name in names[:20]]
        error = KeyMismatch("\n".join(lines), hint="without rebuild=False they are worked out from those")
        error.missing = names
        raise error


def mismatch(missing: list[str], unexpected: list[str]) -> KeyMismatch:
    """The error for plain values that do not fit."""
    lines = [f"checkpoint and target do not fit: {len(missing)} missing, {len(unexpected)} unexpected"]
    lines += [f"  missing     `{name}`" for name in missing[:20]]
    lines += [f"  unexpected  `{name}`" for name in unexpected[:20]]
    hint = LOAD_A_PART if not missing else "`cairn inspect --tree` lists every stored name"
    error = KeyMismatch("\n".join(lines), hint=hint)
    error.missing, error.unexpected, error.mismatched = missing, unexpected, []
    return error
