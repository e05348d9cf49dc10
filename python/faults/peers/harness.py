"""Does a tool's work in processes of its own that can be killed, and says what came of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import time
from collections.abc import Callable
from functools import cache
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import tools
from tools import Arrays, Tool

_fork = multiprocessing.get_context("fork")
#: Whoever takes longer hangs.
HANG_S = 60.0
NAMES = [f"layer{index}" for index in range(8)]
SHAPE = (2048, 1024)
LEN_BYTES = len(NAMES) * SHAPE[0] * SHAPE[1] * 4


@cache
def arrays(generation: int) -> Arrays:
    """A state whose every byte is known, of 64 MiB."""
    generator = np.random.Generator(np.random.SFC64(generation))
    return {name: generator.random(SHAPE, dtype=np.float32) for name in NAMES}


class Work:
    """Work in a process of its own, with all the processes that it starts."""

    def __init__(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._pipe, theirs = _fork.Pipe()
        self.process = _fork.Process(target=_main, args=(theirs, work, arguments))
        self.process.start()
        theirs.close()
        self.hears()  # that it has begun

    def hears(self) -> Any:
        """The next message, or `None` if it dies or hangs."""
        try:
            return self._pipe.recv() if self._pipe.poll(HANG_S) else None
        except (EOFError, ConnectionResetError):
            return None

    def tell(self, word: str) -> None:
        """Answers a message."""
        self._pipe.send(word)

    def kill(self) -> None:
        """Ends all of it at once."""
        assert self.process.pid is not None
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.join()

    def ending(self) -> tuple[str, Any]:
        """`returned` with what, `raised` with what, `died`, or `hangs`."""
        message = self.hears()
        hangs = message is None and self.process.is_alive()
        self.kill()
        if message is None:
            return ("hangs", None) if hangs else ("died", None)
        kind, value = message
        return kind, value


def _main(pipe: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    # Ranks that have met go on when they are told to.
    tools.meet = lambda rank: (pipe.send("met"), pipe.recv())
    pipe.send("begun")
    try:
        pipe.send(("returned", work(*arguments)))
    except BaseException as error:  # whatever a tool raises, DCP's is no `Exception`
        pipe.send(("raised", type(error).__name__))


def saved(tool: Tool, folder: Path, generation: int) -> str:
    """What a tool says about its save."""
    return _said(*Work(tool.save, folder, arrays(generation)).ending())


def saved_until(tool: Tool, folder: Path, generation: int, seconds: float) -> None:
    """A save that is killed after some time."""
    work = Work(tool.save, folder, arrays(generation))
    time.sleep(seconds)
    work.kill()


def seconds_of(tool: Tool, folder: Path) -> float:
    """How long a save takes."""
    work = Work(tool.save, folder, arrays(1))
    begin = time.monotonic()
    work.ending()
    return time.monotonic() - begin


def loaded(tool: Tool, folder: Path) -> str:
    """What a load of the folder gives: which generation, an error, or something that nobody saved."""
    kind, value = Work(_which, tool, folder).ending()
    return {"returned": value, "raised": "error"}.get(kind, kind)


def _which(tool: Tool, folder: Path) -> str:
    found = tool.load(folder, arrays(1))
    for generation, word in ((1, "first"), (2, "second")):
        if all(np.array_equal(found[name], array) for name, array in arrays(generation).items()):
            return word
    return "WRONG BYTES"


def saved_with_a_dead_rank(tool: Tool, folder: Path) -> str:
    """What one of two ranks is told when the other is killed as the save begins."""
    port = _free_port()
    works = [Work(tool.save_share, folder, arrays(1), rank, port) for rank in (0, 1)]
    met = [work.hears() for work in works]
    works[1].kill()
    if met != ["met", "met"]:
        works[0].kill()
        return f"does not start: {met}"
    works[0].tell("go")
    return _said(*works[0].ending())


def _said(kind: str, value: Any) -> str:
    return {"returned": "says saved", "raised": f"raises `{value}`"}.get(kind, kind)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
