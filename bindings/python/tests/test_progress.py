"""The line that shows how far a save is: drawn for somebody who waits, silent otherwise."""

from __future__ import annotations

import time

import pytest

from cairn import _progress
from cairn._progress import Progress


def test_the_line_says_how_much_and_how_fast() -> None:
    line = Progress("step 7", 4_000_000_000, lambda: 0).line(1_000_000_000, 2.0)
    assert line == "step 7 ██████░░░░░░░░░░░░░░░░░░ 1.00 of 4.00 GB, 0.50 GB/s"


def test_work_that_takes_long_is_shown_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(_progress, "_PATIENCE_SECONDS", 0.0)
    with Progress("step 7", 10, lambda: 10, show=True):
        time.sleep(0.05)
    shown = capsys.readouterr()
    assert "step 7 ████████████████████████" in shown.err and shown.err.endswith("\n") and not shown.out


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_progress, "_PATIENCE_SECONDS", 0.0)
    with Progress("step 7", 10, lambda: 10):
        time.sleep(0.05)
    assert capsys.readouterr() == ("", "")


def test_work_that_is_over_at_once_draws_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("step 7", 10, lambda: 10, show=True):
        pass
    assert capsys.readouterr() == ("", "")
