"""The plain values of a checkpoint: those that all ranks share and, where ranks differ, those that only some of them had."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._cairn import Source
    from ._tree import Flat
    from ._world import World

#: Among the shared values: that ranks have more of them. Among those of a rank: its own.
OWN_VALUES = "$values"


def keep_own_values(flat: Flat, world: World) -> None:
    """Makes every rank keep its values, because the engine takes the shared ones from the first."""
    if world.rank == 0:
        flat.values[OWN_VALUES] = True
    else:
        flat.rank_values[OWN_VALUES] = flat.values


def stored_values(source: Source) -> list[dict[str, Any]]:
    """The encoded values that all ranks share, by path; then those that single ranks had, in order of rank."""
    shared = json.loads(source.values())
    if shared.pop(OWN_VALUES, None) is None:
        return [shared]
    found = (source.rank_values(rank) for rank in range(1, source.world_size))
    return [shared, *(json.loads(text).get(OWN_VALUES, {}) for text in found if text is not None)]
