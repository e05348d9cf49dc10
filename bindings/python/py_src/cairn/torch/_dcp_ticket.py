"""What the coordinator tells every rank about one save, inside the plan: its name, its step, who writes."""

from __future__ import annotations

import dataclasses
import os
from collections import defaultdict
from dataclasses import dataclass

from torch.distributed.checkpoint.planner import SavePlan

from .._cairn import Run
from .._world import World
from ..errors import StateError


@dataclass(frozen=True)
class Ticket:
    """One rank's admission to one save."""

    session: str
    #: Which save of the session this is.
    number: int
    step: int
    rank: int
    size: int

    @property
    def name(self) -> str:
        """The name of the save, equal on all ranks and never used before."""
        return f"{self.session}-{self.number}"


#: The session of each place this process coordinates saves to, made up when the first one is.
_sessions: dict[str, str] = {}
#: The last save of a session that this process planned, and the last it took part in.
_issued: defaultdict[str, int] = defaultdict(int)
_accepted: defaultdict[str, int] = defaultdict(int)


def issue(plans: list[SavePlan], url: str, step: int | None, rank: int | None) -> list[SavePlan]:
    """The plans with a ticket in each. ``rank`` is given if every rank plans for itself: then there is one plan."""
    if rank is None:
        session, ranks, size = _sessions.setdefault(url, f"dcp-{os.urandom(16).hex()}"), range(len(plans)), len(plans)
    else:
        world = World.current()
        session, ranks, size = f"dcp-{world.session or os.urandom(16).hex()}-{url}", range(rank, rank + 1), world.size
    _issued[session] += 1
    number = _issued[session]
    chosen = next_step(url) if step is None else step
    tickets = [Ticket(session, number, chosen, index, size) for index in ranks]
    return [dataclasses.replace(plan, storage_data=ticket) for plan, ticket in zip(plans, tickets, strict=True)]


def accept(plan: SavePlan, url: str, step: int | None) -> Ticket:
    """This rank's ticket. A planner that caches plans hands out an old one again: then this is the save after the last.

    Raises:
        StateError: if the planner has lost it.
    """
    ticket = plan.storage_data
    if not isinstance(ticket, Ticket):
        raise StateError(
            "the save plan has lost what Cairn's Writer put into it",
            hint="a planner must keep `storage_data` of the plans it is given",
        )
    if ticket.number <= _accepted[ticket.session]:
        # Every rank finds the same step: the next commit cannot happen without this rank.
        chosen = next_step(url) if step is None else step
        ticket = dataclasses.replace(ticket, number=_accepted[ticket.session] + 1, step=chosen)
    _accepted[ticket.session] = ticket.number
    return ticket


def next_step(url: str) -> int:
    """The step after the newest."""
    steps = Run(url, 0, 1, None).steps()
    return steps[-1] + 1 if steps else 0
