"""torchtitan's checkpoint manager with Cairn behind it, and all of torchtitan's options.

>>> config.checkpoint = CairnCheckpointManager.Config(enable=True, interval=500, keep_latest_k=3, async_mode="async")

``checkpoint.folder`` is one Cairn run, with a step for each checkpoint. A final checkpoint in Hugging Face's format
(``last_save_in_hf``) goes beside it, to ``step-NNNNNNNN-hf``.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, AsyncSaveResponse
from torchtitan.components.checkpointer import MODEL, AsyncMode, CheckpointManager
from torchtitan.tools import filesystem
from torchtitan.tools.utils import GarbageCollection

from .._checkpointer import Checkpointer
from .._retention import Keep
from ..errors import Damaged, StepNotFound
from ..torch.dcp import Reader, Writer


class CairnCheckpointManager(CheckpointManager):  # type: ignore[misc, unused-ignore]
    """Saves and loads for torchtitan's trainer."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):  # type: ignore[misc, unused-ignore]
        """torchtitan's options, unchanged."""

    @torch.no_grad()
    def dcp_save(
        self,
        state_dict: dict[str, Any],
        checkpoint_id: str,
        async_mode: AsyncMode,
        enable_garbage_collection: bool = False,
        to_hf: bool = False,
    ) -> Future[Any] | AsyncSaveResponse | None:
        """Saves a step of the run, in the way ``async_mode`` says."""
        if to_hf:
            super().dcp_save(state_dict, f"{checkpoint_id}-hf", AsyncMode.DISABLED, enable_garbage_collection, to_hf)
            return None
        keep = Keep(last=self.keep_latest_k) if self.keep_latest_k else None
        writer = Writer(self.folder, step=_step(checkpoint_id), keep=keep)
        saving = None
        if async_mode == AsyncMode.DISABLED:
            dcp.save(state_dict, storage_writer=writer)
        elif async_mode == AsyncMode.ASYNC:
            saving = dcp.async_save(state_dict, storage_writer=writer, process_group=self.pg)
        else:
            saving = dcp.async_save(
                state_dict,
                storage_writer=writer,
                process_group=self.pg,
                async_checkpointer_type=AsyncCheckpointerType.PROCESS,
                async_stager=self.stager,
            )
        if enable_garbage_collection:
            GarbageCollection.collect("GC collection invoked by checkpointer.")
        return saving

    def dcp_load(self, state_dict: dict[str, Any], checkpoint_id: str, from_hf: bool, from_quantized: bool) -> None:
        """Loads a step of the run, or whatever ``initial_load_path`` names: another run, a step of it, a folder of DCP."""
        if from_hf or filesystem.isfile(filesystem.join(checkpoint_id, ".metadata")):
            super().dcp_load(state_dict, checkpoint_id, from_hf, from_quantized)
            return
        if checkpoint_id.startswith(self.folder):
            reader = Reader(self.folder, step=_step(checkpoint_id))
        else:
            reader = Reader(checkpoint_id)
        dcp.load(state_dict, storage_reader=reader)
        if MODEL in self.states:
            self.states[MODEL].load_state_dict(state_dict)

    def _find_load_step(self, folder: str = "") -> int:
        """The newest step that is whole, or -1."""
        try:
            # All ranks ask, and get the same answer.
            step = Checkpointer(folder or self.folder).open().step
        except (StepNotFound, Damaged):
            return -1
        return -1 if step is None else step

    def _create_checkpoint_id(self, step: int, folder: str = "") -> str:
        """The folder of a step."""
        return str(filesystem.join(folder or self.folder, f"step-{step:08}"))

    def _purge_stale_checkpoints(self) -> None:
        """Nothing to do: each save deletes what ``keep_latest_k`` does not keep, when it is committed."""


def _step(checkpoint_id: str) -> int:
    return int(checkpoint_id.rpartition("-")[2])
