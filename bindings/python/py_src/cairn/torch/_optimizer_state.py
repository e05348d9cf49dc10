"""What an optimizer's state will be once it is loaded: the tensors it has, and those it still lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from .._part import Context
from ._dtypes import torch_dtype
from ._stored import StoredTensor, stored_below, stored_values_at


def planned_state(
    optimizer: Any, named: Mapping[str, Any], held: dict[str, dict[str, Any]], path: str, context: Context
) -> dict[str, dict[str, Any]]:
    """The state that the checkpoint has for these parameters, and beside it what only the optimizer has.

    The latter is missing in the checkpoint, which a strict load will say.
    """
    prefix = f"{path}.state" if path else "state"
    found = _by_parameter(stored_below(prefix, context), named)
    plain = stored_values_at(path, "state", context)
    if plain and not found:
        return {name: dict(entries) for state in plain for name, entries in state.items() if name in named}
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    state = dict(held)
    for name, entries in found.items():
        parameter = named[name]
        state[name] = _merged(held.get(name, {}), entries, parameter, groups[id(parameter)], f"{prefix}.{name}")
    return state


def _by_parameter(stored: dict[str, Any], named: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is stored for each parameter, by the rest of its name."""
    found: dict[str, dict[str, Any]] = {}
    for full, value in stored.items():
        for name, rest in _splits(full):
            if name in named:
                found.setdefault(name, {})[rest] = value
                break
    return found


def _splits(name: str) -> Iterator[tuple[str, str]]:
    """The ways to read a name as that of a parameter and of something in its state; the longest parameter first."""
    yield name, ""
    end = name.rfind(".")
    while end > 0:
        yield name[:end], name[end + 1 :]
        end = name.rfind(".", 0, end)


def _merged(held: dict[str, Any], entries: dict[str, Any], parameter: Any, group: Any, path: str) -> dict[str, Any]:
    """The state of one parameter: tensors that are held and stored stay the ones that are held."""
    if set(entries) == {""}:
        return dict(entries[""])
    tree: dict[str, Any] = {}
    for rest, value in entries.items():
        _put(tree, rest.split("."), _made(value, rest, parameter, group, f"{path}.{rest}"))
    made = {key: _lists(value) for key, value in tree.items()}
    for key, value in held.items():
        made[key] = _kept(value, made[key]) if key in made else value
    return made


def _kept(held: Any, made: Any) -> Any:
    """What is held, unless what is stored is of another kind."""
    if isinstance(held, torch.Tensor) and isinstance(made, torch.Tensor):
        return held
    return made


def _put(tree: dict[str, Any], words: list[str], value: Any) -> None:
    for word in words[:-1]:
        tree = tree.setdefault(word, {})
    tree[words[-1]] = value


def _lists(value: Any) -> Any:
    """Dicts whose keys count from 0 are lists again."""
    if not isinstance(value, dict):
        return value
    items = {key: _lists(item) for key, item in value.items()}
    if items and all(str(place) in items for place in range(len(items))):
        return [items[str(place)] for place in range(len(items))]
    return items


def _made(value: Any, key: str, parameter: Any, group: Any, path: str) -> Any:
    """Memory for a stored tensor: like the parameter if it has the parameter's shape."""
    if not isinstance(value, StoredTensor):
        return value
    dtype = torch_dtype(value.dtype, path)
    with torch.no_grad():
        if value.shape == tuple(parameter.shape) and (value.shape or key != "step"):
            return torch.empty_like(parameter.detach(), dtype=dtype)
        if not value.shape:
            on_device = key != "step" or group.get("capturable") or group.get("fused")
            return torch.empty((), dtype=dtype, device=parameter.device if on_device else "cpu")
        return _replicated_like(parameter, value.shape, dtype)


def _replicated_like(parameter: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """A tensor that every rank of the parameter's mesh holds whole; without a mesh, a plain one."""
    plain = torch.empty(shape, dtype=dtype, device=parameter.device)
    mesh = getattr(parameter, "device_mesh", None)
    if mesh is None:
        return plain
    from torch.distributed.tensor import DTensor, Replicate

    return DTensor.from_local(plain, mesh, [Replicate()] * mesh.ndim, run_check=False)
