"""Parameter groups as plain values: the names of their parameters, and their hyperparameters."""

from __future__ import annotations

from typing import Any

import torch

from .._part import Context
from ..errors import KeyMismatch, StateError
from ._stored import stored_values_at

#: Of a group, what is not a hyperparameter.
_PARAMETERS = ("params", "param_names")
#: What schedules add to a group, and newer versions of torch.
_ADDED = frozenset(
    "initial_lr max_lr min_lr max_momentum base_momentum swa_lr foreach fused capturable differentiable maximize decoupled_weight_decay".split()
)


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
    """For each of the optimizer's groups the stored hyperparameters of its parameters.

    Raises:
        KeyMismatch: if parameters are grouped in another way, or by another kind of optimizer, and the load is strict.
    """
    stored = [group for found in stored_values_at(path, "param_groups", context) for group in found]
    places: dict[str, set[int]] = {}
    for place, group in enumerate(stored):
        for name in group["params"]:
            places.setdefault(name, set()).add(place)
    matched, problems = [], []
    for place, group in enumerate(groups):
        chosen = [stored[found] for found in _chosen(group["params"], places)]
        problem = _problem(group["params"], chosen, places, context.strict is True)
        if problem is None and chosen and context.strict is True:
            problem = _other_kind(group, chosen[0])
        if problem is not None and stored:
            problems.append(f"group {place} {problem}")
        matched.append({} if problem is not None or not chosen else _hyperparameters(chosen[0]))
    if problems and context.strict is not False:
        raise KeyMismatch(
            f"`{path}` groups its parameters otherwise than the checkpoint:" + "".join(f"\n  {it}" for it in problems),
            hint="group them as they were, or pass strict=False to keep the optimizer's own learning rates and the like",
        )
    return matched


def _chosen(names: list[str], places: dict[str, set[int]]) -> list[int]:
    """The stored group that has all of ``names``; if there is none, one for each of them (ranks that differ have their own)."""
    found = [places[name] for name in names if name in places]
    common = set.intersection(*found) if found else set()
    return [min(common)] if common else sorted({min(one) for one in found})


def _problem(names: list[str], chosen: list[dict[str, Any]], places: dict[str, set[int]], is_exact: bool) -> str | None:
    """Why the stored groups cannot speak for a group, with one name as evidence."""
    strangers = [name for name in names if name not in places]
    if strangers:
        return f"has `{strangers[0]}`, which is in no stored group"
    if any(_hyperparameters(group) != _hyperparameters(chosen[0]) for group in chosen):
        return f"has the parameters of {len(chosen)} stored groups, which are not alike"
    left = {name for group in chosen for name in group["params"]}.difference(names) if is_exact else set()
    return f"lacks `{min(left)}`, which was stored with its parameters" if left else None


def _other_kind(group: dict[str, Any], stored: dict[str, Any]) -> str | None:
    """Why a stored group is that of another kind of optimizer: each has settings that the other does not know."""
    own, theirs = group.keys() - stored.keys() - _ADDED, stored.keys() - group.keys() - _ADDED
    if not own or not theirs:
        return None
    return f"has `{min(own)}` and was stored with `{min(theirs)}`: another kind of optimizer"


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in _PARAMETERS}


def restore_groups(optimizer: Any, matched: list[dict[str, Any]]) -> None:
    """Gives every group the hyperparameters it was stored with."""
    for group, stored in zip(optimizer.param_groups, matched, strict=True):
        for key, value in stored.items():
            group[key] = _put_back(group.get(key), value)


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
