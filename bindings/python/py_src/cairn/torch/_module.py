"""A module taken apart: its ``state_dict``, under names that no wrapper has touched."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from .._part import Context, Node
from ..errors import StateError
from ._dtypes import torch_dtype
from ._engines import refuse_engine, refuse_slices
from ._structure import Structure

_EXTRA = "_extra_state"
#: What wrappers add to names: `torch.compile` and activation checkpointing.
_WRAPPINGS = frozenset({"_orig_mod", "_checkpoint_wrapped_module"})


@dataclass
class ModuleState:
    """A module's tensors and extra states, by clean name, and the keys that ``state_dict`` has for them."""

    tree: dict[str, Any]
    keys: dict[str, str]


def module_node(module: nn.Module, path: str, context: Context) -> Node:
    """A module taken apart. Its tensors are loaded in place; only extra states are put back.

    Raises:
        StateError: if the module is wrapped in the old FSDP.
    """
    state = module_state(module, path, context)
    if not context.loading:
        return Node(state.tree, lambda tree: None)
    _fit_extra_states(state, path, context)
    own = {id(tensor) for tensor in module.parameters()} | {id(tensor) for tensor in module.buffers()}
    is_in_place = all(id(value) in own or name.endswith(_EXTRA) for name, value in state.tree.items())

    def restore(tree: dict[str, Any]) -> None:
        named = {state.keys[name]: value for name, value in tree.items()}
        if not is_in_place:
            # A hook of the module made these tensors, so the module has to take them back.
            module.load_state_dict(named)
            return
        for key, value in named.items():
            if key.endswith(_EXTRA):
                module.get_submodule(key.removesuffix(_EXTRA).removesuffix(".")).set_extra_state(value)

    return Node(state.tree, restore)


def module_state(module: nn.Module, path: str, context: Context) -> ModuleState:
    """What a module consists of; asked for once in a walk, by the module itself and by optimizers that look for names."""
    assert context.notes is not None, "every walk has notes"
    known: dict[int, ModuleState] = context.notes.setdefault("torch.modules", {})
    if id(module) not in known:
        known[id(module)] = _recalled(module, path, context) or _asked(module, path, context)
    return known[id(module)]


def _recalled(module: nn.Module, path: str, context: Context) -> ModuleState | None:
    """What a module consists of, if it is built as it was at the last save."""
    structure: Structure | None = context.kept.get(("torch.module", path))
    tree = None if structure is None or context.loading else structure.again(module)
    return None if tree is None else ModuleState(tree, {})


def _asked(module: nn.Module, path: str, context: Context) -> ModuleState:
    _refuse_wrappers(module, path)
    refuse_slices(module, path, context)
    found = _state_dict(module)
    state = ModuleState({}, {})
    for key, value in found.items():
        name = _clean(key, module)
        state.tree[name], state.keys[name] = value, key
    if not context.loading:
        context.kept["buffers", path] = _buffers(module, state, path)
        context.kept["torch.module", path] = Structure.of(module, found, list(state.tree))
    return state


def _buffers(module: nn.Module, state: ModuleState, path: str) -> set[str]:
    """The names of the module's buffers, but for those that share their memory with something else."""
    own = {id(buffer) for buffer in module.buffers()}
    tensors = {name: value for name, value in state.tree.items() if type(value) in (torch.Tensor, nn.Buffer)}
    shared = Counter(value.data_ptr() for value in tensors.values() if value.is_cpu or value.is_cuda)
    names = (name for name, value in tensors.items() if id(value) in own and shared[value.data_ptr()] == 1)
    return {f"{path}.{name}" if path else name for name in names}


def _state_dict(module: nn.Module) -> dict[str, Any]:
    try:
        return dict(module.state_dict(keep_vars=True))
    except TypeError:
        # A class of the user's that overrides it without this argument.
        return dict(module.state_dict())


def _clean(key: str, module: nn.Module) -> str:
    """A key without the traces of wrappers."""
    if "module" not in key and "_orig_mod" not in key:
        return key
    words = key.split(".")
    if "module" in words:
        words = [word for place, word in enumerate(words) if word != "module" or not _is_wrapper(module, words[:place])]
    return ".".join(word for word in words if word not in _WRAPPINGS)


def _is_wrapper(module: nn.Module, path: list[str]) -> bool:
    parallel = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    return isinstance(module.get_submodule(".".join(path)), parallel)


def _refuse_wrappers(module: nn.Module, path: str) -> None:
    for name, child in module.named_modules():
        refuse_engine(child, ".".join(filter(None, (path, name))))
    fsdp: Any = sys.modules.get("torch.distributed.fsdp.fully_sharded_data_parallel")
    if fsdp is None:
        return
    for child in module.modules():
        if isinstance(child, fsdp.FullyShardedDataParallel):
            raise StateError(
                f"`{path}` uses FullyShardedDataParallel, which has to gather tensors to show them",
                hint="use FSDP2 (`torch.distributed.fsdp.fully_shard`), or save "
                "`torch.distributed.checkpoint.state_dict.get_model_state_dict(model)` instead of the model",
            )


def _fit_extra_states(state: ModuleState, path: str, context: Context) -> None:
    """Extra states that are tensors take the shape they were stored with: they are replaced, not filled."""
    assert context.source is not None, "this is a load"
    for name, value in state.tree.items():
        if name.endswith(_EXTRA) and isinstance(value, torch.Tensor):
            full = f"{path}.{name}" if path else name
            found = context.source.find(full)
            if found is not None:
                state.tree[name] = torch.empty(found[1], dtype=torch_dtype(found[0], full))
