"""Paddle's tensors, layers and optimizers as parts of a state.

>>> checkpointer = cairn.Checkpointer("runs/ernie")
>>> checkpointer.save(step, {"model": layer, "optim": optimizer})
>>> checkpointer.load(into={"model": layer, "optim": optimizer})

| object | becomes |
|---|---|
| ``paddle.Tensor``, ``Parameter`` | the same on all ranks |
| a distributed tensor (``shard_tensor``) | split along its process mesh |
| ``ShardedWeight`` | a box of the whole tensor, or a flat range of one |
| ``nn.Layer`` | its parameters and persistable buffers, by structured name |
| ``optimizer.Optimizer`` | ``state.<structured name>.moment1_0`` … ``master_weight``, and the learning rate |
| ``lr.LRScheduler``, ``amp.GradScaler`` | their ``state_dict`` |

:func:`export_unified` writes a checkpoint as a folder that Paddle's trainers resume from.
"""

from __future__ import annotations

from .._part import Context, Node
from . import _layers, _optimizers
from ._tensors import is_tensor, part
from ._unified import export_unified

__all__ = ["export_unified", "is_tensor", "node", "part"]


def node(value: object, path: str, context: Context) -> Node | None:
    """A layer, optimizer or scheduler taken apart."""
    return _layers.node(value, path, context) or _optimizers.node(value, path, context)
