"""How a module is built: what its ``state_dict`` says, without asking each of its modules again.

The names in a ``state_dict`` follow from the modules' dicts of parameters, buffers and modules. While these have the keys they
had, the names are the ones that were found when the module was asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, compress
from operator import itemgetter
from typing import Any

from torch import nn

from .._recall import picker

_ATTRIBUTES = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "_state_dict_hooks", "_state_dict_pre_hooks")
_attributes = itemgetter(*_ATTRIBUTES)
#: What a class may say otherwise; then it has to be asked.
_METHODS = ("state_dict", "_save_to_state_dict", "get_extra_state")


class Structure:
    """A module's keys as they were, and the names of its tensors."""

    def __init__(self, seen: _Seen, prefixes: list[str], places: list[int], names: list[str]) -> None:
        self._count = len(seen.modules)
        self._evidence = seen.evidence()
        self._prefixes = prefixes
        self._pick = picker(places, len(seen.tensors()))
        self._names = names

    @staticmethod
    def of(module: nn.Module, found: dict[str, Any], names: list[str]) -> Structure | None:
        """What to remember of ``module``, whose ``state_dict`` is ``found``; ``None`` if it says what its dicts do not."""
        prefixes, modules = zip(*_prefixed(module), strict=True)
        seen = _look(module, len(modules))
        if seen is None or any(seen.hooks) or not all(map(_is_ordinary, set(map(type, modules)))):
            return None
        keys = [f"{prefix}{key}" for column in (seen.parameters, seen.buffers) for prefix, own in zip(prefixes, column, strict=True) for key in own]
        places = {key: place for place, key in enumerate(keys)}
        tensors = seen.tensors()
        passing = {f"{prefix}{key}" for prefix, own in zip(prefixes, seen.passing, strict=True) for key in own}
        expected = {key: id(tensor) for key, tensor in zip(keys, tensors, strict=True) if tensor is not None and key not in passing}
        if not len(places) == len(keys) or len(names) != len(found) or expected != {key: id(value) for key, value in found.items()}:
            return None
        return Structure(seen, list(prefixes), [places[key] for key in found], names)

    def again(self, module: nn.Module) -> dict[str, Any] | None:
        """The tensors of ``module`` by name, if it is built as it was."""
        seen = _look(module, self._count)
        if seen is not None and any(seen.pre_hooks) and len(seen.modules) == self._count:
            for owner, prefix, hooks in compress(zip(seen.modules, self._prefixes, seen.pre_hooks, strict=True), seen.pre_hooks):
                for hook in list(hooks.values()):
                    hook(owner, prefix, True)
            seen = _look(module, self._count)
        if seen is None or seen.evidence() != self._evidence:
            return None
        return dict(zip(self._names, self._pick(seen.tensors()), strict=True))


@dataclass
class _Seen:
    """All modules in a module, itself first, and their attributes."""

    modules: list[nn.Module]
    parameters: tuple[dict[str, Any], ...]
    buffers: tuple[dict[str, Any], ...]
    inside: tuple[dict[str, Any], ...]
    passing: tuple[set[str], ...]
    hooks: tuple[dict[int, Any], ...]
    pre_hooks: tuple[dict[int, Any], ...]

    def tensors(self) -> list[Any]:
        """All parameters and buffers, ``None`` among them."""
        return list(chain.from_iterable(map(dict.values, chain(self.parameters, self.buffers))))

    def evidence(self) -> list[object]:
        """What the names of tensors follow from."""
        columns = (self.parameters, self.buffers, self.inside, self.passing, self.hooks, self.pre_hooks)
        keys = [(list(map(len, column)), list(chain.from_iterable(column))) for column in columns]
        return [list(map(type, self.modules)), keys, list(map(type, self.tensors()))]


def _look(module: nn.Module, limit: int) -> _Seen | None:
    """Everything in ``module``, level by level, which is quick; ``None`` if there are more than ``limit`` modules, or odd ones."""
    modules: list[nn.Module] = []
    level = [module]
    while level:
        modules += level
        if len(modules) > limit:
            return None
        inside = chain.from_iterable(own._modules.values() for own in level)
        level = [child for child in inside if child is not None]
    attributes = list(map(vars, modules))
    if any("state_dict" in own for own in attributes):
        return None
    try:
        columns = zip(*map(_attributes, attributes), strict=True)
    except KeyError:
        return None  # made by an older torch
    return _Seen(modules, *columns)


def _prefixed(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules in ``module``, level by level, with what the names of their tensors begin with."""
    level = [("", module)]
    while level:
        yield from level
        level = [
            (f"{prefix}{key}.", child)
            for prefix, own in level
            for key, child in own._modules.items()
            if child is not None
        ]


@cache
def _is_ordinary(kind: type[nn.Module]) -> bool:
    return all(getattr(kind, method) is getattr(nn.Module, method) for method in _METHODS)
