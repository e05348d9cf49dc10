"""What the ranks that save together tell each other, for one object that saves."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from . import _cairn
from ._agreement import Agreement
from ._logger import logger
from ._replicas import Comparison, Placer, Rule, withdraw
from ._tree import Flat
from ._world import World
from .errors import Error, RanksDisagree, told

#: How many objects of this process have saved to a run, which all ranks count alike.
_savers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class Ranks:
    """The ranks of a world, as one of them sees them."""

    def __init__(self, world: World, url: str, rules: dict[str, Rule], timeout: float, *, differ: bool) -> None:
        self._world = world
        #: Each object that saves has a session name of its own.
        self.session = None if world.session is None else f"{world.session}-{next(_savers[url])}"
        self._agreement = Agreement(world, self.session, differ)
        self._placer = Placer(rules)
        self._comparison: Comparison | None = None
        self._timeout = timeout
        self._calls = 0
        #: Steps that were given up before there was a run to say so.
        self._owed: list[tuple[int, str]] = []

    def begin(self) -> None:
        """Counts a save, before anything of it can fail, so that all ranks count alike."""
        self._agreement.begin()
        self._calls += 1

    def fit(self, flat: Flat, buffers: Iterable[str]) -> None:
        """Compares the layout with the other ranks', at the first save, and places what need not be the same on all."""
        self._agreement.agree(flat, self._timeout)
        if self._world.size > 1:
            self._placer.place(flat, buffers, self._agreement.holders, self._world)

    def compare(self, flat: Flat, *, is_new: bool) -> Callable[[], str | None] | None:
        """Has the ranks compare what all of them hold, until that was settled once; returns what the save has to wait for.

        A run that ``is_new`` is refused if they differ. One that goes on from one of its steps has been saved like this before.
        """
        if self._world.size == 1 or self._world.board is None or self._comparison is not None and self._comparison.is_settled:
            return None
        self._comparison = Comparison(self._world, self._topic, flat.parts, self._timeout, is_strict=is_new)
        self._comparison.start()
        return self._comparison.outcome

    def catch_up(self, run: _cairn.Run) -> None:
        """Gives up what was owed to the other ranks before there was a run."""
        while self._owed:
            run.give_up(*self._owed.pop(0))

    def give_up(
        self,
        run: Callable[[], _cairn.Run],
        step: int,
        attempt: int | None,
        begun: _cairn.Saving | None,
        error: BaseException,
    ) -> None:
        """Tells the other ranks that this one cannot save, so that they do not wait for it.

        ``attempt`` is the number of this one at the step, if there is a run to ask; ``begun`` the save, if it got so far.
        """
        if begun is not None:
            begun.cancel()
        if self._world.size == 1 or getattr(error, "nothing_begun", False) or isinstance(error, RanksDisagree):
            # Ranks that disagree have all found the same.
            return
        reason = told(error)
        try:
            self._agreement.refuse(reason)
            if self._comparison is None or self._comparison.topic != self._topic:
                withdraw(self._world, self._topic)
            if attempt is None:
                self._owed.append((step, reason))
            elif begun is not None or not (isinstance(error, Error) and run().attempts(step) > attempt):
                run().give_up(step, reason, attempt)
        except Exception:
            logger.exception("the other ranks were not told that step %d was given up", step)

    @property
    def _topic(self) -> str:
        return f"{self.session}/replicas/{self._calls}"
