"""Keeps the state of large-model training: sharded, saved in the background, verified, loaded on any layout.

>>> import cairn
>>> checkpointer = cairn.Checkpointer("runs/7b", keep=cairn.Keep(last=3, every=1000))
>>> checkpointer.save(step, {"model": model, "optim": optimizer})
>>> checkpointer.load(into={"model": model, "optim": optimizer})

Frameworks are met when their objects are, and most of this package when it is asked for: importing it imports neither.
"""

from ._cairn import VERSION as __version__
from .errors import (
    Cancelled,
    Damaged,
    DeviceError,
    Error,
    FormatError,
    KeyMismatch,
    NotUploaded,
    RankFailed,
    RanksDisagree,
    RecipeError,
    Skipped,
    StateError,
    StepExists,
    StepIncomplete,
    StepNotFound,
    StoreError,
    Torn,
    Untrusted,
    VersionError,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._checkpoint import Checkpoint, Explained, Loaded
    from ._checkpointer import Checkpointer
    from ._ema import Ema
    from ._history import SavedStep
    from ._opening import load, open
    from ._part import PerRank
    from ._recipe import Recipe
    from ._retention import Keep
    from ._rng import Rng
    from ._saving import SaveReport, Saving
    from ._tiers import Tiered
    from ._world import World

__all__ = [
    "Cancelled",
    "Checkpoint",
    "Checkpointer",
    "Damaged",
    "DeviceError",
    "Ema",
    "Error",
    "Explained",
    "FormatError",
    "Keep",
    "KeyMismatch",
    "Loaded",
    "NotUploaded",
    "PerRank",
    "RankFailed",
    "RanksDisagree",
    "Recipe",
    "RecipeError",
    "Rng",
    "SaveReport",
    "SavedStep",
    "Saving",
    "Skipped",
    "StateError",
    "StepExists",
    "StepIncomplete",
    "StepNotFound",
    "StoreError",
    "Tiered",
    "Torn",
    "Untrusted",
    "VersionError",
    "World",
    "__version__",
    "load",
    "open",
]

#: The modules whose names are looked up when they are first used.
_MODULES = {
    "_checkpoint": ("Checkpoint", "Explained", "Loaded"),
    "_checkpointer": ("Checkpointer",),
    "_ema": ("Ema",),
    "_history": ("SavedStep",),
    "_opening": ("load", "open"),
    "_part": ("PerRank",),
    "_recipe": ("Recipe",),
    "_retention": ("Keep",),
    "_rng": ("Rng",),
    "_saving": ("SaveReport", "Saving"),
    "_tiers": ("Tiered",),
    "_world": ("World",),
}


def __getattr__(name: str) -> object:
    from importlib import import_module

    for module, names in _MODULES.items():
        if name in names:
            value: object = getattr(import_module(f".{module}", __name__), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
