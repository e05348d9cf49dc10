"""Accelerate's ``save_state`` and ``load_state`` with Cairn behind them.

>>> register(accelerator, "runs/bert", keep=cairn.Keep(last=3))
>>> accelerator.save_state("checkpoints/100")        # weights go to the run, in the background; the folder only names the step
>>> accelerator.load_state("checkpoints/100")

Accelerate gives hooks the models alone: optimizers, schedules and generators stay its own pickles in the folder. To keep all of
it in one checkpoint, save it yourself:

>>> checkpointer.save(step, state(accelerator))
>>> checkpointer.load(into=state(accelerator))
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.data_loader import SeedableRandomSampler
from accelerate.utils import DistributedType

from .._checkpointer import Checkpointer
from .._logger import logger
from .._part import PerRank
from .._place import Place
from .._retention import Keep
from .._rng import Rng
from ..errors import StateError

#: The file in Accelerate's folder that names the run and the step.
NOTE = "cairn.json"
#: Marks a tensor among plain values.
_TENSOR = "$tensor"


def register(accelerator: Accelerator, url: Place, *, keep: Keep | None = None) -> Checkpointer:
    """Makes ``accelerator`` keep the weights of its models in the run at ``url``; returns the run, to wait for saves.

    The step is the number the folder's name ends with, else Accelerate's own count of saves.

    Raises:
        StateError: if Accelerate hands no weights to hooks: with FSDP, DeepSpeed and Megatron-LM it saves them itself.
    """
    if accelerator.distributed_type in (DistributedType.FSDP, DistributedType.DEEPSPEED, DistributedType.MEGATRON_LM):
        raise StateError(
            f"with {accelerator.distributed_type} Accelerate saves models itself, and no hook can change that",
            hint="save `cairn.integrations.accelerate.state(accelerator)` with a `cairn.Checkpointer`",
        )
    checkpointer = Checkpointer(url, keep=keep)

    def save(models: list[Any], weights: list[Any], output_dir: str) -> None:
        step = _step(output_dir, accelerator)
        checkpointer.save(step, {"models": list(models)}, replace=True)
        weights.clear()
        if accelerator.is_main_process:
            Path(output_dir, NOTE).write_text(json.dumps({"url": checkpointer.url, "step": step}))
        accelerator.wait_for_everyone()  # all ranks find the note from here on

    def load(models: list[Any], input_dir: str) -> None:
        note = Path(input_dir, NOTE)
        if not note.exists():
            return
        checkpointer.wait()
        checkpointer.load(json.loads(note.read_text())["step"], into={"models": list(models)})
        models.clear()

    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    return checkpointer


def state(accelerator: Accelerator) -> dict[str, Any]:
    """Everything that was prepared by or registered with ``accelerator``, as a state that can be saved and loaded.

    Data loaders are in it if they know where they are (``DataLoaderConfiguration(use_stateful_dataloader=True)``, with
    ``use_seedable_sampler=True`` if they shuffle): each rank's own. Others begin anew after a load: pass over what was seen with ``accelerator.skip_first_batches``.
    """
    loaders = accelerator._dataloaders
    stateful = [_Position(loader) for loader in loaders if getattr(loader, "use_stateful_dataloader", False)]
    if len(stateful) < len(loaders) and id(accelerator) not in _told:
        _told.add(id(accelerator))
        logger.warning(
            "the places of %d data loaders are not saved: they begin anew after a load (DataLoaderConfiguration(use_stateful_dataloader=True) "
            "keeps them, accelerator.skip_first_batches passes over what was seen)",
            len(loaders) - len(stateful),
        )
    tree: dict[str, Any] = {
        "models": list(accelerator._models),
        "optimizers": [optimizer.optimizer for optimizer in accelerator._optimizers],
        "schedulers": [schedule.scheduler for schedule in accelerator._schedulers],
        "custom": list(accelerator._custom_objects),
        "dataloaders": stateful,
        "rng": Rng(paddle=False),
    }
    if accelerator.scaler is not None:
        tree["scaler"] = accelerator.scaler
    return {key: part for key, part in tree.items() if part != []}


#: The accelerators that were told that data loaders are left out.
_told: set[int] = set()


class _Position:
    """Where a data loader is, which each rank knows of its own."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def state_dict(self) -> PerRank:
        state = {"loader": _plain(self._loader.state_dict()), "iteration": self._loader.iteration}
        sampler = self._loader.get_sampler()
        if isinstance(sampler, SeedableRandomSampler):
            state["sampler"] = [sampler.epoch, sampler.initial_seed]
        return PerRank(state)

    def load_state_dict(self, state: Any) -> None:
        if not state:
            return
        self._loader.load_state_dict(_with_tensors(state["loader"]))
        self._loader.iteration = state["iteration"]
        sampler = self._loader.get_sampler()
        if isinstance(sampler, SeedableRandomSampler) and "sampler" in state:
            sampler.epoch, sampler.initial_seed = state["sampler"]
            if sampler.generator is not None:
                sampler.generator.manual_seed(sampler.initial_seed)


def _plain(value: Any) -> Any:
    """The state of a data loader with bytes in the place of tensors, such as those of its generators."""
    if isinstance(value, torch.Tensor):
        return {_TENSOR: str(value.dtype).removeprefix("torch."), "shape": list(value.shape), "bytes": value.cpu().numpy().tobytes()}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _with_tensors(value: Any) -> Any:
    if isinstance(value, dict) and _TENSOR in value:
        dtype = getattr(torch, value[_TENSOR])
        return torch.frombuffer(bytearray(value["bytes"]), dtype=dtype).reshape(value["shape"]) if value["bytes"] else torch.empty(0)
    if isinstance(value, dict):
        return {key: _with_tensors(item) for key, item in value.items()}
    return [_with_tensors(item) for item in value] if isinstance(value, list) else value


def _step(folder: str, accelerator: Accelerator) -> int:
    number = re.search(r"(\d+)/*$", folder)
    return int(number[1]) if number else int(accelerator.save_iteration)
