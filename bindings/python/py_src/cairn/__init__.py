"""Keeps the state of large-model training: sharded, saved in the background, verified, loaded on any layout.

>>> import cairn
>>> checkpointer = cairn.Checkpointer("runs/7b", keep=cairn.Keep(last=3, every=1000))
>>> checkpointer.save(step, {"model": model, "optim": optimizer})
>>> checkpointer.load(into={"model": model, "optim": optimizer})

Frameworks are met when their objects are: importing this package imports none of them.
"""

from ._cairn import VERSION as __version__
from ._checkpoint import Checkpoint, Explained, Loaded
from ._checkpointer import Checkpointer, Keep
from ._opening import load, open
from ._part import PerRank
from ._rng import Rng
from ._saving import SaveReport, Saving
from ._world import World
from .errors import (
    Damaged,
    Error,
    FormatError,
    KeyMismatch,
    RankFailed,
    RanksDisagree,
    StateError,
    StepExists,
    StepIncomplete,
    StepNotFound,
    StoreError,
    VersionError,
)

__all__ = [
    "Checkpoint",
    "Checkpointer",
    "Damaged",
    "Error",
    "Explained",
    "FormatError",
    "Keep",
    "KeyMismatch",
    "Loaded",
    "PerRank",
    "RankFailed",
    "RanksDisagree",
    "Rng",
    "SaveReport",
    "Saving",
    "StateError",
    "StepExists",
    "StepIncomplete",
    "StepNotFound",
    "StoreError",
    "VersionError",
    "World",
    "__version__",
    "load",
    "open",
]
