"""Ranks of a launch: processes that save when they are told to, and tell how it went."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import cairn
import slices
from slices import Layout

_fork = multiprocessing.get_context("fork")
#: Whoever is looked at this many times, a second apart, and says nothing hangs. Time in which this process stands still does not count.
_LOOKS = 120
#: How long ranks wait for each other when one of them will not come, and when all will.
HASTY_S, PATIENT_S = 2.0, 1000.0


@dataclass
class Launch:
    """What the ranks of a launch have in common."""

    url: str
    options: dict[str, str]
    session: str
    layout: Layout
    seed: int
    keep: int | None
    log: Path
    #: Settings for saves that may fail.
    hasty_options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """One save of all ranks."""

    step: int
    generation: int
    hasty: bool = False

    @property
    def replaces(self) -> bool:
        """Whether the step is there already."""
        return self.generation > 0


@dataclass
class Ending:
    """How a save went on one rank."""

    kind: str
    message: str = ""

    @property
    def is_durable(self) -> bool:
        """Whether the rank was told that the step is safe."""
        return self.kind == "durable"


@dataclass
class Ranks:
    """The processes of a launch."""

    launch: Launch
    processes: list[Any] = field(default_factory=list)
    pipes: list[Connection] = field(default_factory=list)

    @staticmethod
    def start(launch: Launch) -> Ranks:
        """Forks one process for each rank."""
        ranks = Ranks(launch)
        for rank in range(launch.layout.ranks):
            pipe, theirs = _fork.Pipe()
            process = _fork.Process(target=_main, args=(launch, rank, theirs), daemon=True)
            process.start()
            theirs.close()
            ranks.processes.append(process)
            ranks.pipes.append(pipe)
        return ranks

    def begin(self, job: Job) -> None:
        """Has all ranks save, and returns when all of them are about to."""
        for pipe in self.pipes:
            pipe.send(job)
        for pipe in self.pipes:
            assert pipe.recv() == "saving"

    def finish(self, ranks: Iterable[int] | None = None) -> dict[int, Ending]:
        """How the save went on each rank that lived long enough to tell."""
        left = set(range(len(self.pipes))) if ranks is None else set(ranks)
        endings: dict[int, Ending] = {}
        while left:
            ready = _look_at([self.pipes[rank] for rank in left])
            if not ready:
                return endings | {rank: Ending("hangs") for rank in left}
            for rank in [rank for rank in left if self.pipes[rank] in ready]:
                left.discard(rank)
                try:
                    endings[rank] = self.pipes[rank].recv()
                except (EOFError, OSError):  # killed, perhaps in the middle of a word
                    pass
        return endings

    def kill(self, ranks: Iterable[int]) -> None:
        """Ends ranks as a failing machine does."""
        for rank in ranks:
            self.processes[rank].kill()
        for rank in ranks:
            self.processes[rank].join()

    def all_live(self) -> bool:
        """Whether nobody was killed."""
        return all(process.is_alive() for process in self.processes)

    def hang(self, rank: int) -> None:
        """Stops a rank where it is."""
        os.kill(self.processes[rank].pid, signal.SIGSTOP)

    def go_on(self, rank: int) -> None:
        """Lets a rank that hung go on."""
        os.kill(self.processes[rank].pid, signal.SIGCONT)

    def close(self) -> None:
        """Ends all ranks."""
        self.kill(range(len(self.processes)))
        for pipe in self.pipes:
            pipe.close()


def checkpointer(launch: Launch, rank: int, *, hasty: bool = False) -> cairn.Checkpointer:
    """A rank's access to the run."""
    return cairn.Checkpointer(
        launch.url,
        world=cairn.World(rank, launch.layout.ranks, launch.session),
        ranks="differ" if launch.layout.differs else "same",
        commit_timeout=HASTY_S if hasty else PATIENT_S,
        keep=None if launch.keep is None else cairn.Keep(last=launch.keep),
        storage_options=launch.options | (launch.hasty_options if hasty else {}),
    )


def _main(launch: Launch, rank: int, pipe: Connection) -> None:
    _log_to(launch.log)
    patient, hasty = checkpointer(launch, rank), checkpointer(launch, rank, hasty=True)
    while True:
        job: Job = pipe.recv()
        state = slices.state(launch.layout, rank, launch.seed, job.step, job.generation)
        pipe.send("saving")
        pipe.send(_save(hasty if job.hasty else patient, job, state))


def _save(run: cairn.Checkpointer, job: Job, state: dict[str, Any]) -> Ending:
    try:
        run.save(job.step, state, replace=job.replaces).wait(progress=False)
        run.wait()  # for pruning
    except cairn.Error as error:
        return Ending(type(error).__name__, str(error))
    except BaseException as error:  # what nobody may see
        return Ending("unexpected", repr(error))
    return Ending("durable")


def apart(work: Any, *arguments: Any, log: Path) -> Any:
    """What ``work`` returns in a process of its own, so that this one stays free of threads and can fork."""
    pipe, theirs = _fork.Pipe()

    def main() -> None:
        _log_to(log)
        theirs.send(work(*arguments))

    process = _fork.Process(target=main, daemon=True)
    process.start()
    theirs.close()
    try:
        if not _look_at([pipe]):
            return [f"{work.__name__} hangs"]
        return pipe.recv()
    except EOFError:
        return [f"{work.__name__} died: see {log}"]
    finally:
        process.kill()
        process.join()
        pipe.close()


def _look_at(pipes: list[Connection]) -> list[Any]:
    """The pipes that have something to say."""
    return next(filter(None, (wait(pipes, 1.0) for _ in range(_LOOKS))), [])


def _log_to(path: Path) -> None:
    with open(path, "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    sys.stdout = sys.stderr
