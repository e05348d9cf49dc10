"""Which adapter speaks for an object: chosen by where its class was defined, so no framework is imported in vain."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

#: The package a class comes from → the module that knows it.
_BY_PACKAGE = {
    "numpy": "cairn.numpy",
    "ml_dtypes": "cairn.numpy",
    "torch": "cairn.torch._adapter",
    "cairn.torch": "cairn.torch._adapter",
    "deepspeed": "cairn.torch._adapter",
    "megatron": "cairn.torch._adapter",
    "jax": "cairn.jax",
    "jaxlib": "cairn.jax",
    "paddle": "cairn.paddle",
}
_known: dict[type, ModuleType | None] = {}


def adapter_of(value: object) -> ModuleType | None:
    """The adapter for ``value``: that of the first class in its ancestry that a framework defined."""
    kind = type(value)
    try:
        return _known[kind]
    except KeyError:
        pass
    found = None
    for ancestor in kind.__mro__:
        names = ancestor.__module__.split(".")
        package = names[0] if names[0] in _BY_PACKAGE else ".".join(names[:2])
        if package in _BY_PACKAGE:
            found = import_module(_BY_PACKAGE[package])
            break
    if found is None and "torch" in sys.modules and hasattr(value, "param_groups"):
        found = import_module(_BY_PACKAGE["torch"])
    if found is None and "jax" in sys.modules and kind.__module__ != "builtins":
        adapter = import_module(_BY_PACKAGE["jax"])
        found = adapter if adapter.is_pytree(value) else None
    if found is not None or kind.__module__ == "builtins":
        _known[kind] = found  # any other class may be registered as a pytree later
    return found
