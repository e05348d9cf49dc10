"""Tensors that are casts of others, and so need not be stored.

Which they are is claimed with patterns, and checked on every element at every save.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _cairn
from ._logger import logger
from ._part import DeviceMemory, Part
from ._patterns import Pattern
from .errors import StateError

#: A tensor's type, and the tensor it is the cast of, by its name.
Derived = dict[str, tuple[str, str]]
_WIDE = "f32"
_NARROW = ("bf16", "f16")


@dataclass(frozen=True)
class _Claim:
    """The claim that a tensor is the cast of another."""

    name: str
    target: Part
    of: str
    source: Part


def find_derived(parts: dict[str, Part], rules: Mapping[str, str], *, ranks: int, ranks_differ: bool) -> Derived:
    """The tensors among ``parts`` that are casts of others as ``rules`` (name → name, with one ``*`` in both) say.

    Raises:
        StateError: if a rule says nothing, or if what it says does not hold and other ranks cannot be asked to store the tensor.
    """
    claims: list[_Claim] = []
    for rule, of in rules.items():
        found = list(_claims(parts, rule, of))
        if not found and not ranks_differ:
            hint = f"it needs {' or '.join(_NARROW)} tensors `{rule}` and f32 tensors `{of}` with the same shape and placement"
            raise StateError(f"derive={{{rule!r}: {of!r}}} says nothing of this state", hint=hint)
        claims += found
    held = list(zip(claims, _check(claims), strict=True))
    wrong = [claim for claim, holds in held if not holds]
    if wrong:
        _refuse(wrong, ranks)
    derived = {claim.name: (claim.target.spec.dtype, claim.of) for claim, holds in held if holds}
    return derived | _other_names(parts, derived)


def _claims(parts: dict[str, Part], rule: str, of: str) -> Iterator[_Claim]:
    """What a rule says of the tensors that are there and can be casts."""
    if rule.count("*") > 1 or rule.count("*") != of.count("*"):
        raise StateError(f"derive={{{rule!r}: {of!r}}} is no rule", hint="both names have one `*`, or none")
    pattern = Pattern(rule)
    for name, part in parts.items():
        stands_for = pattern.match(name)
        if stands_for is None or part.spec.dtype not in _NARROW:
            continue
        source_name = of.replace("*", stands_for)
        source = parts.get(source_name)
        if source is not None and source.spec.dtype == _WIDE and source.spec.lies_as(part.spec):
            yield _Claim(name, part, source_name, source)


def _check(claims: list[_Claim]) -> list[bool]:
    """Which claims hold: those about memory of the host are checked by threads, those about a device on that device."""
    together: dict[int | None, list[int]] = {}
    for place, claim in enumerate(claims):
        source, target = claim.source.memory, claim.target.memory
        device = _device(target)
        if device == _device(source) and claim.source.strides == claim.target.strides and source.nbytes == 2 * target.nbytes:
            together.setdefault(device, []).append(place)
    held = [False] * len(claims)
    for device, places in together.items():
        asked = [(claims[place].source.memory, claims[place].target.memory, claims[place].target.spec.dtype) for place in places]
        for place, holds in zip(places, _casts_hold(device, asked), strict=True):
            held[place] = holds
    return held


def _device(memory: Any) -> int | None:
    return memory.device if isinstance(memory, DeviceMemory) else None


def _casts_hold(device: int | None, asked: list[tuple[Any, Any, str]]) -> list[bool]:
    if device is None:
        return _cairn.casts_hold(asked)
    from .torch._derive import casts_hold

    return casts_hold(asked)


def _refuse(wrong: list[_Claim], ranks: int) -> None:
    names = [f"`{claim.name}`" for claim in wrong]
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    message = f"not the cast of `{wrong[0].of}`" if len(wrong) == 1 else "not the casts that `derive` says they are"
    if ranks == 1:
        logger.warning("stored, because %s: %s", message, shown)
        return
    raise StateError(
        f"{shown}: {message}",
        hint="leave it out of `derive`, so that all ranks store it: weights that are rounded otherwise than to the nearest are no casts",
    )


def _other_names(parts: dict[str, Part], derived: Derived) -> Derived:
    """Tensors in the memory of derived ones: tied weights have one master."""
    places = {_place(parts[name]): name for name in derived}
    found: Derived = {}
    for name, part in parts.items():
        same = places.get(_place(part))
        if same is not None and name not in derived and part.memory.nbytes:
            other = parts[same]
            if part.strides == other.strides and part.spec == other.spec:
                found[name] = derived[same]
    return found


def _place(part: Part) -> tuple[Any, ...]:
    memory = part.memory
    address = memory.address if isinstance(memory, DeviceMemory) else memory.__array_interface__["data"][0]
    return _device(memory), address, memory.nbytes
