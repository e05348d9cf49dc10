"""Lightning's checkpoints as Cairn runs: ``Trainer(plugins=[CairnCheckpointIO()])``.

A checkpoint is a folder where Lightning would have put a file. Tensors are kept by name, everything else as plain data, so
nothing is pickled; what is neither is refused with its path. Strategies that shard (FSDP, ModelParallel, DeepSpeed) bypass
every ``CheckpointIO``: use ``cairn.torch.dcp`` or ``cairn.Checkpointer`` there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Any

import torch
from lightning.fabric.plugins.io.checkpoint_io import CheckpointIO

from .._checkpoint import Checkpoint
from .._checkpointer import Checkpointer
from .._retention import Keep
from .._world import World
from ..errors import StateError
from ..torch._dtypes import torch_dtype

_Path = str | os.PathLike[str]
_Key = str | int
#: The plain value that holds a checkpoint without its tensors, and the places they were taken from.
_SKELETON, _PLACES = "lightning", "lightning-tensors"


class CairnCheckpointIO(CheckpointIO):
    """Saves and loads for a ``Trainer``.

    Args:
        blocking: whether a save returns only when it is safe on disk. Otherwise it returns when the state is captured; the next
            save, and the end of the training, wait for it and raise what went wrong.
    """

    def __init__(self, *, blocking: bool = True) -> None:
        self._blocking = blocking
        self._checkpointer: Checkpointer | None = None

    def save_checkpoint(self, checkpoint: dict[str, Any], path: _Path, storage_options: Any | None = None) -> None:
        """Saves Lightning's checkpoint; one that is there already is replaced when this one is committed.

        Raises:
            StateError: if something in it is neither a tensor nor plain data; the message gives its path.
        """
        if storage_options is not None:
            raise StateError("`storage_options` has no meaning here", hint="leave it out")
        self.wait()
        tensors: dict[str, torch.Tensor] = {}
        places: list[tuple[list[_Key], str]] = []
        skeleton = _take_out(checkpoint, [], tensors, places)
        # Lightning saves on one rank only, and has gathered everything there.
        checkpointer = Checkpointer(path, keep=Keep(last=1), world=World())
        steps = checkpointer.steps()
        state = tensors | {_SKELETON: skeleton, _PLACES: places}
        checkpointer.save(steps[-1] + 1 if steps else 0, state)
        self._checkpointer = checkpointer
        if self._blocking:
            self.wait()

    def load_checkpoint(
        self, path: _Path, map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        """The checkpoint as Lightning saved it. It is plain data in any case, so ``weights_only`` changes nothing.

        Raises:
            FileNotFoundError: if there is none.
        """
        self.wait()
        if not os.path.isdir(path):
            raise FileNotFoundError(f"Checkpoint not found: {path}")
        opened = Checkpointer(path, world=World()).open()
        tensors = {name: _empty(opened, name) for name in opened}
        opened.load(dict(tensors), strict="partial")
        checkpoint: dict[str, Any] = opened.plain[_SKELETON]
        for keys, name in opened.plain[_PLACES]:
            _put_back(checkpoint, keys, _mapped(tensors[name], map_location))
        return checkpoint

    def remove_checkpoint(self, path: _Path) -> None:
        """Deletes a checkpoint."""
        self.wait()
        if os.path.isdir(path):
            shutil.rmtree(path)

    def teardown(self) -> None:
        """Waits for the last save."""
        self.wait()

    def wait(self) -> None:
        """Waits until the last save is safe, and raises what went wrong with it."""
        if self._checkpointer is not None:
            checkpointer, self._checkpointer = self._checkpointer, None
            checkpointer.close()


def _take_out(value: Any, keys: list[_Key], tensors: dict[str, torch.Tensor], places: list[tuple[list[_Key], str]]) -> Any:
    """``value`` with ``None`` in the place of each tensor, which goes to ``tensors``."""
    if isinstance(value, torch.Tensor):
        name = ".".join(map(str, keys))
        while name in tensors or name in (_SKELETON, _PLACES):
            name += "'"
        tensors[name] = value
        places.append((list(keys), name))
        return None
    if isinstance(value, Mapping):
        return {key: _take_out(child, [*keys, key], tensors, places) for key, child in value.items()}
    if isinstance(value, list):
        return [_take_out(child, [*keys, index], tensors, places) for index, child in enumerate(value)]
    return value


def _put_back(tree: Any, keys: list[_Key], tensor: torch.Tensor) -> None:
    for key in keys[:-1]:
        tree = tree[key]
    tree[keys[-1]] = tensor


def _empty(opened: Checkpoint, name: str) -> torch.Tensor:
    dtype, shape = opened._source.find(name) or ("u8", [0])
    return torch.empty(shape, dtype=torch_dtype(dtype, name))


def _mapped(tensor: torch.Tensor, map_location: Any) -> torch.Tensor:
    """The tensor on the device that is asked for; functions and dicts ask for the host's, where it is."""
    return tensor.to(map_location) if isinstance(map_location, (str, torch.device)) else tensor
