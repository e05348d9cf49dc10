"""A callback that saves the state of a Hugging Face ``Trainer`` in the background, and resumes from it.

>>> callback = CairnCallback("runs/bert", every=500, keep=cairn.Keep(last=3))
>>> trainer = Trainer(model, TrainingArguments(…, save_strategy="no"), callbacks=[callback], …)
>>> callback.resume(trainer)        # trains: from the newest good checkpoint, or from the start if there is none

A checkpoint holds model, optimizer, schedule, gradient scaler, random-number generators, the trainer's own state, and the metrics of an
evaluation at its step, for ``Keep(best="min:eval_loss:1")``. A resumed training continues as if it had not been interrupted: the trainer
passes over the data that was seen, so a data loader's own state is not saved.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput

from .._checkpoint import Checkpoint
from .._checkpointer import Checkpointer
from .._retention import Keep
from .._part import PerRank
from .._place import Place
from .._resume import all_or_none
from .._rng import Rng
from ..errors import StepNotFound


class CairnCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Saves while a ``Trainer`` trains. ``save`` returns when the state is captured, so training never waits for a disk.

    Args:
        url: where the run lies.
        every: how many steps lie between two saves. Without it, saves whenever the trainer itself does (``save_strategy``).
        keep: which steps stay; without it, all of them.
    """

    def __init__(self, url: Place, *, every: int | None = None, keep: Keep | None = None) -> None:
        self._url = url
        self._every = every
        self._keep = keep
        self._checkpointer: Checkpointer | None = None
        self._trainer: Trainer | None = None
        self._resuming: Checkpoint | None = None
        self._rng: Checkpoint | None = None
        self._due: PerRank | None = None
        #: Of the last evaluation: the step, and what came of it.
        self._evaluated: tuple[int, dict[str, float]] = -1, {}

    @property
    def checkpointer(self) -> Checkpointer:
        """The run. It is opened when the trainer has set up its process group."""
        if self._checkpointer is None:
            self._checkpointer = Checkpointer(self._url, keep=self._keep)
        return self._checkpointer

    def resume(self, trainer: Trainer, step: int | Literal["latest"] = "latest", **arguments: Any) -> TrainOutput:
        """Trains on from a step, or from the start if there is none yet; other arguments go to ``trainer.train``.

        ``trainer`` must have this callback.

        Raises:
            StepNotFound: if there are steps, but none that is whole, or not the one that is asked for.
        """
        self._trainer = trainer
        try:
            self._resuming = self.checkpointer.open(step)
        except StepNotFound as error:
            # Rank 0 has looked for all of them, so all of them begin.
            if step != "latest" or error.skipped:
                raise
            return trainer.train(**arguments)
        with _progress_folder(self._resuming) as folder, _weights_left_alone(trainer):
            return trainer.train(resume_from_checkpoint=folder, **arguments)

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Loads, if training is resumed: the trainer has wrapped and placed everything by now."""
        if self._resuming is None:
            return
        opened, self._resuming = self._resuming, None
        url, world = self.checkpointer.url, self.checkpointer.world
        all_or_none(world, url, lambda: opened.load(_state(objects), strict="partial"), "resume")
        self._rng = opened

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Saves what the epoch before left to save, and puts the generators back before the data of this one is shuffled."""
        self._save_if_due(state, control, objects)
        if state.epoch == int(state.epoch):
            self._restore_rng()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Saves if that is due, and puts the generators back after the data of the steps before has been skipped."""
        self._save_if_due(state, control, objects)
        self._restore_rng()

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Every so many steps, makes a save due. The trainer logs the step before anything else changes; then it is saved."""
        if self._every is not None and state.global_step % self._every == 0:
            self._due = Rng(paddle=False).state_dict()

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Takes the generators anew, which the evaluation has moved on, and remembers its metrics."""
        metrics: dict[str, Any] = objects.get("metrics") or {}
        numbers = {name: float(value) for name, value in metrics.items() if isinstance(value, (int, float))}
        known = self._evaluated[1] if self._evaluated[0] == state.global_step else {}
        self._evaluated = state.global_step, known | numbers
        if self._due is not None:
            self._due = Rng(paddle=False).state_dict()
        if state.global_step >= state.max_steps or control.should_training_stop:
            # What comes next may be the weights of the best step.
            self._save_if_due(state, control, objects)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Saves if that is due, and no evaluation of the epoch comes first."""
        if not control.should_evaluate:
            self._save_if_due(state, control, objects)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Saves beside the trainer, if no interval was given."""
        if self._every is None:
            self._due = Rng(paddle=False).state_dict()
        self._save_if_due(state, control, objects)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        """Waits until the last save is safe, and raises what went wrong with it."""
        self._save_if_due(state, control, objects)
        self.checkpointer.wait()

    def _save_if_due(self, state: TrainerState, control: TrainerControl, objects: dict[str, Any]) -> None:
        if self._due is None:
            return
        rng, self._due = self._due, None
        tree = _state(objects) | {"rng": rng, "trainer": self._trainer_state(state, control)}
        step, metrics = self._evaluated
        self.checkpointer.save(state.global_step, tree, metrics=metrics if step == state.global_step else None, replace=True)

    def _restore_rng(self) -> None:
        if self._rng is not None:
            checkpoint, self._rng = self._rng, None
            checkpoint.load({"rng": Rng(paddle=False)})

    def _trainer_state(self, state: TrainerState, control: TrainerControl) -> dict[str, Any]:
        """The trainer's state, with other callbacks' as they are now if they are known."""
        fields = dataclasses.asdict(state)
        callbacks = [] if self._trainer is None else self._trainer.callback_handler.callbacks
        current: list[Any] = [item for item in [*callbacks, control] if isinstance(item, ExportableState)]
        fields["stateful_callbacks"] |= vars(TrainerState(stateful_callbacks=current))["stateful_callbacks"]
        return fields


def _state(objects: dict[str, Any]) -> dict[str, Any]:
    """What is trained, out of the wrappers that only know how to step."""
    optimizer, schedule = objects["optimizer"], objects["lr_scheduler"]
    state = {
        "model": objects["model"],
        "optimizer": getattr(optimizer, "optimizer", optimizer),
        "lr_scheduler": getattr(schedule, "scheduler", schedule),
    }
    scaler = getattr(optimizer, "scaler", None)
    return state if scaler is None else state | {"scaler": scaler}


@contextmanager
def _progress_folder(checkpoint: Checkpoint) -> Iterator[str]:
    """A folder from which the trainer learns how far it was, and nothing else."""
    with tempfile.TemporaryDirectory() as folder:
        progress = json.dumps(checkpoint.plain["trainer"])
        Path(folder, "trainer_state.json").write_text(progress, encoding="utf-8")
        yield folder


@contextmanager
def _weights_left_alone(trainer: Trainer) -> Iterator[None]:
    """Stops the trainer from looking for weights in that folder: the callback loads them."""
    name = "_load_from_checkpoint"
    setattr(trainer, name, lambda *_, **__: None)
    try:
        yield
    finally:
        delattr(trainer, name)
