"""What a save leaves out on purpose: by patterns over names, or by words for what many states have."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ._containers import leaves
from ._patterns import Pattern
from ._shared import stored_values
from ._tree import Flat
from .errors import KeyMismatch, StateError

if TYPE_CHECKING:
    from ._cairn import Source
    from ._derive import Derived

#: The plain value that says what was left out, as patterns.
LEFT_OUT = "$left_out"
#: What master weights are called.
_MASTERS = ("master", "masters", "master_param", "master_params", "master_weight", "master_weights", "fp32_param", "main_param")
_WORDS = ("optimizer", "master weights", "frozen")


def to_leave_out(flat: Flat, state: object, wanted: Iterable[str], *, ranks_differ: bool) -> list[str]:
    """The patterns that ``wanted``, patterns and words, stand for in this state.

    Raises:
        StateError: if one of them stands for nothing.
    """
    names = [*flat.parts, *flat.values, *flat.rank_values]
    patterns: list[str] = []
    for one in [wanted] if isinstance(wanted, str) else wanted:
        found = [pattern for pattern in _patterns(one, flat, state) if _any(pattern, names)]
        if not found and not ranks_differ:
            hint = f"use a pattern over names, such as `optim.*`, or one of {', '.join(map(repr, _WORDS))}"
            raise StateError(f"leave_out={one!r}: there is nothing like this in the state", hint=hint)
        patterns += found
    return patterns


def _patterns(one: str, flat: Flat, state: object) -> list[str]:
    if one == "optimizer":
        return [f"{path}.*" for path, leaf in leaves(state) if _is_optimizer(leaf)]
    if one == "master weights":
        return [pattern for word in _MASTERS for pattern in (f"*.{word}", f"*.{word}.*")]
    if one == "frozen":
        return list(_frozen(flat))
    return [one]


def _any(pattern: str, names: Iterable[str]) -> bool:
    chosen = Pattern(pattern)
    return any(chosen.match(name) is not None for name in names)


def _is_optimizer(leaf: object) -> bool:
    return hasattr(leaf, "param_groups") or hasattr(leaf, "_parameter_list")


def _frozen(flat: Flat) -> Iterator[str]:
    """The names of torch's parameters that have no gradient."""
    torch = sys.modules.get("torch")
    if torch is None or flat.tensors is None:
        return
    for name, tensor in zip(flat.parts, flat.tensors, strict=True):
        if isinstance(tensor, torch.nn.Parameter) and not tensor.requires_grad:
            yield name


def kept_names(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """The names that none of the patterns fits."""
    chosen = [Pattern(pattern) for pattern in patterns]
    return [name for name in names if not any(pattern.match(name) is not None for pattern in chosen)]


class Trimmer:
    """Takes out of states what is not stored; the engine sees the same state again as long as the same remains."""

    def __init__(self) -> None:
        self._last: tuple[object, set[str], Derived, object] | None = None

    def trim(self, flat: Flat, patterns: list[str], derived: Derived) -> Flat:
        """``flat`` without what is left out or derived, with word of it."""
        stays = {name for name in kept_names(flat.parts, patterns) if name not in derived}
        tensors = flat.tensors
        if tensors is not None:
            tensors = [tensor for name, tensor in zip(flat.parts, tensors, strict=True) if name in stays]
        return replace(
            flat,
            parts={name: part for name, part in flat.parts.items() if name in stays},
            values=_only(flat.values, patterns) | ({LEFT_OUT: patterns} if patterns else {}),
            rank_values=_only(flat.rank_values, patterns),
            tensors=tensors,
            derived=derived,
            token=self._token(flat.token, stays, derived),
        )

    def _token(self, token: object, stays: set[str], derived: Derived) -> object:
        if token is None:
            return None
        last = self._last
        if last is None or last[0] is not token or last[1:3] != (stays, derived):
            last = self._last = token, stays, derived, object()
        return last[3]


def _only(values: dict[str, Any], patterns: list[str]) -> dict[str, Any]:
    return {name: values[name] for name in kept_names(values, patterns)}


@contextmanager
def explained(source: Source) -> Iterator[None]:
    """Adds to a mismatch which of the missing names were left out on purpose."""
    try:
        yield
    except KeyMismatch as error:
        patterns = [Pattern(text) for values in stored_values(source) for text in values.get(LEFT_OUT, ())]
        absent = sorted(name for name in error.missing if any(pattern.match(name) is not None for pattern in patterns))
        if absent:
            shown = ", ".join(f"`{name}`" for name in absent[:8]) + (f" and {len(absent) - 8} more" if len(absent) > 8 else "")
            error.message += f"\n  left out on purpose when it was saved: {shown}"
            error.hint = "pass strict=False to keep what the target has, or do not ask for it"
        raise
