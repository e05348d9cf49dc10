"""Parameter groups as plain values: the names of their parameters, and their hyperparameters."""

from __future__ import annotations

from typing import Any

import torch

from .._part import Context
from ..errors import KeyMismatch, StateError
from ._stored import stored_values_at

#: Of a group, what is not a hyperparameter.
_PARAMETERS = ("params", "param_names")


def written_groups(optimizer: Any, names: dict[int, str], path: str) -> list[dict[str, Any]]:
    """The groups with names in place of parameters, and numbers in place of scalar tensors."""
    groups = []
    for place, group in enumerate(optimizer.param_groups):
        written: dict[str, Any] = {"params": [names[id(parameter)] for parameter in group["params"]]}
        for key, value in group.items():
            if key not in _PARAMETERS:
                written[key] = _plain(value, f"{path}.param_groups.{place}.{key}")
        groups.append(written)
    return groups


def matched_groups(groups: list[dict[str, Any]], path: str, context: Context) -> list[dict[str, Any]]:
    """For each of the optimizer's groups the stored hyperparameters of the group with the same parameters.

    Raises:
        KeyMismatch: if parameters are grouped otherwise, and the load is strict.
    """
    stored = [group for found in stored_values_at(path, "param_groups", context) for group in found]
    by_name = {name: place for place, group in enumerate(stored) for name in group["params"]}
    matched, problems = [], []
    for place, group in enumerate(groups):
        found = {by_name.get(name) for name in group["params"]}
        only = next(iter(found)) if len(found) == 1 else None
        left = set(stored[only]["params"]).difference(group["params"]) if only is not None else set()
        if stored and (only is None or (left and context.strict is True)) and found:
            problems.append(_difference(place, group, stored, found, left))
        matched.append({} if only is None else {key: value for key, value in stored[only].items() if key != "params"})
    if problems and context.strict is not False:
        raise KeyMismatch(
            f"`{path}` groups its parameters otherwise than the checkpoint:" + "".join(f"\n  {it}" for it in problems),
            hint="group them as they were, or pass strict=False to keep the optimizer's own learning rates and the like",
        )
    return matched


def restore_groups(optimizer: Any, matched: list[dict[str, Any]]) -> None:
    """Gives every group the hyperparameters it was stored with."""
    for group, stored in zip(optimizer.param_groups, matched, strict=True):
        for key, value in stored.items():
            group[key] = _put_back(group.get(key), value)


def _difference(place: int, group: dict[str, Any], stored: list[dict[str, Any]], found: set[int | None], left: set[str]) -> str:
    """One group's trouble, with one name as evidence."""
    if left:
        return f"group {place} lacks `{min(left)}`, which was stored with its parameters"
    strangers = [name for name in group["params"] if not any(name in other["params"] for other in stored)]
    if strangers:
        return f"group {place} has `{strangers[0]}`, which is in no stored group"
    return f"the parameters of group {place} were stored in {len(found)} groups"


def _plain(value: Any, path: str) -> Any:
    """A hyperparameter without tensors."""
    if isinstance(value, torch.Tensor):
        if value.numel() != 1:
            raise StateError(f"`{path}` is a tensor of {value.numel()} elements, but hyperparameters are single numbers")
        return value.item()
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return type(value)(_plain(item, path) for item in value)
    return value


def _put_back(old: Any, new: Any) -> Any:
    """The new value in the shape of the old: a scalar tensor is filled, because compiled steps hold on to it."""
    if isinstance(old, torch.Tensor) and isinstance(new, (int, float)):
        return old.fill_(new)
    if isinstance(old, (tuple, list)) and isinstance(new, (tuple, list)) and len(old) == len(new):
        return type(old)(_put_back(before, after) for before, after in zip(old, new, strict=True))
    return new
