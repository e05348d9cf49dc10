"""Finds the newest step that every rank can use, and has all of them use it.

Damage may lie where only one rank reads. So ranks tell each other how it went, through the key-value store that joins them: all of
them go on with the same step, or all of them go back to the one before.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ._logger import logger
from ._world import World
from .errors import Damaged, Error, RankFailed, StepIncomplete, StepNotFound, told

_FINE = "fine"
_DAMAGED = "damaged: "
#: How often ranks have met over a run, which all ranks count alike.
_rounds: defaultdict[tuple[str, str], Iterator[int]] = defaultdict(itertools.count)

Used = TypeVar("Used")


def use_newest(
    world: World,
    url: str,
    newest: Callable[[list[int]], int | None],
    use: Callable[[int], Used],
    *,
    what: str = "load",
    timeout: float | None = None,
) -> tuple[Used, dict[int, str]]:
    """What ``use`` returned for the newest step that no rank finds damaged, and newer steps with what is wrong with them.

    ``newest`` is asked for the newest step that was not tried yet, on rank 0. Ranks wait for each other no longer than ``timeout``.

    Raises:
        StepNotFound: if there is none; its ``skipped`` has those that were tried.
        RankFailed: if another rank could not use it for another reason.
    """
    meeting = _Meeting(world, url, what, timeout)
    skipped: dict[int, str] = {}
    while (step := meeting.choose(list(skipped), newest)) is not None:
        used, damage = meeting.attempt(step, use)
        if not damage:
            return used[0], skipped
        logger.warning("passing over step %d: %s", step, damage)
        skipped[step] = damage
        if world.size > 1 and not meeting.is_joint:
            raise Damaged(
                f"step {step} is damaged: {damage}",
                hint="ranks without a process group cannot agree on an older step: name one on all of them",
            )
    lines = "".join(f"\n  step {step}: {reason}" for step, reason in skipped.items())
    error = StepNotFound(f"`{url}` has no usable checkpoint{lines}")
    error.skipped = skipped
    raise error


def all_or_none(world: World, url: str, work: Callable[[], Used], what: str) -> Used:
    """What ``work`` returns, if it works on every rank; ``what`` it does is a verb.

    Raises:
        RankFailed: if it failed on another one.
    """
    meeting = _Meeting(world, url, what, None)
    used, damage = meeting.attempt("the checkpoint", lambda _: work())
    if damage:
        raise Damaged(damage)
    return used[0]


class _Meeting:
    """One use of a run by all ranks."""

    def __init__(self, world: World, url: str, what: str, timeout: float | None) -> None:
        self.is_joint = world.size > 1 and world.board is not None
        self._world = world
        self._what = what
        self._timeout = timeout
        self._topic = f"{world.session}/{what}/{url}/{next(_rounds[what, url])}"

    def choose(self, tried: list[int], newest: Callable[[list[int]], int | None]) -> int | None:
        """The step to try next. One may be committed or pruned while ranks look, so one of them looks for all."""
        if not self.is_joint:
            return newest(tried)
        topic, chosen = f"{self._topic}/newest/{len(tried)}", dict[str, Any]()
        if self._world.rank == 0:
            try:
                chosen = {"step": newest(tried)}
            except BaseException as error:
                self._world.tell(topic, json.dumps({"failure": told(error)}))
                raise
        chosen = json.loads(self._world.exchange(topic, json.dumps(chosen), self._timeout)[0])
        if "failure" in chosen:
            raise RankFailed(f"rank 0 could not look for a step: {chosen['failure']}", hint="look at that rank's log")
        step: int | None = chosen["step"]
        return step

    def attempt(self, step: Any, use: Callable[[Any], Used]) -> tuple[list[Used], str]:
        """What this rank has of the step, if all ranks could use it; otherwise what is damaged."""
        topic, used = f"{self._topic}/{step}", list[Used]()
        try:
            used.append(use(step))
            outcome = _FINE
        except (Damaged, StepNotFound, StepIncomplete) as error:
            # It may be gone since it was listed, or be known to a keeper of another machine only.
            outcome = _DAMAGED + error.message
        except BaseException as error:
            # Whatever it is, also in a `load_state_dict` of the user's: the others wait for this rank.
            if self.is_joint:
                self._world.tell(topic, told(error))
            raise
        outcomes = self._world.exchange(topic, outcome, self._timeout) if self.is_joint else [outcome]
        for rank, text in enumerate(outcomes):
            if text != _FINE and not text.startswith(_DAMAGED):
                raise RankFailed(f"rank {rank} could not {self._what} {_named(step)}: {text}", hint="look at that rank's log")
        return used, next((text.removeprefix(_DAMAGED) for text in outcomes if text != _FINE), "")


def _named(step: int | str) -> str:
    return f"step {step}" if isinstance(step, int) else step
