"""Every option of `Checkpointer` with every other: each save holds the moment of its call, while everything it saved goes on changing."""

from __future__ import annotations

import inspect
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from gpu_device import DEVICE, torch
from gpu_training import Averages, Job, differing, differing_averages, differing_files

import cairn

OPTIONS: list[tuple[str, str, Any]] = [tuple(one) for one in json.loads((Path(__file__).parent / "captures.json").read_text())["options"]]
SAVES = 3
PAIRS = [(one, other) for one, other in itertools.combinations(OPTIONS, 2) if one[0] != other[0]]
CASES = [(), *((one,) for one in OPTIONS), *PAIRS]


def label(case: tuple[tuple[str, str, Any], ...]) -> str:
    return "+".join(f"{name}={value}" for name, value, _ in case) or "nothing"


class Tools:
    """What some options need: a key, a keeper, a process group."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key: str | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def key(self, secret: str) -> str:
        """The public key of a secret one."""
        if self._key is None:
            with cairn.Checkpointer(self._folder / "signed", keeper=None) as run:
                run.save(1, {"x": 1}, blocking=True)
                self._key = run.sign(1, secret)
        return self._key

    def keeper(self) -> Path:
        """The socket of a keeper."""
        socket = self._folder / "own" / "keeper.sock"
        if self._keeper is None:
            binary = os.environ.get("CAIRN_BIN")
            if binary is None:
                pytest.skip("CAIRN_BIN is not set, so there is no keeper")
            self._keeper = subprocess.Popen([binary, "keeper", "--socket", socket, "--max-bytes", "2G", "--quiet"])
            asked = [binary, "keeper", "status", "--socket", socket, "--json"]
            deadline = time.monotonic() + 60
            while subprocess.run(asked, check=False, capture_output=True).returncode:
                assert time.monotonic() < deadline and self._keeper.poll() is None, "the keeper does not answer"
                time.sleep(0.05)
        return socket

    def group(self) -> Any:
        """A process group of this process alone."""
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
        return torch.distributed.group.WORLD

    def leave_group(self) -> None:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.terminate()
            self._keeper.wait()


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    tools = Tools(tmp_path_factory.mktemp("tools"))
    yield tools
    tools.close()


class Trial:
    """One run with some options."""

    def __init__(self, case: tuple[tuple[str, str, Any], ...], folder: Path, tools: Tools) -> None:
        self.chosen = {name: value for name, _, value in case}
        self.place: Any = folder / "run"
        if "url" in self.chosen:
            self.place = cairn.Tiered(fast=folder / "fast", durable=folder / "durable")
        self.options = {name: self._option(name, value, tools) for name, value in self.chosen.items() if name != "url"}
        self.options.setdefault("keeper", None)
        self.averages = Averages(self.chosen["ema"]) if "ema" in self.chosen else None
        self.run = cairn.Checkpointer(self.place, **self.options)
        self.job = Job(DEVICE)
        #: What each step has to hold.
        self.expected: dict[int, dict[str, torch.Tensor]] = {}
        self.averaged: dict[int, dict[str, Any]] = {}

    def _option(self, name: str, value: Any, tools: Tools) -> Any:
        if name == "keep":
            return cairn.Keep(last=value)
        if name == "ema":
            return cairn.Ema(decay=value)
        if name == "world":
            return cairn.World(rank=0, size=1)
        if name == "require_key":
            return tools.key(value)
        if name == "keeper":
            return tools.keeper()
        return tools.group() if name == "process_group" else value

    def fence(self) -> AbstractContextManager[None]:
        return self.run.fence() if self.chosen.get("fence") == "manual" else nullcontext()

    def save(self) -> str:
        """Saves some steps while training goes on; returns how the last was captured."""
        self.job.train()
        capture = ""
        savings = []
        for step in range(1, SAVES + 1):
            with self.fence():
                self.job.train()
            if self.averages is not None:
                self.run.average(step, self.job.state)
                self.averages.update(self.job.model)
                self.averaged[step] = self.averages.clone()
            expected = self.job.clone()
            saving = self.run.save(step, self.job.state)
            if saving.skipped:
                assert self.chosen["overlap"] == "skip" and step > 1
            else:
                self.expected[step] = expected
                savings.append(saving)
            self.job.change_host()
            for _ in range(3):
                with self.fence():
                    self.job.train()
        for saving in savings:
            capture = saving.wait().capture
        self.run.wait()
        return capture

    def check(self) -> int:
        """Compares every committed step; returns the bytes that were compared."""
        steps = sorted(self.expected)[-self.chosen.get("keep", SAVES) :]
        assert self.run.steps() == steps
        if "require_key" in self.chosen:
            signer = cairn.Checkpointer(self.place, keeper=None)
            for step in steps:
                signer.sign(step, self.chosen["require_key"])
        compared = 0
        for step in steps:
            opened = self.run.open(step)
            assert differing_files(self.expected[step], opened) == [], f"step {step}, in its files"
            if self.averages is not None:
                assert differing_averages(self.averaged[step], opened, f"{self.chosen['ema']:g}") == [], f"step {step}, averages"
            target = Job(DEVICE, seed=1)
            target.train()
            self.run.load(step, into=target.state)
            assert differing(self.expected[step], target.tensors()) == [], f"step {step}, loaded"
            compared += sum(tensor.nbytes for tensor in self.expected[step].values())
        return compared


@pytest.mark.parametrize("case", CASES, ids=label)
def test_every_two_options_save_the_moment_of_the_call(
    case: tuple[tuple[str, str, Any], ...], tmp_path: Path, tools: Tools, record_property: Any
) -> None:
    try:
        trial = Trial(case, tmp_path, tools)
        record_property("capture", trial.save())
        record_property("compared_bytes", trial.check())
        trial.run.close()
    finally:
        tools.leave_group()


def test_every_option_is_among_them() -> None:
    parameters = inspect.signature(cairn.Checkpointer).parameters
    assert {name for name, _, _ in OPTIONS} == set(parameters)
