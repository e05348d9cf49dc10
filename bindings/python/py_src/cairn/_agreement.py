"""Ranks compare what they hold, once, before anything is written.

Names, types, shapes and placements must fit together. Ranks tell each other through the key-value store that already joins
them (no collective), at their first save; afterwards nobody waits for anybody, and the commit checks again.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import replace

from ._cairn import Spec
from ._part import Part, replicated
from ._tree import Flat
from ._world import World
from .errors import RankFailed, RanksDisagree


_EVERYWHERE = "everywhere"
#: A tensor's placement in words, and the ranks it must be on.
Told = tuple[str, list[int] | str | None]
#: Which ranks name a tensor.
Holders = dict[str, list[int]]


class Agreement:
    """What the ranks have agreed on, for one object that saves; ``session`` is its name on all ranks."""

    def __init__(self, world: World, session: str | None, ranks_differ: bool) -> None:
        self._world = world
        self._session = session
        self._ranks_differ = ranks_differ
        self._holders: Holders | None = None
        self._round = 0
        self._has_told = False

    def begin(self) -> None:
        """Counts a save, before anything of it can fail, so that all ranks count alike."""
        if self._holders is None:
            self._round += 1
            self._has_told = False

    def agree(self, flat: Flat, timeout: float) -> None:
        """Compares this rank's layout with the others', until that has worked once.

        Waits for a rank no longer than ``timeout`` seconds, where the board can be told so. Where ranks differ, a plain tensor is
        placed on those ranks that name it.

        Raises:
            RanksDisagree: with the names, and which ranks lack or contradict them.
            RankFailed: if a rank does not come, or cannot save.
        """
        world = self._world
        if world.size == 1:
            return
        if self._holders is None:
            self._holders = {} if world.board is None else self._exchange(flat, timeout)
        if self._ranks_differ:
            for name, part in flat.parts.items():
                flat.parts[name] = _placed(part, self._holders.get(name), world)

    @property
    def holders(self) -> Holders | None:
        """Which ranks name each tensor, once that is known."""
        return self._holders

    def refuse(self, reason: str) -> None:
        """Tells the ranks that wait for a first comparison why this one has nothing to compare."""
        if self._holders is None and not self._has_told:
            self._has_told = True
            self._world.tell(self._topic, json.dumps(reason))

    @property
    def _topic(self) -> str:
        return f"{self._session}/layout/{self._round}"

    def _exchange(self, flat: Flat, timeout: float) -> Holders:
        own = json.dumps({name: _told(part, self._world) for name, part in flat.parts.items()})
        self._has_told = True
        told = [json.loads(message) for message in self._world.exchange(self._topic, own, timeout)]
        for rank, names in enumerate(told):
            if isinstance(names, str):
                raise RankFailed(f"rank {rank} cannot save: {names}", hint="look at that rank's log")
        return _compare(told, self._world, self._ranks_differ)


def _placed(part: Part, holders: list[int] | None, world: World) -> Part:
    """A tensor that counts as whole on all ranks, on those that hold it; if they are not known, each speaks for itself."""
    spec = part.spec
    shape = tuple(spec.shape)
    if holders == world.ranks or spec != replicated(spec.dtype, shape, world.size):
        return part
    if holders is None and 0 not in shape:
        whole = ([0] * len(shape), shape, None)
        return replace(part, spec=Spec.listed(spec.dtype, shape, {world.rank: [whole]}))
    return replace(part, spec=Spec.replicated(spec.dtype, shape, holders or [world.rank]))


def _told(part: Part, world: World) -> Told:
    """What a rank tells of a tensor: its placement, and on which ranks it must be; pieces that are listed speak for themselves."""
    text = str(part.spec)
    if "listed(" in text:
        return text, None
    ranks = part.spec.ranks()
    return text, _EVERYWHERE if ranks == world.ranks else ranks


def _compare(told: list[dict[str, Told]], world: World, ranks_differ: bool) -> Holders:
    holders: Holders = defaultdict(list)
    for rank, names in enumerate(told):
        for name in names:
            holders[name].append(rank)
    problems = []
    for name, ranks in sorted(holders.items()):
        texts = {told[rank][name][0] for rank in ranks}
        expected = told[ranks[0]][name][1]
        if expected is None:
            continue
        if len(texts) > 1:
            one, other = sorted(texts)[:2]
            problems.append(f"`{name}` is {one} on some ranks and {other} on others")
        wanted = world.ranks if isinstance(expected, str) else expected
        lacking = sorted(set(wanted) - set(ranks))
        if lacking and not (ranks_differ and expected == _EVERYWHERE):
            problems.append(f"`{name}` is not on {_ranks(lacking)}")
    if problems:
        shown = "".join(f"\n  {problem}" for problem in problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise RanksDisagree(
            f"the ranks do not hold the same state:{shown}{more}",
            hint='if each rank is meant to name its own tensors (pipeline stages), pass ranks="differ" to Checkpointer',
        )
    return dict(holders)


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{' …' if len(ranks) > 8 else ''}"
