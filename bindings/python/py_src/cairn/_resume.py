"""Finds the newest step that every rank can load, and loads it on all of them.

Damage may lie where only one rank reads. So ranks tell each other how a load went, through the key-value store that joins them: all
of them go on with the same step, or all of them go back to the one before.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from ._checkpoint import Loaded
from ._logger import logger
from ._world import World
from .errors import Damaged, Error, RankFailed, StepIncomplete, StepNotFound

_FINE = "fine"
_DAMAGED = "damaged: "
#: How often ranks have looked for the newest step of a run, which all ranks count alike.
_rounds: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


def load_latest(world: World, url: str, newest: Callable[[list[int]], int | None], load: Callable[[int], Loaded]) -> Loaded:
    """Loads the newest step that no rank finds damaged; ``newest`` is asked for the newest one that was not tried yet.

    Raises:
        StepNotFound: if there is none.
        RankFailed: if another rank could not load for another reason.
    """
    topic = f"{world.session}/load/{url}/{next(_rounds[url])}"
    together = world.size > 1 and world.board is not None
    skipped: dict[int, str] = {}
    while (step := _choose(world, f"{topic}/newest/{len(skipped)}", list(skipped), newest, together)) is not None:
        loaded, damage = _attempt(world, f"{topic}/{step}", step, load, together)
        if loaded is not None:
            loaded.skipped.update(skipped)
            return loaded
        logger.warning("passing over step %d: %s", step, damage)
        skipped[step] = damage
        if world.size > 1 and not together:
            raise Damaged(
                f"step {step} is damaged: {damage}",
                hint="ranks without a process group cannot agree on an older step: name one on all of them",
            )
    lines = "".join(f"\n  step {step}: {reason}" for step, reason in skipped.items())
    raise StepNotFound(f"`{url}` has no usable checkpoint{lines}")


def _choose(
    world: World, topic: str, tried: list[int], newest: Callable[[list[int]], int | None], together: bool
) -> int | None:
    """The step to try next. One may be committed or pruned while ranks look, so one of them looks for all."""
    if not together:
        return newest(tried)
    chosen: dict[str, Any] = {}
    if world.rank == 0:
        try:
            chosen = {"step": newest(tried)}
        except Error as error:
            world.tell(topic, json.dumps({"failure": error.message}))
            raise
    chosen = json.loads(world.exchange(topic, json.dumps(chosen))[0])
    if "failure" in chosen:
        raise RankFailed(f"rank 0 could not look for a step: {chosen['failure']}", hint="look at that rank's log")
    step: int | None = chosen["step"]
    return step


def _attempt(
    world: World, topic: str, step: int, load: Callable[[int], Loaded], together: bool
) -> tuple[Loaded | None, str]:
    """What this rank loaded, if all ranks could; otherwise what is damaged."""
    try:
        loaded, outcome = load(step), _FINE
    except (Damaged, StepNotFound, StepIncomplete) as error:
        # It may be gone since it was listed, or be known to a keeper of another machine only.
        loaded, outcome = None, _DAMAGED + error.message
    except Error as error:
        if together:
            world.tell(topic, error.message)
        raise
    outcomes = world.exchange(topic, outcome) if together else [outcome]
    for rank, text in enumerate(outcomes):
        if text != _FINE and not text.startswith(_DAMAGED):
            raise RankFailed(f"rank {rank} could not load step {step}: {text}", hint="look at that rank's log")
    damage = next((text.removeprefix(_DAMAGED) for text in outcomes if text != _FINE), "")
    return (None, damage) if damage else (loaded, "")
