"""A line that shows how far a save or load is: on a terminal, or in a notebook; nowhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

#: Work that is over sooner shows nothing.
_PATIENCE_SECONDS = 1.0
_TICK_SECONDS = 0.2
_WIDTH = 24


class Progress:
    """Draws ``label`` with the bytes done of ``total`` while its ``with`` block runs.

    ``show=None`` draws where somebody looks: standard error is a terminal, or this is a notebook.
    """

    def __init__(self, label: str, total: int, done: Callable[[], int], *, show: bool | None = None) -> None:
        self._label = label
        self._total = total
        self._done = done
        self._started = time.monotonic()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._notebook = _notebook_display()
        self._show = show if show is not None else self._notebook is not None or _is_terminal()

    def __enter__(self) -> Progress:
        if self._show and self._total > 0:
            self._thread = threading.Thread(target=self._run, name="cairn-progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        if self._stop.wait(_PATIENCE_SECONDS):
            return
        while True:
            self._draw()
            if self._stop.wait(_TICK_SECONDS):
                break
        self._draw()
        if self._notebook is None:
            print(file=sys.stderr)

    def _draw(self) -> None:
        text = self.line(self._done(), time.monotonic() - self._started)
        if self._notebook is not None:
            self._notebook(text)
        else:
            print(f"\r{text}", end="", file=sys.stderr, flush=True)

    def line(self, done: int, seconds: float) -> str:
        """The line after ``seconds``: bar, bytes, rate."""
        share = min(done / self._total, 1.0)
        bar = ("█" * round(share * _WIDTH)).ljust(_WIDTH, "░")
        rate = done / 1e9 / max(seconds, 1e-9)
        return f"{self._label} {bar} {done / 1e9:.2f} of {self._total / 1e9:.2f} GB, {rate:.2f} GB/s"


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _notebook_display() -> Callable[[str], None] | None:
    """How to show text in the notebook this runs in, if it runs in one."""
    shell: Any = sys.modules.get("IPython")
    if shell is None or type(shell.get_ipython()).__name__ != "ZMQInteractiveShell":
        return None
    from importlib import import_module

    display: Any = import_module("IPython.display")
    handle = display.display(display.Pretty(""), display_id=True)

    def show(text: str) -> None:
        handle.update(display.Pretty(text))

    return show
