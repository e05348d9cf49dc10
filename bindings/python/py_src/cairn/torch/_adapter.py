"""What torch's objects are to Cairn: which are tensors, and which are taken apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .._part import Context, Node, Part, PerRank, replicated
from ..errors import StateError
from ._dtypes import dtype_name, stored_shape
from ._engines import refuse_engine, refuse_slice
from ._memory import tensor_part
from ._module import module_node
from ._optimizer import is_optimizer, optimizer_node
from ._recall import Recollection, is_steady
from ._shards import Shards, annotated_part, is_annotated, sharded_tensor_part, shards_part

_Taker = Callable[[Any, str, Context], Part | None]
_takers: dict[type, _Taker] = {}


def part(value: object, path: str, context: Context) -> Part | None:
    """This rank's part of a tensor of any kind, or ``None`` if ``value`` is no tensor."""
    kind = type(value)
    taker = _takers.get(kind)
    if taker is None:
        taker = _takers[kind] = _taker(kind)
    return taker(value, path, context)


def is_tensor(value: object) -> bool:
    """Whether ``value`` is a tensor, or something else with a state that is not plain."""
    return isinstance(value, (torch.Tensor, Shards, torch.Generator))


def node(value: object, path: str, context: Context) -> Node | None:
    """Modules, optimizers, generators and tensors made of tensors, taken apart."""
    refuse_engine(value, path)
    if isinstance(value, nn.Module):
        return module_node(value, path, context)
    if is_optimizer(value):
        return optimizer_node(value, path, context)
    if isinstance(value, torch.Generator):
        return _generator_node(value)
    if isinstance(value, torch.Tensor):
        names, _ = value.__tensor_flatten__()  # type: ignore[attr-defined]
        return Node({name: getattr(value, name) for name in names}, lambda tree: None)
    return None


def recollect(tensors: Sequence[Any], parts: Sequence[Part]) -> Recollection:
    """What is remembered of tensors from one save to the next."""
    steady, sharded = [], []
    for place, (tensor, made) in enumerate(zip(tensors, parts, strict=True)):
        taker = _takers.get(type(tensor))
        if taker is _plain_part and not is_annotated(tensor) and is_steady(tensor, made):
            steady.append(place)
        elif hasattr(tensor, "_local_tensor") and not hasattr(tensor._local_tensor, "wait") and is_steady(tensor._local_tensor, made):
            steady.append(place)
            sharded.append(place)
    return Recollection(tensors, steady, sharded)


def _taker(kind: type) -> _Taker:
    """The function that makes parts of the values of a class."""
    if issubclass(kind, Shards):
        return shards_part
    if not issubclass(kind, torch.Tensor):
        return _none
    ancestry = {ancestor.__qualname__ for ancestor in kind.__mro__ if ancestor.__module__.startswith("torch.")}
    if "DTensor" in ancestry:
        from ._dtensor import dtensor_part

        return dtensor_part
    if "ShardedTensor" in ancestry:
        return sharded_tensor_part
    if "FakeTensor" in ancestry:
        return _refuse_fake
    if "UninitializedTensorMixin" in ancestry:
        return _refuse_uninitialized
    if "FunctionalTensor" in ancestry:
        return _refuse_functional
    return _none if hasattr(kind, "__tensor_flatten__") else _plain_part


def _plain_part(tensor: Any, path: str, context: Context) -> Part:
    refuse_slice(tensor, path, context)
    if is_annotated(tensor):
        return annotated_part(tensor, path, context)
    name = dtype_name(tensor.dtype, path)
    spec = replicated(name, stored_shape(name, tuple(tensor.shape), path), context.world.size)
    return tensor_part(tensor, spec, path, context)


def _none(value: Any, path: str, context: Context) -> None:
    return None


def _refuse_fake(tensor: Any, path: str, context: Context) -> Part:
    raise StateError(f"`{path}` is a fake tensor, so it has no data", hint="make the module outside of FakeTensorMode")


def _refuse_functional(tensor: Any, path: str, context: Context) -> Part:
    raise StateError(
        f"`{path}` is a functional tensor, which exists only while a function is traced",
        hint="save outside of `torch.func.functionalize` and `torch.export`",
    )


def _refuse_uninitialized(tensor: Any, path: str, context: Context) -> Part:
    raise StateError(
        f"`{path}` has no shape yet: its module is a lazy one that has seen no input",
        hint="run one batch through the module first",
    )


def _generator_node(generator: Any) -> Node:
    def restore(state: bytes | None) -> None:
        if state is not None:
            generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))

    return Node(PerRank(generator.get_state().numpy().tobytes()), restore)
