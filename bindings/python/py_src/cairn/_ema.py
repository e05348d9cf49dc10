"""Running averages of weights, kept by the checkpoint writer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

from . import _cairn
from ._part import Part
from .errors import StateError

#: The element types that are averaged.
_FLOATS = frozenset({"f32", "bf16", "f16", "f64"})


@dataclass(frozen=True)
class Ema:
    """An exponential average of weights, brought up to date in the background from captured copies.

    >>> checkpointer = cairn.Checkpointer("runs/7b", ema=cairn.Ema(decay=0.9999))
    >>> checkpointer.average(step, state)      # after every optimizer step
    >>> checkpointer.save(step, state)         # saves the averages, too

    Each rank averages what it would write, on processors that are idle; nothing runs on the training stream.
    """

    decay: float = 0.9999
    #: Only steps that are multiples of it count.
    every: int = 1
    #: Begin with a copy of the weights, or with zeros.
    start: Literal["copy", "zero"] = "copy"
    #: Whether an average that began with zeros is corrected where it is read.
    bias_correction: bool = False
    #: Whether what rounding to fp32 leaves out is kept, so that the average is that of fp64; it doubles the memory.
    exact: bool = True
    #: Names, with ``*``, of what is averaged; without any, the parameters that optimizers in the state train.
    include: str | Sequence[str] | None = None
    #: Where the weights are taken from: a name with one ``*`` for what ``*`` stands for in :attr:`include`, such as
    #: ``"optim.state.*.master"`` for the fp32 master weights of ``"model.*"``.
    source: str | None = None
    #: Steps for which it is true are left out, such as those with a loss that is no number.
    skip_if: Callable[[], bool] | None = None
    #: The name of the average; by default its decay.
    label: str | None = None
    #: Whether an average that the loaded checkpoint does not have, or has by another definition, begins anew instead of being refused.
    restart: bool = False

    @property
    def name(self) -> str:
        """The label, or the decay in its place."""
        return f"{self.decay:g}" if self.label is None else self.label

    def definition(self, names: Iterable[str]) -> str:
        """The definition for the engine, of the tensors with these names."""
        told = {"label": self.name, "decay": self.decay, "every": self.every, "start": self.start}
        return json.dumps(told | {"bias_correction": self.bias_correction, "exact": self.exact, "include": sorted(names)})

    def tensors(self, parts: Mapping[str, Part], trainable: Iterable[str]) -> dict[str, str]:
        """Name of an average → name of the tensor it is the average of.

        Raises:
            StateError: if there is none.
        """
        patterns = [self.include] if isinstance(self.include, str) else self.include
        floats = [name for name, part in parts.items() if part.spec.dtype in _FLOATS]
        if patterns is None:
            trained = set(trainable)
            found = {name: (name, "*") for name in floats if name in trained}
        else:
            found = {name: (name, pattern) for pattern in reversed(patterns) for name in floats if fnmatchcase(name, pattern)}
        chosen = {name: self._source(*match, parts) for name, match in found.items()}
        if not chosen:
            raise StateError(
                f"the average `{self.name}` is of nothing in the state",
                hint="name what it is of: `include=\"model.*\"`, or save the optimizer with the model",
            )
        return chosen

    def _source(self, name: str, pattern: str, parts: Mapping[str, Part]) -> str:
        if self.source is None:
            return name
        before, star, after = pattern.partition("*")
        middle = name[len(before) : len(name) - len(after)] if star else name
        source = self.source.replace("*", middle, 1)
        return source if source in parts else name


class Averages:
    """The averages of one run, from state to state."""

    def __init__(self, emas: Sequence[Ema]) -> None:
        names = [ema.name for ema in emas]
        if len(set(names)) < len(names):
            raise StateError(f"two averages have the same label: {', '.join(names)}", hint="give each a `label`")
        self.emas = emas
        self.native: _cairn.Averaging | None = None
        self._outline: _cairn.Outline | None = None
        #: The checkpoint that was loaded, until the averages go on from it.
        self.resume_from: Any = None

    def of(self, outline: _cairn.Outline, parts: Mapping[str, Part], trainable: Iterable[str], rank: int, size: int) -> _cairn.Averaging:
        """The averages for states with this outline; those of a checkpoint that was loaded before go on.

        Raises:
            StateError: if one of the tensors is not what it was.
        """
        if self.native is None:
            self.native = self._made(outline, parts, trainable, rank, size)
        elif self._outline is not outline:
            self.native.move_to(outline)
        self._outline = outline
        return self.native

    def _made(
        self, outline: _cairn.Outline, parts: Mapping[str, Part], trainable: Iterable[str], rank: int, size: int
    ) -> _cairn.Averaging:
        of: dict[str, str] = {}
        definitions = []
        for ema in self.emas:
            mine = ema.tensors(parts, trainable)
            of |= mine
            definitions.append(ema.definition(mine))
        native = _cairn.Averaging(rank, size, outline, definitions, of)
        if self.resume_from is not None:
            native.resume(self.resume_from, any(ema.restart for ema in self.emas))
            self.resume_from = None
        return native

    def is_skipped(self) -> bool:
        """Whether every average wants to pass this step over."""
        return all(ema.skip_if is not None and ema.skip_if() for ema in self.emas)
