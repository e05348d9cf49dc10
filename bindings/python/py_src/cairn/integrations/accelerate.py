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
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.utils import DistributedType

from .._checkpointer import Checkpointer
from .._place import Place
from .._retention import Keep
from .._rng import Rng
from ..errors import StateError

#: The file in Accelerate's folder that names the run and the step.
NOTE = "cairn.json"


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
    """Everything that was prepared by or registered with ``accelerator``, as a state that can be saved and loaded."""
    tree: dict[str, Any] = {
        "models": list(accelerator._models),
        "optimizers": [optimizer.optimizer for optimizer in accelerator._optimizers],
        "schedulers": [schedule.scheduler for schedule in accelerator._schedulers],
        "custom": list(accelerator._custom_objects),
        "rng": Rng(),
    }
    if accelerator.scaler is not None:
        tree["scaler"] = accelerator.scaler
    return {key: part for key, part in tree.items() if part != []}


def _step(folder: str, accelerator: Accelerator) -> int:
    number = re.search(r"(\d+)/*$", folder)
    return int(number[1]) if number else int(accelerator.save_iteration)
