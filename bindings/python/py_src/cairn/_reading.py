"""The steps of a run as a reader sees them."""

from __future__ import annotations

import operator
import os
from typing import TYPE_CHECKING, Any, Literal

from . import _cairn
from ._checkpoint import Checkpoint, Explained, Loaded
from ._keys import key_text
from ._logger import logger
from ._course import course_of
from ._history import SavedStep
from ._resume import use_newest
from ._strict import Strict
from ._world import World
from .errors import Damaged, StateError, StepNotFound

if TYPE_CHECKING:
    from ._recipe import RecipeLike

#: How long a rank that opens the newest step waits for the others.
_PATIENCE_SECONDS = 600.0


class Reading:
    """Opens, loads and checks what is committed."""

    _url: str
    _storage_options: dict[str, str]
    _world: World | None
    _group: Any
    _ranks_differ: bool
    _keeper: str | None
    _reader: _cairn.Run | None
    _require_key: str | None

    @property
    def url(self) -> str:
        """Where the run lies."""
        return self._url

    @property
    def world(self) -> World:
        """This process's rank and world."""
        if self._world is None:
            self._world = World.current(self._group)
        return self._world

    @property
    def _run(self) -> _cairn.Run:
        """The run as a reader sees it: one rank may look while the others do not."""
        if self._reader is None:
            self._reader = self._look(self._keeper)
        return self._reader

    def _look(self, keeper: str | None) -> _cairn.Run:
        return _cairn.Run(
            self._url, 0, 1, None, require_key=self._require_key, storage_options=self._storage_options, keeper=keeper
        )

    def load(
        self,
        step: int | Literal["latest"] = "latest",
        *,
        into: Any,
        strict: Strict = True,
        recipe: RecipeLike | None = None,
        verify: bool = True,
        rebuild: bool = True,
    ) -> Loaded:
        """Loads a step in place, on any layout; ``"latest"`` is the newest one whose bytes are all intact.

        ``"latest"`` is for all ranks together: they agree on the step, even if only one of them finds damage. A rank that wants to
        load alone names a step. Tensors that were not stored, because they are casts of others, are worked out; ``rebuild=False``
        refuses them. With ``recipe``, tensors are made of the stored ones as it says.

        Raises:
            StepNotFound: if there is no (usable) step.
            KeyMismatch: with every difference between checkpoint and ``into``, before any data is read.
        """
        if self._ranks_differ and strict is True:
            strict = "partial"
        options: dict[str, Any] = {
            "strict": strict,
            "recipe": recipe,
            "verify": verify,
            "together": not self._ranks_differ,
            "rebuild": rebuild,
        }
        if step != "latest":
            loaded = self.open(step).load(into, **options)
        else:
            self._before_latest()
            loaded = self._load_newest(into, options)
        self._go_on_from(loaded)
        return loaded

    def _load_newest(self, into: Any, options: dict[str, Any]) -> Loaded:
        """Loads the newest step that no rank finds damaged."""

        def load(number: int) -> Loaded:
            try:
                return self._opened(_checked(self._run, number)).load(into, **options)
            except Damaged as error:
                if not self._run.has_keeper:
                    raise
                logger.warning("step %d is read without the keeper: %s", number, error.message)
                return self._opened(_checked(self._look(None), number)).load(into, **options)

        loaded, skipped = use_newest(self.world, self._url, self._run.newest_step, load)
        loaded.skipped.update(skipped)
        return loaded

    def open(self, step: int | Literal["latest"] = "latest") -> Checkpoint:
        """Opens a committed step; reads no tensor data.

        ``"latest"`` is for all ranks together, as in :meth:`load`: they open the same step. A rank that wants to look alone names a step,
        or has a Checkpointer of its own: ``Checkpointer(url, world=cairn.World())``.

        Raises:
            StepNotFound: if there is no (usable) step.
            RankFailed: if another rank could not open it, or does not come.
        """
        if step != "latest":
            return self._opened(self._run.open(as_step(step)))
        opened, _ = use_newest(
            self.world,
            self._url,
            self._run.newest_step,
            lambda number: self._opened(_checked(self._run, number)),
            what="open",
            timeout=_PATIENCE_SECONDS,
        )
        return opened

    def _opened(self, source: _cairn.Source) -> Checkpoint:
        return Checkpoint(source, self.world, on_load=course_of(self._url).loaded)

    def steps(self) -> list[int]:
        """The committed steps, ascending."""
        return self._run.steps()

    def history(self) -> list[SavedStep]:
        """The committed steps in the order in which they were saved. Where the run went back, some are abandoned: the last is the newest."""
        return [SavedStep(*step) for step in self._run.history()]

    def sign(self, step: int | Literal["latest"], key: str | os.PathLike[str]) -> str:
        """Signs a committed step with a secret key, or the one in a file, and returns the public key. All of the step is read.

        Raises:
            Damaged: if it is not what was saved; damage is not signed.
        """
        return self._run.sign(self._number(step), key_text(key))

    def tag(self, step: int | Literal["latest"], name: str) -> None:
        """Gives a committed step a tag. A step with a tag is never deleted."""
        self._run.tag(self._number(step), name, True)

    def untag(self, step: int | Literal["latest"], name: str) -> None:
        """Takes a tag off a committed step, however it got it."""
        self._run.tag(self._number(step), name, False)

    def tags(self, step: int | Literal["latest"] = "latest") -> list[str]:
        """The tags of a committed step."""
        return self._run.tags(self._number(step))

    def verify(self, step: int | Literal["latest"] = "latest", *, read_data: bool | float = True) -> dict[str, Any]:
        """Checks a step's structure, and all or a fraction of its bytes.

        Raises:
            Damaged: with everything that is wrong.
        """
        number = self._number(step)
        if number not in self.steps():
            self._run.open(number)  # says why it is not there
        report = self._run.verify(number, float(read_data))
        if report["damage"]:
            raise Damaged(
                "\n".join(report["damage"]),
                hint="use another step: `cairn ls` shows them, and loading the latest passes over damaged ones",
            )
        return report

    def explain(self, step: int | Literal["latest"] = "latest", *, into: Any) -> Explained:
        """What a load would read, and what would not fit; reads no tensor data."""
        return self.open(step).explain(into)

    def _number(self, step: int | Literal["latest"]) -> int:
        return as_step(step) if step != "latest" else self._newest()

    def _newest(self) -> int:
        newest = self._run.newest_step([])
        if newest is None:
            raise StepNotFound(f"`{self._url}` has no committed step")
        return newest

    def _before_latest(self) -> None:
        """Is told that all ranks look for the newest step now."""

    def _go_on_from(self, loaded: Loaded) -> None:
        """Is told what was loaded."""


def _checked(run: _cairn.Run, step: int) -> _cairn.Source:
    """Opens a step, all of whose files are there as they were written, but for their bytes."""
    opened = run.open(step)
    opened.check()
    return opened


def as_step(step: object) -> int:
    """``step`` as a number, if it is one that counts."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise StateError(f"{step!r} is not a step", hint="steps are whole numbers from 0")
    return number
