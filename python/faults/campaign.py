"""Saves by real processes while real faults strike: kills, hung ranks, cut connections, full disks, rot.

    campaign.py [--rounds N] [--seed S] [--command CAIRN] [--server S3S_FS] [--folder DIR] [--verbose]

Round ``i`` is drawn from seed ``S + i``: where the run lies, how many ranks save it on which layout, what strikes whom and when. After it,
what was reported durable must load bit for bit on another layout, the newest step must load, every rank that lives must have been told
of a failure, others must be able to go on, and a prune must leave nothing behind. A round that fails prints its seed and keeps its files;
``--seed SEED --rounds 1`` runs it again, as far as real processes do the same twice.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import plans
from judge import Promises, look, sweep
from places import Bucket, Folder, SmallDisk
from plans import Plan
from ranks import Ending, Job, Launch, Ranks, apart

#: What a rank may be told when something happens that it is not to blame for.
_REPORTS = {"StoreError", "RankFailed"}


@dataclass
class Round:
    """One round, its run, and what is found wrong."""

    plan: Plan
    place: Folder
    folder: Path
    promises: Promises = field(default_factory=Promises)
    problems: list[str] = field(default_factory=list)
    #: How the save that was struck went on each rank.
    endings: dict[int, Ending] = field(default_factory=dict)

    @property
    def run(self) -> str:
        """The name of the run."""
        return f"run-{self.plan.seed}"

    @property
    def aside(self) -> Path:
        """Where its files lie afterwards, if it fails."""
        return self.folder / self.run

    def launch(self, which: str) -> Launch:
        """The first launch of the run, or the one that goes on."""
        layout = self.plan.layout if which == "first" else self.plan.next_layout
        # New in each campaign: nobody begins a launch of the same name twice.
        session = f"{self.folder.name}-{self.plan.seed}-{which}"
        log = self.folder / f"{self.run}.log"
        place = self.place
        return Launch(
            place.url(self.run), place.options, session, layout, self.plan.seed, self.plan.keep, log, place.hasty_options
        )

    def play(self, command: Path) -> None:
        """From the first save to the last look."""
        with _closing(Ranks.start(self.launch("first"))) as ranks:
            took = self.must_save(ranks, Job(1, 0))
            self.strike(ranks, took)
            if ranks.all_live():
                self.must_save(ranks, Job(3, 0))
        self.look()
        with _closing(Ranks.start(self.launch("next"))) as ranks:
            self.must_save(ranks, Job(4, 0))
        self.look()
        harmed = self.promises.harmed
        self.problems += sweep(command, self.launch("next"), self.place.environment, self.place.folder(self.run), harmed)
        self.look()

    def must_save(self, ranks: Ranks, job: Job) -> float:
        """A save that nothing disturbs, so it succeeds on all ranks; returns how many seconds it took."""
        ranks.begin(job)
        begin = time.monotonic()
        endings = ranks.finish()
        took = time.monotonic() - begin
        self.promises.kept(job.step, job.generation)
        if self.plan.keep is not None:
            self.promises.only(self.plan.keep)
        if len(endings) < len(ranks.pipes):
            self.problems.append(f"step {job.step}: a rank died by itself")
        for rank, ending in endings.items():
            if not ending.is_durable:
                self.problems.append(f"step {job.step}, undisturbed, on rank {rank}: {ending.kind}: {ending.message}")
        return took

    def strike(self, ranks: Ranks, took: float) -> None:
        """The save that something happens to."""
        plan, (step, generation) = self.plan, self.plan.struck
        if plan.fault == plans.ROT:
            self.must_save(ranks, Job(step, generation))
            self.promises.harmed.add(step)
            self.place.rot(self.run, step, random.Random(plan.seed))
            self.endings = {rank: Ending("durable") for rank in range(len(ranks.pipes))}
            return
        self.promises.begun(step, generation)
        if plan.fault == plans.NEARLY_FULL:
            assert isinstance(self.place, SmallDisk)
            self.place.fill(int(plan.moment * plan.len_bytes))
        ranks.begin(Job(step, generation, hasty=True))
        time.sleep(plan.moment * took)
        self.endings = STRIKES[plan.fault](plan, self.place, ranks)
        self.judge_endings(step, generation)

    def judge_endings(self, step: int, generation: int) -> None:
        """Ranks that live are told, and what they are told has a meaning."""
        if any(ending.is_durable for ending in self.endings.values()):
            self.promises.kept(step, generation)
        for rank, ending in self.endings.items():
            if not ending.is_durable and ending.kind not in _REPORTS:
                self.problems.append(f"rank {rank} was told: {ending.kind}: {ending.message}")

    def look(self) -> None:
        """What a reader on another layout finds."""
        launch = replace(self.launch("next"), session="reader", keep=None)
        self.problems += apart(look, launch, self.promises, log=launch.log)


def _kill_one(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    ranks.kill([plan.victim])
    return ranks.finish()


def _kill_all(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    ranks.kill(range(len(ranks.pipes)))
    return ranks.finish()


def _hang(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    ranks.hang(plan.victim)
    endings = ranks.finish(set(range(len(ranks.pipes))) - {plan.victim})
    ranks.go_on(plan.victim)
    return endings | ranks.finish([plan.victim])


def _fill(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    assert isinstance(place, SmallDisk)
    if plan.fault == plans.FILL:
        place.fill()
    endings = ranks.finish()
    place.empty()
    return endings


def _disturb(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    assert isinstance(place, Bucket)
    disturb = place.proxy.cut if plan.fault == plans.CUT else place.proxy.stall
    disturb(plan.seconds)
    endings = ranks.finish()
    disturb(0.0)
    return endings


def _server(plan: Plan, place: Folder, ranks: Ranks) -> dict[int, Ending]:
    assert isinstance(place, Bucket)
    place.kill()
    time.sleep(plan.seconds)
    place.restart()
    return ranks.finish()


STRIKES = {
    plans.KILL_ONE: _kill_one,
    plans.KILL_ALL: _kill_all,
    plans.HANG: _hang,
    plans.FILL: _fill,
    plans.NEARLY_FULL: _fill,
    plans.CUT: _disturb,
    plans.STALL: _disturb,
    plans.SERVER: _server,
}


@contextmanager
def _closing(ranks: Ranks) -> Iterator[Ranks]:
    try:
        yield ranks
    finally:
        ranks.close()


def open_places(stack: ExitStack, folder: Path, server: Path | None) -> dict[str, Folder]:
    """The places that can be had here; says which cannot, and why."""
    places: dict[str, Folder] = {"folder": Folder(folder / "runs")}
    try:
        places["small disk"] = SmallDisk(folder / "disk")
    except OSError as error:
        print(f"no rounds on a small disk: {error}")
    if server is None:
        print("no rounds in a bucket: `--server` names no s3s-fs")
    else:
        places["bucket"] = Bucket(folder / "server", server)
    for place in places.values():
        stack.callback(place.close)
    return places


def main() -> int:
    """Plays all rounds; the exit code says whether all of them held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", type=Path, default=os.environ.get("CAIRN_BIN", "cairn"))
    parser.add_argument("--server", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--verbose", action="store_true", help="tell of rounds that hold, too")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # and take the small disk away
    folder = Path(tempfile.mkdtemp(prefix="cairn-faults-", dir=arguments.folder))
    failed: list[int] = []
    outcomes: Counter[str] = Counter()
    with ExitStack() as stack:
        places = open_places(stack, folder, arguments.server)
        for number in range(1, arguments.rounds + 1):
            played = play(arguments.seed + number - 1, places, folder, arguments.command)
            outcomes[_outcome(played)] += 1
            if played.problems:
                failed.append(played.plan.seed)
            if played.problems or arguments.verbose:
                _tell(played)
            if number % 25 == 0:
                print(f"{number} of {arguments.rounds} rounds, {len(failed)} failed", flush=True)
    for outcome, count in sorted(outcomes.items()):
        print(f"{count:5}  {outcome}")
    print(f"{arguments.rounds} rounds from seed {arguments.seed}: {len(failed)} failed {failed or ''}".rstrip())
    if not failed:
        shutil.rmtree(folder)
    return 1 if failed else 0


def play(seed: int, places: dict[str, Folder], folder: Path, command: Path) -> Round:
    """One round. The files of one that fails are set aside, those of others go."""
    plan = Plan.draw(seed, list(places))
    place = places[plan.place]
    played = Round(plan, place, folder)
    played.play(command)
    if played.problems:
        shutil.move(place.folder(played.run), played.aside)
    else:
        shutil.rmtree(place.folder(played.run))
        (folder / f"{played.run}.log").unlink(missing_ok=True)
    return played


def _outcome(played: Round) -> str:
    """What struck, and how the save that was struck ended."""
    told = {ending.is_durable for ending in played.endings.values()}
    endings = {(): "nobody left to tell", (True,): "durable", (False,): "told of the failure"}
    return f"{played.plan.place}, {played.plan.fault}: {endings.get(tuple(told), 'durable on some ranks')}"


def _tell(played: Round) -> None:
    print(f"{'FAILED ' if played.problems else ''}{played.plan}")
    for rank, ending in sorted(played.endings.items()):
        print(f"  rank {rank}: {ending.kind} {ending.message}")
    for problem in played.problems:
        print(f"  ✗ {problem}")
    if played.problems:
        print(f"  files in {played.aside}; again: --seed {played.plan.seed} --rounds 1")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
