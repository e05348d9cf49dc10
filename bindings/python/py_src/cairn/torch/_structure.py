"""How a module is built: what its ``state_dict`` says, without asking each of its modules again.

The names in a ``state_dict`` follow from the modules' dicts of parameters, buffers and modules. While these have the keys they
had, the names are the ones that were found when the module was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from .._cairn import census
from .._recall import MAPPINGS, picker

#: What the names follow from: attributes of a module, the last of which it should not have.
_ATTRIBUTES = (
    "_parameters",
    "_buffers",
    "_non_persistent_buffers_set",
    "_modules",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "state_dict",
)
#: What a class may say otherwise; then it has to be asked.
_METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")


class Structure:
    """A module's keys as they were, and the names of its tensors."""

    def __init__(
        self, classes: set[type], seen: tuple[list[object], list[Any]], places: list[int], names: list[str], has_hooks: bool
    ) -> None:
        self._attributes = dict.fromkeys(classes, _ATTRIBUTES)
        self._shape, self._kinds = seen[0], list(map(type, seen[1]))
        self._passing = picker([place for place, kind in enumerate(self._kinds) if kind is set])
        self._passed = list(map(frozenset, self._passing(seen[1])))
        self._pick = picker(places)
        self._names = names
        self._has_hooks = has_hooks

    @staticmethod
    def of(module: nn.Module, found: dict[str, Any], names: list[str]) -> Structure | None:
        """What to remember of ``module``, whose ``state_dict`` is ``found``; ``None`` if it says what its dicts do not."""
        classes = {type(own) for own in module.modules()}
        seen = census(module, MAPPINGS, dict.fromkeys(classes, _ATTRIBUTES)) if all(_is_ordinary(kind) for kind in classes) else None
        if seen is None or any(own._state_dict_hooks for own in module.modules()):
            return None
        tensors = {key: place for place, key in enumerate(_keys(module, "")) if key is not None and seen[1][place] is not None}
        expected = {key: id(seen[1][place]) for key, place in tensors.items()}
        if len(names) != len(found) or expected != {key: id(value) for key, value in found.items()}:
            return None
        has_hooks = any(own._state_dict_pre_hooks for own in module.modules())
        return Structure(classes, seen, [tensors[key] for key in found], names, has_hooks)

    def again(self, module: nn.Module) -> dict[str, Any] | None:
        """The tensors of ``module`` by name, if it is built as it was."""
        found = self._seen(module)
        if found is not None and self._has_hooks:
            _call_hooks(module, "")
            found = self._seen(module)
        return None if found is None else dict(zip(self._names, self._pick(found), strict=True))

    def _seen(self, module: nn.Module) -> list[Any] | None:
        """Everything in ``module``, if it is built as it was."""
        seen = census(module, MAPPINGS, self._attributes)
        if seen is None or seen[0] != self._shape or list(map(type, seen[1])) != self._kinds:
            return None
        return seen[1] if list(self._passing(seen[1])) == self._passed else None


def _keys(module: nn.Module, prefix: str) -> Iterator[str | None]:
    """For everything that a census finds in ``module`` the key of a tensor, where there may be one."""
    yield None
    yield None
    yield from (f"{prefix}{key}" for key in module._parameters)
    yield None
    yield from (None if key in module._non_persistent_buffers_set else f"{prefix}{key}" for key in module._buffers)
    yield None
    yield None
    for key, child in module._modules.items():
        if child is None:
            yield None
        else:
            yield from _keys(child, f"{prefix}{key}.")
    for _ in (None, *module._state_dict_hooks, None, *module._state_dict_pre_hooks, None):
        yield None


def _call_hooks(module: nn.Module, prefix: str) -> None:
    """Calls what a ``state_dict`` with variables would call first."""
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, True)
    for key, child in module._modules.items():
        if child is not None:
            _call_hooks(child, f"{prefix}{key}.")


def _is_ordinary(kind: type[nn.Module]) -> bool:
    return all(getattr(kind, method) is getattr(nn.Module, method) for method in _METHODS)
