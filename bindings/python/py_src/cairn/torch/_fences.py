"""Who changes torch's tensors, and when: optimizers, CUDA graphs, streams and version counters."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

#: Optimizers whose step was captured in a graph: replays of it are told to nobody.
_in_graphs: weakref.WeakSet[Any] = weakref.WeakSet()


def optimizers(leaves: Iterable[tuple[str, object]]) -> list[Any]:
    """The optimizers among ``leaves`` that tell before they step.

    Those that are made to run inside a CUDA graph do not: a graph that is replayed calls no hooks. Others may be in one all the same.
    """
    return [leaf for _, leaf in leaves if isinstance(leaf, torch.optim.Optimizer) and _tells(leaf)]


def _tells(optimizer: Any) -> bool:
    is_hooked = getattr(type(optimizer).step, "hooked", False) and hasattr(optimizer, "_optimizer_step_pre_hooks")
    capturable = getattr(optimizer, "capturable", False) or any(group.get("capturable") for group in optimizer.param_groups)
    return bool(is_hooked) and not capturable


@cache
def watch_graphs() -> None:
    """Remembers from now on which optimizers step inside a graph, whoever saves them later."""
    register_optimizer_step_pre_hook(_note_graph)


def _note_graph(optimizer: Any, *_: object) -> None:
    if is_capturing():
        _in_graphs.add(optimizer)


def is_capturing() -> bool:
    """Whether what the current stream is given now goes into a graph, instead of being done."""
    return _is_in_use() and torch.cuda.is_current_stream_capturing()


def is_in_graph(optimizer: Any) -> bool:
    """Whether a step of ``optimizer`` was captured."""
    return optimizer in _in_graphs


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


def are_pinned(tensors: Iterable[Any]) -> bool:
    """Whether a device may still be filling one of these tensors on the host, behind everybody's back."""
    if not _is_in_use():
        return False
    return any(isinstance(one, torch.Tensor) and one.is_cpu and one.layout is torch.strided and one.is_pinned() for one in map(_local, tensors))


def settle(devices: Iterable[int]) -> None:
    """Waits for what the current streams were given: a copy to the host that does not block is done when it is."""
    for device in set(devices) | {torch.cuda.current_device()}:
        torch.cuda.current_stream(device).synchronize()


def watch(tensors: Sequence[tuple[str, Any]]) -> Callable[[], list[str]]:
    """Tells which tensors were changed since now, by the counters that torch keeps of changes."""
    held = [(name, local, local._version) for name, local in ((name, _local(tensor)) for name, tensor in tensors)]
    return lambda: [name for name, local, version in held if local._version != version]


def _is_in_use() -> bool:
    """Whether this process has begun to use a GPU: asking for more would begin it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


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
