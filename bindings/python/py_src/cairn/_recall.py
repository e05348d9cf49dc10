"""The walk of one save remembered for the next, because a training state is rarely built anew.

What a walk finds follows from three things: how the state is built (its containers, their keys, the classes of what they hold),
where its tensors lie, and its plain values. The first is compared as a whole, the second is asked of the adapters, and the
values are read anew every time. Where something moved, its part is made anew; where the state is built otherwise, it is walked.

Nothing here keeps a tensor, a module or a container alive: what is remembered are names, keys, classes and addresses.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Protocol

from ._adapters import adapter_of
from ._cairn import census
from ._containers import children, join
from ._part import Adapter, Context, Part, PerRank
from ._tree import Flat, flatten, node_of, settle
from ._values import NotPlain, encode, refused

#: The mappings whose keys and values are theirs alone to say.
MAPPINGS = (dict, OrderedDict, defaultdict)


class Recollection(Protocol):
    """What an adapter remembers of some tensors."""

    #: The places of those whose parts are always made anew.
    unsteady: Sequence[int]

    def moved(self, tensors: Sequence[Any]) -> Sequence[int]:
        """The places of the tensors whose parts have to be made anew, given as many as there were, of the same classes."""


class _Nothing:
    """The recollection of an adapter that has none."""

    def __init__(self, tensors: Sequence[Any], parts: Sequence[Part]) -> None:
        self.unsteady: Sequence[int] = range(len(tensors))

    def moved(self, tensors: Sequence[Any]) -> Sequence[int]:
        return self.unsteady


@dataclass
class _Tree:
    """How a tree of containers was built, and where in it things were found."""

    shape: list[object]
    kinds: list[type]
    tensors: list[int] = field(default_factory=list)
    values: list[tuple[int, str]] = field(default_factory=list)
    #: Stateful objects, and the trees they consist of.
    nodes: list[tuple[int, str, _Tree]] = field(default_factory=list)

    def again(self, tree: object, context: Context, flat: Flat, tensors: list[Any]) -> bool:
        """Whether ``tree`` is built as it was; puts its plain values into ``flat`` and its tensors into ``tensors``."""
        seen = census(tree, MAPPINGS, {})
        if seen is None or seen[0] != self.shape:
            return False
        found = seen[1]
        if list(map(type, found)) != self.kinds:
            return False
        tensors.extend(picker(self.tensors)(found))
        for place, path in self.values:
            _read(found[place], path, flat)
        for place, path, inner in self.nodes:
            node = node_of(found[place], path, context)
            if node is None or not inner.again(node.tree, context, flat, tensors):
                return False
        return True


@dataclass
class _Group:
    """The tensors of one adapter."""

    adapter: Adapter
    names: list[str]
    pick: Callable[[Sequence[Any]], Sequence[Any]]
    recollection: Recollection


class Recall:
    """The walk of the last save."""

    def __init__(self) -> None:
        self._tree: _Tree | None = None
        self._parts: dict[str, Part] = {}
        self._groups: list[_Group] = []
        self._token: object = None
        self._kept: dict[object, Any] = {}

    def flatten(self, tree: object, context: Context) -> Flat:
        """Takes ``tree`` apart for a save, as :func:`cairn._tree.flatten` does.

        Raises:
            StateError: if a leaf cannot be kept, or two leaves have the same name; the message gives the path.
        """
        context.kept = self._kept
        flat = self._again(tree, context)
        if flat is None:
            self._tree = None
            flat = flatten(tree, context)
            self._remember(tree, flat)
        return flat

    @property
    def buffers(self) -> set[str]:
        """The names of tensors that modules keep as buffers."""
        return {name for key, names in self._kept.items() if isinstance(key, tuple) and key[0] == "buffers" for name in names}

    def _again(self, tree: object, context: Context) -> Flat | None:
        flat, tensors = Flat(), list[Any]()
        try:
            if self._tree is None or not self._tree.again(tree, context, flat, tensors):
                return None
        except NotPlain as error:
            raise refused(error) from None
        anew: dict[str, Part] = {}
        is_steady = True
        for group in self._groups:
            mine = group.pick(tensors)
            moved = group.recollection.moved(mine)
            is_steady = is_steady and len(moved) == len(group.recollection.unsteady)
            for place in moved:
                part = group.adapter.part(mine[place], group.names[place], context)
                if part is None:
                    return None
                anew[group.names[place]] = part
        flat.parts = self._parts if not anew else {**self._parts, **anew}
        if not is_steady:
            self._keep(flat.parts, tensors)
        flat.token, flat.tensors, flat.owners = self._token, tensors, [tensors, context.owners]
        settle(context)
        return flat

    def _remember(self, tree: object, flat: Flat) -> None:
        names, tensors = list[str](), list[Any]()
        found = _found(tree, "", flat, names, tensors)
        if found is None or len(names) != len(flat.parts):
            return  # a tensor lies where only a walk comes
        flat.parts = {name: flat.parts[name] for name in names}
        self._keep(flat.parts, tensors)
        self._tree, flat.token, flat.tensors = found, self._token, tensors

    def _keep(self, parts: dict[str, Part], tensors: list[Any]) -> None:
        """Remembers parts, but not the memory of those that are made anew every time."""
        places: dict[Any, list[int]] = {}
        for place, tensor in enumerate(tensors):
            places.setdefault(adapter_of(tensor), []).append(place)
        names = list(parts)
        passing: dict[str, Part] = {}
        self._groups = []
        for adapter, own in places.items():
            pick = picker(own, len(tensors))
            recollect = getattr(adapter, "recollect", _Nothing)
            recollection = recollect(pick(tensors), pick(list(parts.values())))
            self._groups.append(_Group(adapter, list(pick(names)), pick, recollection))
            for place in recollection.unsteady:
                name = names[own[place]]
                passing[name] = replace(parts[name], memory=None, after=None, rebuild=None)
        self._parts = parts if not passing else {**parts, **passing}
        self._token = None if passing else object()


def picker(places: Sequence[int], count: int | None = None) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Takes the items at ``places`` out of a list, at the speed of C; ``count`` is how many items the list has."""
    if len(places) == count:
        return lambda items: items
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: [items[place] for place in places]


