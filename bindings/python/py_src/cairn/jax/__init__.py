"""JAX arrays, random-number keys and registered pytrees, on any sharding and in any number of processes.

>>> checkpointer.save(step, {"params": params, "opt": opt_state})
>>> state = checkpointer.load(into={"params": params, "opt": opt_state}).state

Arrays cannot change, so a load makes new ones with the shardings of the old: dicts and lists receive them in place, and
``.state`` is the whole tree with them. A ``jax.ShapeDtypeStruct`` can stand for an array that is not there yet.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import jax
import jax.numpy as jnp

from .._part import Context, Node, Part
from ..errors import StateError
from ._arrays import load_part, save_part


def is_tensor(value: object) -> bool:
    """Whether ``value`` is an array, or an object that holds some."""
    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) or is_pytree(value)


def is_pytree(value: object) -> bool:
    """Whether ``value`` is an object whose class is registered with JAX as a node of trees."""
    if isinstance(value, (list, tuple, MutableMapping)):
        return False  # walked as what they are
    return not jax.tree_util.all_leaves([value])


def part(value: object, path: str, context: Context) -> Part | None:
    """This process's part of an array.

    Raises:
        StateError: for what is no array with bytes: traced, deleted, or of an element type without a name.
    """
    if not isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) or _is_key(value):
        return None
    if isinstance(value, jax.core.Tracer):
        raise StateError(f"`{path}` is being traced", hint="save and load outside of functions that JAX transforms")
    if not context.loading:
        _check_saveable(value, path)
    assert context.notes is not None, "every walk has notes"
    parts: dict[int, Part] = context.notes.setdefault("jax", {})
    if id(value) not in parts:
        parts[id(value)] = (load_part if context.loading else save_part)(value, path, context)
    return parts[id(value)]


def _check_saveable(value: jax.Array | jax.ShapeDtypeStruct, path: str) -> None:
    if isinstance(value, jax.ShapeDtypeStruct):
        raise StateError(f"`{path}` is a ShapeDtypeStruct, which has nothing to save", hint="load into it, or save an array")
    if value.is_deleted():
        raise StateError(f"`{path}` is an array that was deleted", hint="save it before it is donated to a function")


def node(value: object, path: str, context: Context) -> Node | None:
    """A random-number key or a registered pytree taken apart; loading makes it anew."""
    if _is_key(value):
        return _key_node(value, path)
    if isinstance(value, jax.Array) or not is_pytree(value):
        return None
    children, structure = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda item: item is not value)
    tree = {_key_name(keys[0]): child for keys, child in children}
    if len(tree) < len(children):
        raise StateError(f"`{path}` is a {type(value).__qualname__} that gives two children the same key")
    return Node(tree, lambda loaded: jax.tree_util.tree_unflatten(structure, list(loaded.values())), rebuilds=True)


def _is_key(value: object) -> bool:
    return isinstance(value, (jax.Array, jax.ShapeDtypeStruct)) and jnp.issubdtype(value.dtype, jax.dtypes.prng_key)


def _key_node(value: Any, path: str) -> Node:
    """A typed key: its words, and the name of its algorithm."""
    if isinstance(value, jax.ShapeDtypeStruct):
        raise StateError(f"`{path}` stands for a random-number key", hint="load into a key: `jax.random.key(0)`")
    tree = {"data": jax.random.key_data(value), "impl": str(jax.random.key_impl(value))}
    return Node(tree, lambda loaded: jax.random.wrap_key_data(loaded["data"], impl=loaded["impl"]), rebuilds=True)


def _key_name(key: Any) -> Any:
    """The name of a child: that of the attribute, the key of the dict, or its number."""
    for attribute in ("name", "key", "idx"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)
