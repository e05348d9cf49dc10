"""Paddle's layers: structured names, and the pieces that tensor-parallel layers hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .._containers import join
from .._part import Context, Node
from ..errors import StateError

if TYPE_CHECKING:
    paddle: Any
else:
    import paddle


def node(value: Any, path: str, context: Context) -> Node | None:
    """A layer as its parameters and persistable buffers, which are loaded in place; a scheduler as its ``state_dict``."""
    if isinstance(value, paddle.nn.Layer):
        tensors = _tensors(value, context)
        buffers = {id(buffer) for buffer in _unwrapped(value).buffers()}
        context.kept["buffers", path] = {join(path, name) for name, tensor in tensors.items() if id(tensor) in buffers}
        return Node(tensors, _nothing)
    if isinstance(value, paddle.optimizer.lr.LRScheduler):
        return Node(value.state_dict(), value.set_state_dict)
    return None


class Named(NamedTuple):
    """A tensor of the state, or a ``ShardedWeight``, with its structured name and its whole path."""

    name: str
    path: str
    tensor: Any


def structured(context: Context) -> dict[str, Named]:
    """Paddle's own name of each parameter in the state → its structured name.

    A parameter in a layer has the name it has there, whatever the layer's place in the state; one that stands in the state
    by itself has its path without the first key: that of a ``state_dict``. Of several names the first counts.
    """
    notes: dict[str, Any] = context.notes if context.notes is not None else {}
    if "paddle.structured" not in notes:
        found: dict[str, Named] = {}
        for path, leaf in context.leaves:
            if isinstance(leaf, paddle.nn.Layer):
                for name, tensor in _tensors(leaf, context).items():
                    found.setdefault(_local(tensor).name, Named(name, join(path, name), tensor))
            elif isinstance(_local(leaf), paddle.Tensor):
                found.setdefault(_local(leaf).name, Named(path.partition(".")[2] or path, path, leaf))
        notes["paddle.structured"] = found
    names: dict[str, Named] = notes["paddle.structured"]
    return names


def _tensors(layer: Any, context: Context) -> dict[str, Any]:
    """The layer's tensors without the hooks of ``state_dict``, which may hand out copies."""
    layer = _unwrapped(layer)
    tensors: dict[str, Any] = layer.state_dict(use_hook=False)
    if context.world.size > 1 and any(getattr(tensor, "is_distributed", False) for tensor in tensors.values()):
        tensors = layer.sharded_state_dict()
    return tensors


def _unwrapped(layer: Any) -> Any:
    """The layer inside Paddle's own wrappers: data parallelism, pipelines, mixed precision, sharding.

    Raises:
        StateError: if the wrapper cuts parameters in a way that only it knows.
    """
    while type(layer).__module__.startswith("paddle."):
        if type(layer).__name__ == "GroupShardedStage2":
            raise StateError(
                "a GroupShardedStage2 goes with an optimizer whose state is cut in its own way",
                hint="use `shard_optimizer` with ShardingStage2, or save the layer inside it without the optimizer",
            )
        if type(layer).__name__ == "GroupShardedStage3":
            raise StateError(
                "the parameters of a GroupShardedStage3 are cut in its own way",
                hint="call `get_all_parameters()` first and pass the layer inside it, or use `shard_optimizer` with ShardingStage3",
            )
        inner = getattr(layer, "_layers", None) or getattr(layer, "_layer", None)
        if not isinstance(inner, paddle.nn.Layer):
            break
        layer = inner
    return layer


def _local(leaf: Any) -> Any:
    return getattr(leaf, "local_tensor", leaf)


def _nothing(tree: object) -> None:
    """Everything was loaded in place."""
