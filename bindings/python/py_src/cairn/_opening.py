"""Opens anything that holds tensors: a run, a step of it, a Hugging Face folder, a DCP folder, a `.pt` file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from . import _cairn
from ._checkpoint import Checkpoint, Loaded
from ._checkpointer import Checkpointer
from ._keys import key_text
from ._place import Place, locate
from ._strict import Strict
from ._world import World

if TYPE_CHECKING:
    from ._recipe import RecipeLike


def open(
    url: Place,
    step: int | None = None,
    *,
    world: World | None = None,
    require_key: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Checkpoint:
    """Opens the newest good step of a run, the step that is named, or a model in another format.

    Reads names, shapes and where the bytes lie; tensor data is read when a tensor is indexed. Pickles are understood, never
    executed. With ``require_key``, a public key or its file, nothing is opened but steps that it signed.
    ``url`` and ``storage_options`` are those of :class:`cairn.Checkpointer`.
    """
    text, settings = locate(url, storage_options)
    key = None if require_key is None else key_text(require_key)
    source = None if step is not None else _cairn.open_place(text, key, settings)
    if source is None:
        # Whoever opens a run to look at it may be one rank alone.
        alone = World() if step is None and world is None else world
        run = Checkpointer(text, world=alone, require_key=key, storage_options=settings)
        opened = run.open("latest" if step is None else step)
        return Checkpoint(opened._source, world, on_load=opened._on_load)
    return Checkpoint(source, world)


def load(
    url: Place,
    into: Any,
    *,
    strict: Strict = True,
    recipe: RecipeLike | None = None,
    world: World | None = None,
    require_key: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Loaded:
    """Loads a run's newest step, a step, or a model in another format into ``into``, in place, on any layout.

    With ``recipe``, tensors are made of the stored ones as it says: see :class:`cairn.Recipe`. ``require_key`` and ``storage_options``
    are those of :func:`open`. A run's newest step is for all ranks together, as in :meth:`cairn.Checkpointer.load`; a rank that loads
    alone says so: ``world=cairn.World()``.
    """
    text, settings = locate(url, storage_options)
    key = None if require_key is None else key_text(require_key)
    source = _cairn.open_place(text, key, settings)
    options: dict[str, Any] = {"strict": strict, "recipe": recipe}
    if source is not None:
        return Checkpoint(source, world).load(into, **options)
    run = Checkpointer(text, world=world, require_key=key, storage_options=settings)
    return run._load_newest(into, options)
