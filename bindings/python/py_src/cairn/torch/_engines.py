"""Engines that cut a model or its optimizer in ways only they know: refused by name, before a rank's slice is taken for the whole.

Nothing of theirs is imported; they are told by the modules their classes come from, and by what they write on parameters.
"""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from .._part import Context
from ..errors import StateError

_OPEN_IT = "`cairn.open` and `cairn convert` read that folder on any layout"


def refuse_engine(value: Any, path: str) -> None:
    """Refuses a wrapper of an engine, whatever of it looks like a module or an optimizer.

    Raises:
        StateError: with the class, and what to do instead.
    """
    for kind in type(value).__mro__:
        if kind.__module__.startswith("deepspeed.runtime.") and ("Engine" in kind.__name__ or "Optimizer" in kind.__name__):
            raise StateError(
                f"`{path}` is a {type(value).__name__} of DeepSpeed, which cuts its state in its own way: a save would keep one rank's part",
                hint=f"save with `engine.save_checkpoint(…)`; {_OPEN_IT}. Or use FSDP2 (`torch.distributed.fsdp.fully_shard`)",
            )
        if kind.__module__.startswith("megatron.") and kind.__name__ in _MEGATRON_OPTIMIZERS:
            _refuse_distributed(value, path)
    for inner in _chained(value):
        refuse_engine(inner, path)


_MEGATRON_OPTIMIZERS = ("DistributedOptimizer", "LayerWiseDistributedOptimizer")


def _chained(value: Any) -> list[Any]:
    is_chain = type(value).__name__ == "ChainedOptimizer" and type(value).__module__.startswith("megatron.")
    return list(value.chained_optimizers) if is_chain else []


def _refuse_distributed(value: Any, path: str) -> None:
    raise StateError(
        f"`{path}` is a {type(value).__name__} of Megatron-Core, which cuts its state across the ranks of data parallelism",
        hint=f"save with `megatron.core.dist_checkpointing.save(…)`; {_OPEN_IT}",
    )


def refuse_slice(tensor: Any, path: str, context: Context) -> None:
    """Refuses a parameter that an engine has cut and marked as such, for it looks like one that every rank holds whole.

    Raises:
        StateError: with the parameter's path.
    """
    if hasattr(tensor, "ds_id") and hasattr(tensor, "ds_status"):
        raise StateError(
            f"`{path}` is a parameter that DeepSpeed's ZeRO 3 has cut, so this rank holds a part of it or nothing",
            hint=f"save with `engine.save_checkpoint(…)`; {_OPEN_IT}",
        )
    is_cut = getattr(tensor, "tensor_model_parallel", False) is True and _group_size("tensor", context) > 1
    is_expert = getattr(tensor, "allreduce", True) is False and _group_size("expert", context) > 1
    if is_cut or is_expert:
        kind = "tensor" if is_cut else "expert"
        raise StateError(
            f"`{path}` is one rank's slice of a parameter ({kind} parallelism of Megatron), but does not say which one",
            hint=f"save with `megatron.core.dist_checkpointing.save(…)`, which knows where slices belong; {_OPEN_IT}",
        )


def refuse_slices(module: nn.Module, path: str, context: Context) -> None:
    """Refuses a module that has such a parameter: its ``state_dict`` may hand out copies without the marks."""
    for name, parameter in module.named_parameters():
        refuse_slice(parameter, f"{path}.{name}" if path else name, context)


def _group_size(kind: str, context: Context) -> int:
    """Over how many ranks Megatron cuts; layers are marked even if it is one."""
    parallel: Any = sys.modules.get("megatron.core.parallel_state")
    if parallel is None or not parallel.model_parallel_is_initialized():
        return context.world.size
    size: int = getattr(parallel, f"get_{kind}_model_parallel_world_size")()
    return size
