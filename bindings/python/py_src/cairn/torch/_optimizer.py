"""An optimizer taken apart: its state by the names of its parameters, and its groups as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._part import Context, Node
from ..errors import StateError
from ._engines import refuse_slice
from ._groups import matched_groups, restore_groups, written_groups
from ._module import module_state
from ._optimizer_state import planned_state


def is_optimizer(value: object) -> bool:
    """Whether ``value`` is one of torch's optimizers, or has what they have."""
    if isinstance(value, torch.optim.Optimizer):
        return True
    return isinstance(getattr(value, "param_groups", None), list) and isinstance(getattr(value, "state", None), Mapping)


def optimizer_node(optimizer: Any, path: str, context: Context) -> Node:
    """An optimizer taken apart.

    While loading, its state becomes what the checkpoint has for its parameters: tensors it has already are filled in place,
    and others are made. No step is taken for that.

    Raises:
        KeyMismatch: if parameters are grouped otherwise than in the checkpoint, and the load is strict.
    """
    named = _named_parameters(optimizer, path, context)
    for name, parameter in named.items():
        refuse_slice(parameter, f"{path}.state.{name}", context)
    names = dict(zip(map(id, named.values()), named, strict=True))
    _refuse_strangers(optimizer, names, path)
    held = {names[id(parameter)]: state for parameter, state in optimizer.state.items()}
    groups = written_groups(optimizer, names, path)
    if not context.loading:
        return Node({"state": held, "param_groups": groups}, lambda tree: None)

    held = {name: dict(state) for name, state in held.items()}
    state = planned_state(optimizer, named, held, path, context)
    matched = matched_groups(groups, path, context)

    def restore(tree: dict[str, Any]) -> None:
        for name, parameter in named.items():
            if name in tree["state"]:
                optimizer.state[parameter] = tree["state"][name]
            else:
                optimizer.state.pop(parameter, None)
        restore_groups(optimizer, matched)

    return Node({"state": state, "param_groups": groups}, restore)


def _named_parameters(optimizer: Any, path: str, context: Context) -> dict[str, Any]:
    """The optimizer's parameters, named after the modules in the same tree, else by their groups, else by number."""
    by_module = _names_in_modules(optimizer, context)
    named: dict[str, Any] = {}
    for group in optimizer.param_groups:
        own = group.get("param_names") or [None] * len(group["params"])
        for parameter, own_name in zip(group["params"], own, strict=True):
            name = by_module.get(id(parameter)) or own_name or str(len(named))
            if name in named:
                raise StateError(f"`{path}` has two parameters called `{name}`", hint="give each parameter its own name")
            named[name] = parameter
    return named


def _names_in_modules(optimizer: Any, context: Context) -> dict[int, str]:
    """Parameter → its name. With parameters of several modules, names begin with the module's own path."""
    wanted = {key for group in optimizer.param_groups for key in map(id, group["params"])}
    found: dict[str, dict[int, str]] = {}
    for path, leaf in context.leaves:
        if isinstance(leaf, nn.Module) and wanted:
            tree = module_state(leaf, path, context).tree
            # From the last to the first, so that of several names of one parameter the first stays.
            names = {id(tensor): name for name, tensor in reversed(tree.items()) if id(tensor) in wanted}
            wanted -= names.keys()
            if names:
                found[path] = names
    if len(found) == 1:
        return next(iter(found.values()))
    return {key: f"{path}.{name}" for path, names in found.items() for key, name in names.items()}


def _refuse_strangers(optimizer: Any, names: dict[int, str], path: str) -> None:
    strangers = [key for key in optimizer.state if id(key) not in names]
    if strangers:
        shown = f"{type(strangers[0]).__name__}" if isinstance(strangers[0], torch.Tensor) else repr(strangers[0])
        raise StateError(
            f"`{path}` has state for {shown}, which is in none of its parameter groups",
            hint="was the parameter replaced after the optimizer was made? Make the optimizer last",
        )