def _read(value: Any, path: str, flat: Flat) -> None:
    if isinstance(value, PerRank):
        flat.rank_values[path] = encode(value.value, path)
    else:
        flat.values[path] = encode(value, path)


def _found(tree: object, path: str, flat: Flat, names: list[str], tensors: list[Any]) -> _Tree | None:
    """Where in ``tree`` a walk found what is in ``flat``; ``None`` if the tree is one that cannot be compared quickly."""
    seen = census(tree, MAPPINGS, {})
    if seen is None:
        return None
    found = _Tree(seen[0], list(map(type, seen[1])))
    nodes: list[tuple[int, str]] = []
    ways: list[tuple[object, str | None]] = [(tree, path)]
    for place in range(len(found.kinds)):
        value, way = ways.pop()
        if way is not None and way in flat.nodes and flat.nodes[way].tree is not value:
            nodes.append((place, way))
        elif way in flat.parts:
            found.tensors.append(place)
            names.append(way)
            tensors.append(value)
        elif way in flat.values or way in flat.rank_values:
            found.values.append((place, way))
            ways.extend((child, None) for _, child in _inside(value))
        else:
            below = [(child, way if way is None else join(way, key)) for key, child in _inside(value)]
            ways.extend(reversed(below))
    for place, way in nodes:
        inner = _found(flat.nodes[way].tree, way, flat, names, tensors)
        if inner is None:
            return None
        found.nodes.append((place, way, inner))
    return found


def _inside(value: object) -> list[tuple[object, Any]]:
    """The children that a census finds in ``value``."""
    return list(children(value) or ()) if type(value) in (*MAPPINGS, list, tuple) else []
