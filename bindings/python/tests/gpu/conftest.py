"""The end of a suite on a bare machine: it stops in time, and leaves a table.

Tests with the mark `own_process` have one, because a graph that cannot be captured leaves torch's generators unusable.
`CAIRN_SUITE_UNTIL` is when, in seconds of Unix time, no further case begins. `CAIRN_SUITE_TABLE` is where the table goes, without an ending.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

_UNTIL = float(os.environ.get("CAIRN_SUITE_UNTIL", "inf"))
_TABLE = os.environ.get("CAIRN_SUITE_TABLE")
_rows: dict[str, dict[str, Any]] = {}
#: Set in the process of a test: where its properties go.
_CHILD = "CAIRN_GPU_CHILD"
#: Shorter than any limit of a case.
_CHILD_SECONDS = 50


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own_process: the test runs in a process of its own")


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    told = os.environ.get(_CHILD)
    if pyfuncitem.get_closest_marker("own_process") is None or told is not None:
        return None
    folder = pyfuncitem.funcargs["tmp_path"]
    told = folder / "properties.json"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CAIRN_SUITE_"))}
    config = pyfuncitem.config
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--rootdir", str(config.rootpath), "--basetemp", str(folder / "own")]
    command += ["--config-file", str(config.inipath), "-q", "--tb=short", f"{pyfuncitem.path}::{pyfuncitem.name}"]
    done = subprocess.run(
        command, env=environment | {_CHILD: str(told)}, check=False, capture_output=True, text=True, timeout=_CHILD_SECONDS
    )
    if done.returncode:
        pytest.fail(_errors(done.stdout) or f"{done.stdout}\n{done.stderr}"[-3000:], pytrace=False)
    pyfuncitem.user_properties += [tuple(one) for one in json.loads(told.read_text())]
    return True


def pytest_runtest_teardown(item: pytest.Item) -> None:
    if _CHILD in os.environ:
        Path(os.environ[_CHILD]).write_text(json.dumps(item.user_properties))


def _errors(text: str) -> str:
    """What pytest said of a failure."""
    return "\n".join(line[2:] for line in text.splitlines() if line.startswith("E "))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if time.time() > _UNTIL:
        pytest.fail("not run: the time of the suite is up", pytrace=False)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    row = _rows.setdefault(report.nodeid, {"seconds": 0.0})
    row["seconds"] += report.duration
    if report.when == "call" or report.outcome != "passed":
        row["outcome"] = _outcome(report)
    if report.outcome != "passed":
        row["why"] = _why(report)
    row.update(report.user_properties)


def _outcome(report: pytest.TestReport) -> str:
    if "crashed while running" in report.longreprtext:
        return "hung or crashed"
    return report.outcome


def _why(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    if "crashed while running" in report.longreprtext:
        return "it took longer than a case may, or its process died; where is in the log"
    told = "\n".join(line for line in report.longreprtext.splitlines() if not line.startswith("[gw"))
    return _errors(told)[:2000] or told.strip()[-2000:]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if _TABLE is None or not _rows:
        return
    text = _markdown()
    Path(f"{_TABLE}.md").write_text(text)
    Path(f"{_TABLE}.json").write_text(json.dumps({"machine": _machine(), "cases": _rows}, indent=1))
    terminalreporter.section("table")
    terminalreporter.write_line(text)


def _machine() -> dict[str, str]:
    about = Path(__file__).parent.parent / "about.json"
    machine = json.loads(about.read_text()) if about.exists() else {}
    machine |= {"python": platform.python_version(), "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())}
    try:
        import torch

        machine["torch"] = torch.__version__
        asked = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
        machine["gpu"] = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    except Exception as error:
        machine.setdefault("gpu", f"none ({type(error).__name__})")
    return machine


def _markdown() -> str:
    outcomes = [row.get("outcome", "?") for row in _rows.values()]
    counts = ", ".join(f"{outcomes.count(one)} {one}" for one in sorted(set(outcomes)))
    compared = sum(row.get("compared_bytes", 0) for row in _rows.values())
    lines = [f"{key}: {value}" for key, value in sorted(_machine().items())]
    text = "\n".join(f"- {line}" for line in lines) + f"\n\n{len(outcomes)} cases: {counts}; {compared / 1e9:.1f} GB compared.\n\n"
    return text + _pairs() + _singles()


def _pairs() -> str:
    """The options against each other: seconds where all was well."""
    cells: dict[frozenset[str], str] = {}
    names: dict[str, None] = {}
    for node, row in _rows.items():
        found = re.search(r"test_every_two_options\w*\[(.*)\]$", node)
        if found:
            pair = [one for one in found[1].split("+") if one != "nothing"]
            names.update(dict.fromkeys(pair))
            cells[frozenset(pair)] = f"{row['seconds']:.1f}" if row.get("outcome") == "passed" else f"**{row.get('outcome', '?')}**"
    if not names:
        return ""
    head = "| | " + " | ".join(names) + " |\n|" + "---|" * (len(names) + 1) + "\n"
    rows = [f"| {one} | " + " | ".join(cells.get(frozenset({one, other}), "") for other in names) + " |" for one in names]
    text = "Options by twos, each alone on the diagonal; seconds of a case whose every byte was right.\n\n"
    return text + head + "\n".join(rows) + f"\n\nNo option at all: {cells.get(frozenset(), '')}.\n\n"


def _singles() -> str:
    """All other cases, and why those that failed did."""
    lines = []
    for node, row in sorted(_rows.items()):
        is_pair = "test_every_two_options" in node
        if is_pair and row.get("outcome") == "passed":
            continue
        why = row.get("why", "").strip().splitlines()
        name = node.split("::")[-1].replace("|", "\\|")
        lines.append(f"| {name} | {row.get('outcome', '?')} | {row['seconds']:.1f} | {why[0][:160].replace('|', chr(92) + '|') if why else ''} |")
    return "| case | outcome | seconds | why |\n|---|---|---|---|\n" + "\n".join(lines) + "\n"
