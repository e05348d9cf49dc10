"""What keeps a state on a device as it is until it is captured.

A save copies tensors on a device while training goes on. Whoever changes them next waits for the copies first, on the device: that
is a fence. Optimizers that are saved with the model fence themselves, through a hook before their step. What nobody fences is copied
in the order of the device's work before anything that comes after the save.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from . import _cairn
from ._part import DeviceMemory
from ._tree import Flat

Policy = Literal["auto", "manual", "none"]
POLICIES: tuple[Policy, ...] = ("auto", "manual", "none")


class Fences:
    """The fences of one run's saves."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._pending: list[_cairn.Saving | _cairn.Averaging] = []
        self._hooked: weakref.WeakSet[Any] = weakref.WeakSet()
        self._devices: set[int] = set()
        self._fenced: list[int] = []
        self._last_step: float | None = None
        #: Names of parameters that an optimizer is to change.
        self.trainable: frozenset[str] = frozenset()
        #: Told how long each step took.
        self.observe: Callable[[float], None] | None = None

    def look(self, flat: Flat, leaves: Iterable[tuple[str, object]]) -> list[Any]:
        """The memory of each part, with what is fenced marked. Hooks the optimizers among ``leaves``."""
        memory = [part.memory for part in flat.parts.values()]
        self._devices = {one.device for one in memory if isinstance(one, DeviceMemory)}
        self._fenced = []
        self.trainable = frozenset()
        if "torch" not in sys.modules or flat.tensors is None:
            return memory
        from .torch import _fences

        optimizers = _fences.optimizers(leaves)
        self.trainable = frozenset(_fences.trainable(flat.parts, flat.tensors, optimizers))
        for optimizer in optimizers:
            self._hook(optimizer)
        if self._devices:
            guarded = None if self._policy == "manual" else _fences.addresses(optimizers)
            self._mark(memory, guarded if self._policy != "none" else set())
        return memory

    def _mark(self, memory: list[Any], guarded: set[int] | None) -> None:
        """Marks what is guarded, or everything, and remembers its places."""
        for place, one in enumerate(memory):
            if isinstance(one, DeviceMemory) and not one.fenced and (guarded is None or one.address in guarded):
                memory[place] = replace(one, fenced=True)
                self._fenced.append(place)

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
        if self._fenced:
            self._pending.append(saving)

    def pass_all(self) -> float:
        """Waits until the state may change; returns the seconds that took."""
        pending, self._pending = self._pending, []
        streams = self.streams() if pending else {}
        return sum(saving.fence(streams)[0] for saving in pending)

    def _hook(self, optimizer: Any) -> None:
        if optimizer in self._hooked:
            return
        self._hooked.add(optimizer)
        mine = weakref.ref(self)

        def before_step(*_: object) -> None:
            fences = mine()
            if fences is not None:
                fences.pass_all()
                fences._count_step()

        optimizer.register_step_pre_hook(before_step)

    def _count_step(self) -> None:
        now = time.perf_counter()
        if self.observe is not None and self._last_step is not None:
            self.observe(now - self._last_step)
        self._last_step = now

