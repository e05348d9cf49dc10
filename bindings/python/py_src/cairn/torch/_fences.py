"""Who changes torch's tensors, and when: optimizers, streams and version counters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch


def optimizers(leaves: Iterable[tuple[str, object]]) -> list[Any]:
    """The optimizers among ``leaves`` that tell before they step.

    Those that may run inside a CUDA graph do not: a graph that is replayed calls no hooks.
    """
    return [leaf for _, leaf in leaves if isinstance(leaf, torch.optim.Optimizer) and _tells(leaf)]


def _tells(optimizer: Any) -> bool:
    is_hooked = getattr(type(optimizer).step, "hooked", False) and hasattr(optimizer, "_optimizer_step_pre_hooks")
    return bool(is_hooked) and not any(group.get("capturable") for group in optimizer.param_groups)


def addresses(optimizer: Any) -> set[int]:
    """Where the tensors lie that this optimizer changes."""
    return {_local(tensor).data_ptr() for tensor in _tensors(optimizer)}


def trainable(names: Iterable[str], tensors: Sequence[Any], optimizers: Sequence[Any]) -> Iterator[str]:
    """The names of parameters that these optimizers are to change."""
    parameters = {id(parameter) for optimizer in optimizers for parameter in _parameters(optimizer)}
    for name, tensor in zip(names, tensors, strict=True):
        if id(tensor) in parameters and tensor.requires_grad:
            yield name


def streams(devices: Iterable[int]) -> dict[int, int]:
    """The stream that each device works on now."""
    return {device: torch.cuda.current_stream(device).cuda_stream for device in devices}


def watch(tensors: Sequence[tuple[str, Any]]) -> Callable[[], list[str]]:
    """Tells which tensors were changed since now, by the counters that torch keeps of changes."""
    held = [(name, local, local._version) for name, local in ((name, _local(tensor)) for name, tensor in tensors)]
    return lambda: [name for name, local, version in held if local._version != version]


def _parameters(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _tensors(optimizer: Any) -> Iterator[Any]:
    yield from _parameters(optimizer)
    for state in optimizer.state.values():
        if isinstance(state, dict):
            yield from (value for value in state.values() if isinstance(value, torch.Tensor))


def _local(tensor: Any) -> Any:
    return getattr(tensor, "_local_tensor", tensor)
