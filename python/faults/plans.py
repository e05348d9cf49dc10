"""What happens in a round of the campaign, drawn from its seed before anything happens."""

from __future__ import annotations

import random
from dataclasses import dataclass

from slices import Layout

KILL_ONE, KILL_ALL, HANG, ROT = "a rank killed", "all ranks killed", "a rank hung", "rot"
FILL, NEARLY_FULL = "the disk filled", "the disk nearly full"
CUT, STALL, SERVER = "connections cut", "connections stalled", "the server killed"

_ANYWHERE = [KILL_ONE, KILL_ALL, HANG, ROT]
#: What can happen where.
FAULTS = {"folder": _ANYWHERE, "small disk": [KILL_ONE, FILL, NEARLY_FULL], "bucket": [*_ANYWHERE, CUT, STALL, SERVER]}
#: How often each place is drawn. A save to a bucket takes longest.
WEIGHTS = {"folder": 5, "small disk": 2, "bucket": 3}


@dataclass(frozen=True)
class Plan:
    """One round: ranks save a step, the fault strikes while they save again, other ranks on another layout go on."""

    seed: int
    place: str
    fault: str
    layout: Layout
    #: The layout of those who come after.
    next_layout: Layout
    #: Which rank it strikes, where it strikes one.
    victim: int
    #: When it strikes: 1 is as late as the save before took. Later saves are quicker.
    moment: float
    #: How long it lasts, where it does.
    seconds: float
    #: Whether the save that is struck replaces the step before.
    replaces: bool
    #: How many steps stay, if not all of them.
    keep: int | None

    @staticmethod
    def draw(seed: int, places: list[str]) -> Plan:
        """The plan of a seed, where only some places are there."""
        rng = random.Random(seed)
        place = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        if place not in places:
            place = rng.choice(places)
        largest = 12.0 if place == "small disk" else 14.0
        shapes = {name: (int(2 ** rng.uniform(0, largest)), 256) for name in ("embedding", "head")} | {"norm": (1, 64)}
        ranks = rng.randint(1, 4)
        return Plan(
            seed=seed,
            place=place,
            fault=rng.choice(FAULTS[place]),
            layout=Layout.draw(rng, ranks, shapes),
            next_layout=Layout.draw(rng, rng.randint(1, 4), shapes),
            victim=rng.randrange(ranks),
            moment=1.2 * rng.random() ** 2,
            seconds=rng.choice([0.05, 0.5, 3.0, 8.0]),
            replaces=rng.random() < 0.25,
            keep=rng.choice([None, None, 2]),
        )

    @property
    def len_bytes(self) -> int:
        """How large the state is."""
        return sum(4 * rows * columns for rows, columns in self.layout.shapes().values())

    @property
    def struck(self) -> tuple[int, int]:
        """Step and generation of the save that is struck."""
        return (1, 1) if self.replaces else (2, 0)

    def __str__(self) -> str:
        layouts = f"{self.layout.mesh} to {self.next_layout.mesh}"
        whom = f" (rank {self.victim})" if self.fault in (KILL_ONE, HANG) else ""
        more = [f"keep {self.keep}"] * (self.keep is not None) + ["replaces"] * self.replaces
        return ", ".join([f"seed {self.seed}: {self.place}", self.fault + whom, f"at {self.moment:.2f}", layouts, *more])
