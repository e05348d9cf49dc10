"""Paddle's optimizers: their accumulators under the structured names of the parameters they belong to.

Paddle names accumulators after its own counters (``linear_0.w_0_moment1_0``), which change with the order in which layers
are made. Here the name says which parameter it is: ``state.encoder.linear.weight.moment1_0``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._part import Context, Node
from ..errors import StateError
from ._layers import Named, structured

if TYPE_CHECKING:
    paddle: Any
    ShardedWeight: Any
else:
    import paddle
    from paddle.distributed.flex_checkpoint.dcp.sharded_weight import ShardedWeight

_MASTER = "master_weight"


def node(value: Any, path: str, context: Context) -> Node | None:
    """An optimizer as its accumulators, master weights and learning rate.

    A load first creates the accumulators that the checkpoint has and the optimizer does not have yet.

    Raises:
        StateError: if its state is cut in a way only its own ``sharded_state_dict`` knows, or a parameter is in no layer.
    """
    optimizer = _unwrapped(value, path)
    if optimizer is None:
        return None
    parameters = list(_parameters(optimizer))
    names = _Names(structured(context), parameters, path)
    _create_missing(optimizer, parameters, names, path, context)
    tree = _learning_rate(optimizer)
    state = {}
    for parameter in parameters:
        tensors = dict(_accumulators(optimizer, parameter))
        if tensors:
            name = names.of(parameter)
            state[name] = {key: names.placed(tensor, parameter) for key, tensor in tensors.items()}
    if state:
        tree["state"] = state
    return Node(tree, lambda loaded: _set_learning_rate(optimizer, loaded))


class _Names:
    """The structured name of each parameter, and its place in the whole tensor where ranks hold slices."""

    def __init__(self, known: dict[str, Named], parameters: list[Any], path: str) -> None:
        self._known = known
        self._path = path
        self._counts = Counter(known[parameter.name].name for parameter in parameters if parameter.name in known)

    def of(self, parameter: Any) -> str:
        """The structured name; of two layers that both have such a name, with the layer's path before it.

        Raises:
            StateError: if no layer in the state has the parameter.
        """
        if parameter.name not in self._known:
            raise StateError(
                f"`{self._path}` updates the parameter `{parameter.name}`, which is in no layer of the state",
                hint='name the layer beside it: {"model": layer, "optim": optimizer}',
            )
        named = self._known[parameter.name]
        return named.name if self._counts[named.name] == 1 else named.path

    def placed(self, tensor: Any, parameter: Any) -> Any:
        """The tensor, in the same place as its parameter if that is a slice of the same shape."""
        weight = self._known[parameter.name].tensor
        if not isinstance(weight, ShardedWeight) or tensor.is_dist() or list(tensor.shape) != list(weight.local_shape):
            return tensor
        return ShardedWeight(weight.key, tensor, weight.local_shape, weight.global_shape, weight.global_offset)


def _unwrapped(value: Any, path: str) -> Any:
    """The optimizer inside the wrappers of hybrid parallelism; ``None`` for anything else."""
    for kind in type(value).__mro__:
        if kind.__module__.startswith("paddle.") and kind.__name__.startswith("GroupShardedOptimizer"):
            raise StateError(
                f"`{path}` is a {type(value).__name__}: each rank has the state of its own parameters alone",
                hint="use `shard_optimizer` with ShardingStage1 or 2, whose state knows where its pieces lie",
            )
    while not isinstance(value, paddle.optimizer.Optimizer):
        inner = getattr(value, "_inner_opt", None)
        if inner is None:
            return None
        if "sharding" in type(value).__name__.lower():
            raise StateError(
                f"`{path}` is a {type(value).__name__}, which cuts its state in its own way",
                hint="save `optimizer.sharded_state_dict(layer.sharded_state_dict())` in its place",
            )
        value = inner
    return value


def _parameters(optimizer: Any) -> Iterator[Any]:
    for item in optimizer._parameter_list:
        if isinstance(item, dict):
            yield from item["params"]
        else:
            yield item


def _accumulators(optimizer: Any, parameter: Any) -> Iterator[tuple[str, Any]]:
    """The parameter's accumulators, and its master weight, with the names that paddle gives the first optimizer."""
    master = optimizer._master_weights.get(parameter.name)
    owner = parameter.name if master is None else master.name
    prefix = f"{optimizer._name}_" if optimizer._name is not None else ""
    for kind, tensors in optimizer._accumulators.items():
        if owner in tensors:
            yield f"{kind.removeprefix(prefix)}_0", tensors[owner]
    if master is not None:
        yield _MASTER, master


def _create_missing(optimizer: Any, parameters: list[Any], names: _Names, path: str, context: Context) -> None:
    """Creates accumulators as the first step would: those the checkpoint has, and those given to ``set_state_dict``."""
    stored: set[str] = set()
    if context.source is not None:
        prefix = f"{path}.state." if path else "state."
        stored = {name.rpartition(".")[0].removeprefix(prefix) for name in context.source.names() if name.startswith(prefix)}
    held = bool(optimizer._accumulators_holder)
    missing = [
        parameter
        for parameter in parameters
        if not any(_accumulators(optimizer, parameter))
        and (held and not parameter.stop_gradient or stored and names.of(parameter) in stored)
    ]
    if missing:
        block = paddle.base.framework.default_main_program().global_block()
        optimizer._create_accumulators(block, missing)


def _learning_rate(optimizer: Any) -> dict[str, Any]:
    rate = optimizer._learning_rate
    if isinstance(rate, paddle.optimizer.lr.LRScheduler):
        return {"LR_Scheduler": rate.state_dict()}
    return {"lr": float(rate)}


def _set_learning_rate(optimizer: Any, loaded: dict[str, Any]) -> None:
    if "LR_Scheduler" in loaded:
        optimizer._learning_rate.set_state_dict(loaded["LR_Scheduler"])
    elif "lr" in loaded:
        optimizer.set_lr(loaded["lr"])
