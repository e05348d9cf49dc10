"""Arrays on a device, brought to the host behind the caller's back.

Some frameworks keep the order of a device's work to themselves: nobody else can copy from its memory while it goes on. For these a
save has the framework copy an array on the device first, which takes the time of giving the order, and a thread fetches the copies
while training goes on. The copies take device memory, as much as ``scratch_bytes`` allows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ._cairn import Promise
from ._part import DeviceMemory, Part


class Behind:
    """What one save fetches later."""

    def __init__(self, budget_bytes: int) -> None:
        self._left = budget_bytes
        self._fetches: list[tuple[Promise, Callable[[], Any]]] = []

    def allows(self, len_bytes: int) -> bool:
        """Whether there is memory on the device for a copy of so many bytes; if so, it is taken."""
        if len_bytes > self._left:
            return False
        self._left -= len_bytes
        return True

    def promise(self, len_bytes: int, fetch: Callable[[], Any]) -> Promise:
        """Memory that ``fetch`` will give, as a one-dimensional array of bytes that nobody changes."""
        promise = Promise(len_bytes)
        self._fetches.append((promise, fetch))
        return promise

    def start(self, parts: dict[str, Part]) -> dict[str, Part]:
        """Fetches everything on a thread of its own; returns the parts to save.

        What else lies on the host is copied now, so that the engine need not wait for one with the other.
        """
        if not self._fetches:
            return parts
        fetches, self._fetches = self._fetches, []
        # Python waits for such a thread when it ends, so that the last save is whole.
        threading.Thread(target=_fetch_all, args=(fetches,), name="cairn-behind").start()
        return {name: _held(part) for name, part in parts.items()}


def _held(part: Part) -> Part:
    """The part, with memory of its own instead of memory on the host that may change."""
    if isinstance(part.memory, (Promise, DeviceMemory)):
        return part
    promise = Promise(part.memory.nbytes)
    promise.keep(part.memory.copy())
    return replace(part, memory=promise)


def _fetch_all(fetches: list[tuple[Promise, Callable[[], Any]]]) -> None:
    fetches.reverse()
    while fetches:
        # Nothing is held once it is fetched: its copy on the device is free again.
        promise, fetch = fetches.pop()
        try:
            promise.keep(fetch())
        except Exception as error:
            promise.fail(f"could not be fetched from its device: {error}")
