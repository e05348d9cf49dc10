"""A training state taken apart into named tensors and plain values, and put together again.

Dicts, lists and tuples are walked; a name is the path to a leaf, joined with dots. Objects with ``state_dict`` and
``load_state_dict`` are asked for theirs. A part of the tree without tensors is one plain value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ._adapters import adapter_of
from ._containers import children, join
from ._part import Context, Node, Part, PerRank
from ._values import NotPlain, encode, is_unicode, refused
from .errors import StateError


@dataclass
class Flat:
    """The leaves of a state."""

    parts: dict[str, Part] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    rank_values: dict[str, Any] = field(default_factory=dict)
    #: Stateful objects that were asked for their state, by path.
    nodes: dict[str, Node] = field(default_factory=dict)
    #: The tensors that a load has passed over.
    untouched: set[str] = field(default_factory=set)
    #: What owns the memory of the parts, as far as nobody else may hold it.
    owners: list[object] = field(default_factory=list)
    #: The tensors that the parts were made of, in the same order, if it is known.
    tensors: list[Any] | None = None
    #: The tensors that are not stored: the type of each, and the tensor it is the cast of.
    derived: dict[str, tuple[str, str]] = field(default_factory=dict)
    #: The names that tensors are stored by, where these are not their own.
    stored: dict[str, str] = field(default_factory=dict)
    #: The same object as long as all parts are the same, if they can be told to be.
    token: object = None


def flatten(tree: object, context: Context) -> Flat:
    """Takes ``tree`` apart.

    Raises:
        StateError: if a leaf cannot be kept, or two leaves have the same name; the message gives the path.
    """
    flat = Flat()
    try:
        _walk(tree, "", context, flat)
    except NotPlain as error:
        raise refused(error) from None
    except RecursionError as error:
        raise StateError("the state is nested too deeply, or contains itself") from error
    settle(context)
    flat.owners = context.owners
    return flat


def settle(context: Context) -> None:
    """Ends a walk: waits for what it has begun."""
    for wait in context.settle.values():
        wait()


def _walk(value: object, path: str, context: Context, flat: Flat) -> None:
    if isinstance(value, PerRank):
        _put(flat.rank_values, path, encode(value.value, path), flat)
        return
    adapter = adapter_of(value)
    if adapter is not None:
        part = adapter.part(value, path, context)
        if part is not None:
            _put(flat.parts, path, part, flat)
            return
    node = node_of(value, path, context)
    if node is not None:
        flat.nodes[path] = node
        _walk(node.tree, path, context, flat)
        return
    inside = children(value)
    is_top = path == "" and isinstance(value, Mapping)
    if inside is None or not (is_top or any(holds_parts(child) for _, child in inside)):
        _put(flat.values, path, encode(value, path), flat)
        return
    for key, child in inside:
        name = join(path, key)
        # Most leaves are tensors, and there may be tens of thousands of them: this is the short way to the same place.
        adapter = adapter_of(child)
        part = None if adapter is None else adapter.part(child, name, context)
        if part is None:
            _walk(child, name, context, flat)
        else:
            _put(flat.parts, name, part, flat)


def node_of(value: object, path: str, context: Context) -> Node | None:
    """A stateful object taken apart, or ``None``."""
    adapter = adapter_of(value)
    node: Node | None = adapter.node(value, path, context) if adapter is not None else None
    if node is not None or isinstance(value, type) or children(value) is not None:
        return node
    state_dict, load_state_dict = getattr(value, "state_dict", None), getattr(value, "load_state_dict", None)
    if callable(state_dict) and callable(load_state_dict):
        return Node(state_dict(), load_state_dict)
    return None


def holds_parts(value: object) -> bool:
    """Whether there is anything in ``value`` beside plain data."""
    if isinstance(value, (str, bytes, int, float, type(None))):
        return False
    inside = children(value)
    if inside is not None:
        return any(holds_parts(child) for _, child in inside)
    if isinstance(value, PerRank) or callable(getattr(value, "state_dict", None)):
        return True
    adapter = adapter_of(value)
    return adapter is not None and adapter.is_tensor(value)


def fill(value: Any, path: str, flat: Flat, values: Mapping[str, Any], rank_values: Mapping[str, Any]) -> Any:
    """``value`` with what was loaded in it: dicts and lists in place, tuples and tensors that cannot change made anew."""
    if isinstance(value, PerRank):
        value.value = rank_values.get(path, value.value)
        return value
    part = flat.parts.get(path)
    if part is not None:
        return value if part.rebuild is None or path in flat.untouched else part.rebuild()
    node = flat.nodes.get(path)
    if node is not None and node.tree is not value:
        tree = fill(node.tree, path, _without(flat, path), values, rank_values)
        restored = node.restore(tree.value if isinstance(tree, PerRank) else tree)
        return restored if node.rebuilds else value
    if path in flat.values:
        return _replaced(value, values.get(path, value))
    return _fill_children(value, path, flat, values, rank_values)


def _replaced(old: Any, new: Any) -> Any:
    """The new value; a dict or list keeps its identity, so that those who hold it see what was loaded.

    A tuple with names keeps them: the checkpoint has its items only.
    """
    if isinstance(old, dict) and type(new) is dict:
        items = {key: _replaced(old.get(key), item) for key, item in new.items()}
        old.clear()
        old.update(items)
        return old
    if isinstance(old, list) and type(new) is list:
        old[:] = [_replaced(*pair) for pair in zip(old, new, strict=False)] + new[len(old) :]
        return old
    if isinstance(old, tuple) and type(new) is tuple and len(old) == len(new):
        return _tuple_like(old, [_replaced(*pair) for pair in zip(old, new, strict=True)])
    return new


def _fill_children(
    value: Any, path: str, flat: Flat, values: Mapping[str, Any], rank_values: Mapping[str, Any]
) -> Any:
    inside = children(value)
    if inside is None:
        return value
    filled = [(key, fill(child, join(path, key), flat, values, rank_values)) for key, child in inside]
    if isinstance(value, Mapping):
        for key, child in filled:
            if value[key] is not child:
                value[key] = child  # type: ignore[index]
        return value
    items = [child for _, child in filled]
    if isinstance(value, list):
        value[:] = items
        return value
    return _tuple_like(value, items)


def _tuple_like(value: Any, items: list[Any]) -> Any:
    return type(value)(*items) if hasattr(value, "_fields") else tuple(items)


def _without(flat: Flat, path: str) -> Flat:
    nodes = {place: node for place, node in flat.nodes.items() if place != path}
    return Flat(flat.parts, flat.values, flat.rank_values, nodes, flat.untouched)


def _put(kind: dict[str, Any], path: str, value: Any, flat: Flat) -> None:
    if path in flat.parts or path in flat.values or path in flat.rank_values:
        raise StateError(
            f"two leaves of the state are called `{path}`",
            hint="names are paths joined with dots: a key that contains a dot can meet a nested key",
        )
    if not path and kind is flat.parts:
        raise StateError("a tensor of the state has no name", hint='give it one: {"tensor": tensor}')
    if not is_unicode(path):
        raise StateError(f"{path!r} is no name, because it is not valid Unicode")
    kind[path] = value
