"""A checkpoint or model, opened: a mapping from names to tensors that are read when they are indexed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from . import _cairn
from ._leave_out import LEFT_OUT, explained
from ._logger import logger
from ._part import Context
from ._progress import Progress
from ._replicas import kept_apart, name_on
from ._shared import OWN_VALUES, stored_values
from ._slots import Slot, finish, overlap, slots_of
from ._strict import LOAD_A_PART, Strict, in_scope, mismatch, refuse_derived, refused_by, scope_of, without_empty
from ._together import Peers, peers, worth_it
from ._tree import Flat, fill, flatten
from ._values import decode
from ._world import World
from .errors import KeyMismatch, RecipeError

if TYPE_CHECKING:
    from ._lazy import LazyTensor
    from ._recipe import RecipeLike


METRICS = "$metrics"
_REPORTED = (
    "wanted_bytes",
    "read_bytes",
    "received_bytes",
    "planning_seconds",
    "reading_seconds",
    "missing",
    "unexpected",
    "mismatched",
    "mended",
)


#: Told what was loaded, and the names of the tensors.
OnLoad = Callable[[_cairn.Source, Set[str]], None]


@dataclass(frozen=True)
class Explained:
    """What a load would read, before it reads it."""

    #: The bytes of stored tensors that are needed, each counted once.
    wanted_bytes: int
    #: The bytes that will be read: wanted ones, and the rest of the checksummed blocks they lie in.
    read_bytes: int
    #: The bytes of all targets.
    target_bytes: int
    files: int
    reads: int
    over_read: float
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]
    #: The plan in words.
    text: str = ""

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Loaded:
    """What a load did."""

    #: The step that was loaded; ``None`` if it was a model in another format.
    step: int | None
    #: The tree that was loaded into, with plain values put in.
    state: Any
    wanted_bytes: int
    read_bytes: int
    #: The bytes that other ranks of this machine read and handed over.
    received_bytes: int
    planning_seconds: float
    reading_seconds: float
    missing: list[str]
    unexpected: list[str]
    mismatched: list[str]
    #: Newer steps that were passed over, and why.
    skipped: dict[int, str] = field(default_factory=dict)
    #: Files of the fast tier that were damaged and have been replaced by good ones.
    mended: list[str] = field(default_factory=list)


class Checkpoint(Mapping[str, "LazyTensor"]):
    """A committed step, or a model in another format. Opening it reads no tensor data.

    >>> checkpoint = cairn.open("runs/7b")
    >>> checkpoint["model.layers.0.q.weight"][:16, ::2]
    """

    def __init__(
        self, source: _cairn.Source, world: World | None = None, made_by: str = "", on_load: OnLoad | None = None
    ) -> None:
        self._source = source
        self._world = world
        self._made_by = made_by
        self._on_load = on_load

    @property
    def step(self) -> int | None:
        """The step; ``None`` for a model in another format."""
        return self._source.step

    @property
    def format(self) -> str:
        """What it is: ``cairn``, ``hf``, ``dcp``, ``torch`` …"""
        return self._source.format

    @property
    def created(self) -> str | None:
        """When it was saved: RFC 3339, UTC."""
        return self._source.created

    @property
    def tags(self) -> list[str]:
        """The words it was tagged with."""
        return self._source.tags

    @property
    def world_size(self) -> int:
        """The number of ranks that saved it."""
        return self._source.world_size

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The plain values, by path: those all ranks share and, where ranks differ, those that one of them had."""
        stored: dict[str, Any] = {}
        for values in reversed(stored_values(self._source)):
            stored.update(values)
        return {name: decode(value) for name, value in stored.items() if name not in (METRICS, LEFT_OUT)}

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics given to ``save``."""
        stored: dict[str, float] = decode(json.loads(self._source.values()).get(METRICS, {}))
        return stored

    def of_rank(self, rank: int) -> dict[str, Any]:
        """The values that ``rank`` saved for itself; none if there was no such rank."""
        stored = self._source.rank_values(rank)
        values = {} if stored is None else json.loads(stored)
        return {name: decode(value) for name, value in values.items() if name != OWN_VALUES}

    @cached_property
    def _names(self) -> dict[str, None]:
        return dict.fromkeys(self._source.names())

    @cached_property
    def _apart(self) -> dict[str, set[int]]:
        """Tensors that each rank has stored for itself."""
        return kept_apart(self._names)

    @property
    def aliases(self) -> dict[str, str]:
        """Names that are only another name of a tensor."""
        return self._source.aliases()

    def placement(self, name: str) -> str | None:
        """How a tensor was spread over the ranks that saved it, such as ``bf16[4096@tp, 1024]``."""
        return self._source.placement(name)

    @property
    def assets(self) -> dict[str, bytes]:
        """Small files that travel with the tensors, such as ``config.json``."""
        return self._source.assets()

    def __getitem__(self, name: str) -> LazyTensor:
        from ._lazy import LazyTensor

        found = self._source.find(name)
        if found is None:
            raise self._no_such(name)
        dtype, shape = found
        return LazyTensor(self, name, tuple(shape), dtype)

    def _no_such(self, name: str) -> KeyError:
        """The error of a mapping, with the names that come closest."""
        from difflib import get_close_matches

        close = get_close_matches(name, self._names, 3) if isinstance(name, str) and len(self._names) < 100_000 else []
        meant = f"; did you mean {' or '.join(f'`{found}`' for found in close)}?" if close else ""
        return KeyError(f"there is no tensor `{name}`{meant}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __repr__(self) -> str:
        what = "model" if self.step is None else f"step {self.step}"
        return f"<Checkpoint {what}: {len(self)} tensors>"

    def read_boxes(
        self, name: str, boxes: Sequence[tuple[tuple[int, ...], tuple[int, ...]]], out: Sequence[Any]
    ) -> None:
        """Reads each box (offset, extent) of a tensor into the contiguous ``uint8`` array beside it."""
        found = self._source.find(name)
        if found is None:
            raise KeyError(name)
        dtype, shape = found
        slots = []
        for (offset, extent), memory in zip(boxes, out, strict=True):
            if memory.nbytes:
                spec = _cairn.Spec.listed(dtype, shape, {0: [(list(offset), list(extent), None)]})
                slots.append((name, spec, 0, memory, None))
        if slots:
            self._source.load(slots, ["missing", "mismatched"])

    @property
    def derived(self) -> dict[str, str]:
        """The tensors that are not stored, and which tensor each is the cast of."""
        return self._source.derived()

    def with_recipe(self, recipe: RecipeLike) -> Checkpoint:
        """The same checkpoint, with the tensors that ``recipe`` makes of its own in their place; reads no tensor data."""
        from ._recipe import Recipe

        made = Recipe.of(recipe)
        return Checkpoint(made.apply(self._source), self._world, made.identity, self._on_load)

    def load(
        self,
        into: Any,
        *,
        strict: Strict = True,
        recipe: RecipeLike | None = None,
        verify: bool = True,
        together: bool = True,
        rebuild: bool = True,
    ) -> Loaded:
        """Loads into the tensors, stateful objects and containers of ``into``, in place, whatever layout they have.

        ``strict=True`` wants every name under the top-level keys of ``into`` on both sides; ``"partial"`` lets the checkpoint
        have more; ``False`` loads what fits and reports the rest. All differences are found before any data is read.

        Ranks of one machine that load the same at the same time read each stored byte once between them. A rank that loads much
        waits a moment for the others; ``together=False`` loads at once, alone.

        Tensors that are not stored, because they are casts of others, are worked out; ``rebuild=False`` refuses them.

        With ``recipe``, tensors are made of the stored ones as it says, while they are read; what is then wanted must come out, and
        what the recipe says that nothing feeds keeps its value.

        Raises:
            KeyMismatch: with every missing, unexpected and mismatched name.
            RecipeError: if the recipe is wrong, or does not fit.
            Damaged: if bytes are not what was written. ``into`` then holds a mixture and must not be used.
        """
        if recipe is not None:
            made = self._made_for(recipe, into, strict)
            return made.load(into, strict=strict, verify=verify, together=together, rebuild=rebuild)
        refused = refused_by(strict)
        context, flat = self._flatten(into, strict)
        values, rank_values = self.plain, self._rank_values(flat, context.world)
        if not rebuild:
            refuse_derived(flat, self.derived)
        with explained(self._source):
            absent = self._compare_values(into, flat, strict)
            slots = slots_of(flat, context.world, self._names, self._apart)
            peers = self._peers(slots, context.world) if together else None
            report = self._read(slots, refused, scope_of(into), verify, peers)
        finish(flat, {*report["missing"], *report["mismatched"], *report["kept"]})
        state = fill(into, "", flat, values, rank_values)
        if self._on_load is not None:
            self._on_load(self._source, flat.parts.keys() - flat.untouched)
        kept = {key: report[key] for key in _REPORTED}
        kept["missing"] = sorted([*report["missing"], *absent])
        return Loaded(self.step, state, **kept)

    def _peers(self, slots: list[Slot], world: World) -> Peers | None:
        if world.size == 1 or not worth_it(sum(memory.nbytes for _, _, _, memory, _ in slots)):
            return None
        place = f"{self.format} {self.step} {self.created} {self._made_by}"
        return peers(world, place, ((name, spec) for name, spec, _, _, _ in slots))

    def _read(
        self, slots: list[Slot], refused: list[str], scope: list[str] | None, verify: bool, peers: Peers | None
    ) -> dict[str, Any]:
        counter, total = _cairn.Counter(), sum(slot[3].nbytes for slot in slots)
        what = "model" if self.step is None else f"step {self.step}"
        try:
            with Progress(f"loading {what}", total, lambda: min(counter.value, total)):
                return self._source.load(slots, refused, scope=scope, verify=verify, peers=peers, progress=counter)
        except KeyMismatch as error:
            if not (error.missing or error.mismatched):
                error.hint = LOAD_A_PART
            raise
        except TypeError as error:
            raise overlap(slots) or error from None

    def _made_for(self, recipe: RecipeLike, into: Any, strict: Strict) -> Checkpoint:
        """This checkpoint as a recipe makes it for ``into``."""
        from ._recipe import Recipe

        written = Recipe.of(recipe)
        try:
            made = self.with_recipe(written)
        except RecipeError:
            if strict is False:
                raise
            made = self  # It may need to know what is wanted.
        if strict is False:
            return made
        _, flat = made._flatten(into, strict)
        return Checkpoint(written.apply(self._source, flat), self._world, written.identity, self._on_load)

    def explain(self, into: Any, *, strict: Strict = False, recipe: RecipeLike | None = None) -> Explained:
        """What :meth:`load` would read, and what would not fit; reads no tensor data."""
        if recipe is not None:
            return self._made_for(recipe, into, strict).explain(into, strict=strict)
        refused = refused_by(strict)
        context, flat = self._flatten(into, strict)
        self._compare_values(into, flat, strict)
        rank, apart = context.world.rank, self._apart
        wanted = [(name_on(rank, name) if name in apart else name, part.spec, rank) for name, part in flat.parts.items()]
        cost, text = self._source.explain(wanted, refused, scope=scope_of(into))
        return Explained(**cost, text=text)

    def _flatten(self, into: Any, strict: Strict) -> tuple[Context, Flat]:
        world = self._world or World.current()
        context = Context(world, into, self._source, {}, strict)
        return context, flatten(into, context)

    def _rank_values(self, flat: Flat, world: World) -> dict[str, Any]:
        if not flat.rank_values:
            return {}
        own = self.of_rank(world.rank)
        if not own and self.step is not None:
            logger.warning(
                "rank %d did not exist when step %s was saved: it keeps its own %s",
                world.rank,
                self.step,
                ", ".join(flat.rank_values),
            )
        return own

    def _compare_values(self, into: Any, flat: Flat, strict: Strict) -> list[str]:
        """Compares the names of plain values and returns the missing ones; tensors' names the engine compares itself."""
        missing = sorted(name for name in flat.values if name not in self.plain)
        missing = without_empty(missing, flat.values, [*self._names, *self.plain])
        if strict is False or self.step is None:
            return missing
        unexpected = []
        if strict is True:
            known = flat.parts.keys() | flat.values.keys()
            unexpected = sorted(name for name in self.plain if name not in known and in_scope(name, scope_of(into)))
            unexpected = without_empty(unexpected, self.plain, known)
        if missing or unexpected:
            missing += [name for name in flat.parts if name not in self._names]
            raise mismatch(missing, unexpected)
        return missing

    def export_dcp(
        self,
        url: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        max_file_size: int = 5_000_000_000,
        memory_bytes: int = 256 << 20,
    ) -> list[str]:
        """Writes tensors and plain values into a folder that stock ``torch.distributed.checkpoint`` loads; returns its data files."""
        wanted = list(self) if names is None else list(names)
        return self._source.export_dcp(os.fspath(url), wanted, max_file_size, memory_bytes)

    def export_hf(
        self,
        url: str | os.PathLike[str],
        names: Sequence[str] | None = None,
        *,
        max_shard_size: int = 5_000_000_000,
        memory_bytes: int = 256 << 20,
    ) -> list[str]:
        """Writes tensors into a Hugging Face folder, in bounded memory; returns its data files."""
        wanted = [name for name in self if name not in self.aliases] if names is None else list(names)
        return self._source.export_hf(os.fspath(url), wanted, max_shard_size, memory_bytes)
