"""What must hold of a run, whatever happened to it."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import cairn
import slices
from ranks import Launch, checkpointer
from slices import Layout

#: What a reader may say of a step that was harmed.
_DAMAGE = (cairn.Damaged, cairn.StepNotFound, cairn.StepIncomplete)


@dataclass
class Promises:
    """What ranks were told about the steps of a run."""

    #: Step → the generations it may hold. If it may also be missing, -1 is among them.
    steps: dict[int, set[int]] = field(default_factory=dict)
    #: The steps that were harmed: a load may refuse them, but not get anything wrong.
    harmed: set[int] = field(default_factory=set)

    def begun(self, step: int, generation: int) -> None:
        """Somebody may commit this."""
        self.steps.setdefault(step, {-1}).add(generation)

    def kept(self, step: int, generation: int) -> None:
        """Somebody was told that this is safe."""
        self.steps[step] = {generation}

    def only(self, newest: int) -> None:
        """Older steps than the ``newest`` that there may be can be gone."""
        for step in sorted(self.steps)[:-newest]:
            self.steps[step].add(-1)


def look(launch: Launch, promises: Promises) -> list[str]:
    """Everything that is wrong with what readers find, on the layout of the launch and on one rank."""
    steps = cairn.Checkpointer(launch.url, world=cairn.World(), storage_options=launch.options).steps()
    promised = {step for step, held in promises.steps.items() if -1 not in held}
    problems = [f"step {step} is lost" for step in sorted(promised - promises.harmed - set(steps))]
    good = []
    for step in steps:
        found = _load(launch, step, promises)
        problems += found
        if not found and step not in promises.harmed:
            good.append(step)
    return problems + _load_latest(launch, good, promises)


def _load(launch: Launch, step: int, promises: Promises) -> list[str]:
    """Loads a step on every rank."""
    problems = []
    for rank in range(launch.layout.ranks):
        target = slices.blank(launch.layout, rank)
        try:
            checkpointer(launch, rank).load(step, into=target)
        except cairn.Error as error:
            if step not in promises.harmed or not isinstance(error, _DAMAGE):
                problems.append(f"rank {rank} cannot load step {step}: {error}")
            continue
        problems += _compare(target, launch.layout, rank, launch.seed, step, promises)
    return problems


def _load_latest(launch: Launch, good: list[int], promises: Promises) -> list[str]:
    """Loads the newest step on one rank: it is the newest good one, or a newer one that was harmed where it does not matter."""
    layout = launch.layout.whole()
    target = slices.blank(layout, 0)
    run = cairn.Checkpointer(launch.url, world=cairn.World(), storage_options=launch.options)
    try:
        step = run.load(into=target).step
    except cairn.Error as error:
        if isinstance(error, cairn.StepNotFound) and not good:
            return []
        return [f"`latest` loads nothing, but {good} are good: {error}"]
    if step is None or (good and step < good[-1]):
        return [f"`latest` is {step}, but {good} are good"]
    return _compare(target, layout, 0, launch.seed, step, promises)


def _compare(target: dict[str, object], layout: Layout, rank: int, seed: int, step: int, promises: Promises) -> list[str]:
    generations = promises.steps.get(step, set())
    if target["generation"] not in generations:
        return [f"step {step} holds generation {target['generation']}, and not one of {generations}"]
    wrong = slices.difference(target, layout, rank, seed, step)
    return [wrong] if wrong else []


def sweep(command: Path, launch: Launch, environment: dict[str, str], folder: Path, harmed: set[int]) -> list[str]:
    """What a prune leaves of saves that never ended."""
    prune = [str(command), "prune", launch.url, "--incomplete", "0s", "--json"]
    found: dict[str, list[str]] = {}
    for arguments in (["--yes"], ["--dry-run"]):
        done = subprocess.run([*prune, *arguments], env=os.environ | environment, capture_output=True, text=True)
        if done.returncode != 0:
            return [f"prune ended with {done.returncode}: {done.stderr}"]
        found = json.loads(done.stdout)
    problems = [f"prune left {left}" for left in (found["leftovers"], found["uploads"]) if left]
    for step in folder.glob("step-*"):
        # A server may leave empty folders of objects that are gone.
        attempts = [path.name for path in step.iterdir() if any(file.is_file() for file in path.rglob("*"))]
        if len(attempts) > (step / "COMMIT").exists() and int(step.name.removeprefix("step-")) not in harmed:
            problems.append(f"prune left {attempts} in {step.name}")
    return problems
