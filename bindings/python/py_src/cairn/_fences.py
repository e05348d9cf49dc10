"""What keeps a state on a device as it is until it is captured.

A save copies tensors on a device while training goes on. Whoever changes them next waits for the copies first, on the device: that
is a fence. Optimizers that are saved with the model fence themselves, through a hook before their step; where there are several, each
waits for its own tensors alone, and those of the one that steps first are copied first. What nobody fences is copied
in the order of the device's work before anything that comes after the save.

A step inside a CUDA graph calls no hook when it is replayed. So an optimizer is believed to fence only if its hook was called since the
save before, outside of any graph that is being captured; what others change is copied as if nobody fenced it.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from . import _cairn
from ._part import DeviceMemory
from ._tree import Flat
from .errors import Error

Policy = Literal["auto", "manual", "none"]
POLICIES: tuple[Policy, ...] = ("auto", "manual", "none")


@dataclass
class _Pending:
    """A save, or an update of averages, whose state may not change yet."""

    saving: _cairn.Saving | _cairn.Averaging
    turns: weakref.WeakKeyDictionary[Any, int]
    #: The turns that have not come.
    left: set[int]


class Fences:
    """The fences of one run's saves."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pending: list[_Pending] = []
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._devices: set[int] = set()
        self._fenced: list[int] = []
        #: Each optimizer's turn, and when it stepped last.
        self._turns: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._stepped: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._steps = count(1)
        self._last_step: float | None = None
        #: Those that the state has, and those of them whose step was seen since the save before.
        self._optimizers: weakref.WeakSet[Any] = weakref.WeakSet()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        #: Those that were believed when the memory was looked at.
        self._believed: frozenset[int] = frozenset()
        #: Whether the state has tensors on the host that a device may still be filling.
        self._pinned = False
        if "torch" in sys.modules:
            from .torch import _fences

            _fences.watch_graphs()
        #: Names of parameters that an optimizer is to change.
        self.trainable: frozenset[str] = frozenset()
        #: Told how long each step took.
        self.observe: Callable[[float], None] | None = None

    def look(self, flat: Flat, leaves: Iterable[tuple[str, object]]) -> list[Any]:
        """The memory of each part, with what is fenced marked. Hooks the optimizers among ``leaves``."""
        memory = [part.memory for part in flat.parts.values()]
        self._devices = {one.device for one in memory if isinstance(one, DeviceMemory)}
        self._fenced = []
        self._turns = weakref.WeakKeyDictionary()
        self.trainable = frozenset()
        self._optimizers, self._believed, self._pinned = weakref.WeakSet(), frozenset(), False
        if "torch" not in sys.modules or flat.tensors is None:
            return memory
        from .torch import _fences

        _fences.watch_graphs()
        self._pinned = _fences.are_pinned(flat.tensors)
        optimizers = _fences.optimizers(leaves)
        self._optimizers.update(optimizers)
        self._believed = self._believable()
        self.trainable = frozenset(_fences.trainable(flat.parts, flat.tensors, optimizers))
        for optimizer in optimizers:
            self._hook(optimizer)
        if self._devices and self._policy == "manual":
            self._mark(memory, None)
        elif self._devices and self._policy == "auto":
            believed = [optimizer for optimizer in optimizers if id(optimizer) in self._believed]
            self._mark(memory, self._deal(believed, _fences.addresses))
        return memory

    def _believable(self) -> frozenset[int]:
        """The optimizers whose hooks are known to be called before each of their steps."""
        if not self._seen:
            return frozenset()
        from .torch import _fences

        return frozenset(id(one) for one in self._optimizers if one in self._seen and not _fences.is_in_graph(one))

    def is_outdated(self) -> bool:
        """Whether memory that was looked at has to be looked at again, because optimizers are not what they were taken for."""
        return self.is_reordered() or self._believed != self._believable()

    def settle(self) -> None:
        """Waits until devices have filled the tensors on the host that they may be filling."""
        if self._pinned:
            from .torch import _fences

            _fences.settle(self._devices)

    def _deal(self, optimizers: Sequence[Any], addresses: Callable[[Any], set[int]]) -> dict[int, int]:
        """Gives each optimizer a turn: who stepped longest ago is the next. Returns the turn of each address.

        Those that change the same tensor have the same turn, because nobody knows which of them steps first.
        """
        turns: dict[int, int] = {}
        fresh = count()
        for optimizer in sorted(optimizers, key=lambda one: self._stepped.get(one, 0)):
            own = addresses(optimizer)
            shared = {turns[address] for address in own if address in turns}
            turn = min(shared) if shared else next(fresh)
            turns.update((address, turn) for address in own)
            self._turns[optimizer] = turn
            for other in shared - {turn}:
                turns = {address: turn if old == other else old for address, old in turns.items()}
                for one, old in self._turns.items():
                    self._turns[one] = turn if old == other else old
        return turns

    def _mark(self, memory: list[Any], guarded: dict[int, int] | None) -> None:
        """Marks what is guarded, or everything, and remembers its places. What nobody changes is copied last."""
        last = 0 if guarded is None else max(guarded.values(), default=0)
        for place, one in enumerate(memory):
            if not isinstance(one, DeviceMemory):
                continue
            if one.fenced:
                memory[place] = replace(one, turn=last)
            elif guarded is None or one.address in guarded:
                memory[place] = replace(one, fenced=True, turn=guarded[one.address] if guarded else 0)
                self._fenced.append(place)

    def is_reordered(self) -> bool:
        """Whether optimizers step in another order than their turns say."""
        by_turn = sorted(self._turns.items(), key=lambda item: self._stepped.get(item[0], 0))
        turns = [turn for _, turn in by_turn]
        return len(turns) > 1 and turns != sorted(turns)

    def streams(self) -> dict[int, int]:
        """The stream that each device works on now."""
        if not self._devices:
            return {}
        from .torch import _fences

        return _fences.streams(self._devices)

    def watch(self, flat: Flat) -> Callable[[], list[str]] | None:
        """Tells which fenced tensors were changed since now."""
        if not self._fenced or flat.tensors is None:
            return None
        from .torch import _fences

        names = list(flat.parts)
        return _fences.watch([(names[place], flat.tensors[place]) for place in self._fenced])

    def add(self, saving: _cairn.Saving | _cairn.Averaging) -> None:
        """A save, or an update of averages, whose state may not change before the next fence."""
        if isinstance(saving, _cairn.Saving):
            self._seen = weakref.WeakSet()
        # Where no fence comes, nothing is kept that needs none.
        self._pending = [one for one in self._pending if isinstance(one.saving, _cairn.Averaging) or not one.saving.is_captured()]
        if self._fenced:
            self._pending.append(_Pending(saving, self._turns, set(self._turns.values())))

    def pass_all(self) -> float:
        """Waits until the state may change; returns the seconds that took."""
        pending, self._pending = self._pending, []
        streams = self.streams() if pending else {}
        return sum(one.saving.fence(streams)[0] for one in pending)

    def pass_turn(self, optimizer: Any) -> None:
        """Waits until what ``optimizer`` changes may change."""
        pending, self._pending = self._pending, []
        streams = self.streams() if pending else {}
        for one in pending:
            turn = one.turns.get(optimizer)
            if turn not in one.left or len(one.left) == 1:
                one.saving.fence(streams)
                continue
            one.saving.fence(streams, turn)
            one.left.discard(turn)
            self._pending.append(one)

    def _hook(self, optimizer: Any) -> None:
        if optimizer in self._hooked:
            return
        self._hooked.add(optimizer)
        mine = weakref.ref(self)

        def before_step(stepping: Any, *_: object) -> None:
            from .torch import _fences

            fences = mine()
            if fences is None:
                return
            if _fences.is_capturing():
                fences._enter_graph()
                return
            fences.pass_turn(stepping)
            fences._count_step(stepping)

        optimizer.register_step_pre_hook(before_step)

    def _enter_graph(self) -> None:
        """Waits until every byte is captured: replays of the graph that a step goes into will not ask."""
        pending, self._pending = self._pending, []
        for one in pending:
            with suppress(Error):  # told where the save is waited for
                one.saving.wait() if isinstance(one.saving, _cairn.Averaging) else one.saving.wait(None, "staged")

    def _count_step(self, optimizer: Any) -> None:
        self._seen.add(optimizer)
        now, is_first = time.perf_counter(), self._turns.get(optimizer, 0) == 0
        self._stepped[optimizer] = next(self._steps)
        if not is_first:
            return  # a step of training has one step of each optimizer
        if self.observe is not None and self._last_step is not None:
            self.observe(now - self._last_step)
        self._last_step = now
