"""Whether ranks that seem to hold the same tensor do, and what is stored where they need not.

A plain tensor counts as the same on all ranks, and every rank writes some of it. If it is not the same, what is stored is a mixture that no
rank ever had. So ranks compare it at the first save: each takes a digest of what it holds, tells the others in the background, and the step
is not committed before all agree. Small tensors are compared whole, of larger ones some blocks: tensors of which each rank trains its own, or
holds its own slice, differ everywhere.
"""

from __future__ import annotations

import json
import math
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal

from ._cairn import Spec
from ._logger import logger
from ._part import DeviceMemory, Part, replicated
from ._tree import Flat
from ._world import World
from .errors import StateError, told

#: What holds of a tensor that every rank holds whole: it is the same everywhere, rank 0's counts, or each rank keeps its own.
Rule = Literal["same", "rank 0", "per rank"]
RULES: tuple[Rule, ...] = ("same", "rank 0", "per rank")
#: What ``replicas=`` may be: a rule for all tensors, or one for each pattern.
Replicas = Rule | Mapping[str, Rule]

#: The last word of buffers that data parallelism keeps on each rank, where a module's own list of buffers is not at hand.
_STATISTICS = frozenset(("running_mean", "running_var", "num_batches_tracked"))
#: What comes before the rank in such a name.
_OWN = "$rank"
#: A tensor with at most so many blocks is compared whole.
_BLOCKS, _BLOCK_BYTES = 4, 4096
_POLL_SECONDS = (0.002, 0.1)
_HINT = (
    "is each rank meant to have its own? Then say so: Checkpointer(replicas={\"…\": \"per rank\"}) keeps all of them, \"rank 0\" keeps rank 0's; "
    "values of one rank go into cairn.PerRank. Else make them equal first, or hand over the tensors that say where their shards lie"
)


def checked_rules(replicas: Replicas | None) -> dict[str, Rule]:
    """The rules by pattern.

    Raises:
        StateError: if one is no rule.
    """
    rules: dict[str, Any] = {"*": replicas} if isinstance(replicas, str) else dict(replicas or {})
    for pattern, rule in rules.items():
        if rule not in RULES:
            choices = ", ".join(f'"{known}"' for known in RULES)
            raise StateError(f"replicas: `{pattern}` is to be {rule!r}, which is no choice", hint=f"use {choices}")
    return rules


class Placer:
    """Places what need not be the same on all ranks."""

    def __init__(self, rules: dict[str, Rule]) -> None:
        self._rules = rules
        self._token: object = None
        self._names: set[str] = set()
        self._rule: dict[str, Rule] = {}
        self._stored: dict[str, str] = {}
        self._has_told = False

    def place(self, flat: Flat, buffers: Iterable[str], holders: Mapping[str, list[int]] | None, world: World) -> None:
        """Has one rank store what is not the same on all, or each its own."""
        if flat.token is None or flat.token is not self._token:  # else these parts are placed already
            self._token = flat.token
            if self._names != flat.parts.keys():
                own = set(buffers)
                self._names = set(flat.parts)
                self._rule = {name: rule for name in flat.parts if (rule := self.rule(name, name in own)) != "same"}
                each = [name for name, rule in self._rule.items() if rule == "per rank"]
                self._stored = {name: name_on(world.rank, name) for name in each if _is_whole(flat.parts[name], world.ranks, world)}
                self._tell()
            for name in self._rule:
                ranks = (holders or {}).get(name, world.ranks)
                part = flat.parts[name]
                if _is_whole(part, ranks, world):
                    flat.parts[name] = _on_one(part, world.rank if name in self._stored else ranks[0], world)
        flat.stored = self._stored

    def _tell(self) -> None:
        names = [name for name, rule in self._rule.items() if rule == "rank 0"]
        if names and not self._has_told:
            self._has_told = True
            logger.info("need not be the same on all ranks, so one rank's are stored: %s", _shown(names))

    def rule(self, name: str, is_buffer: bool) -> Rule:
        """What holds of a tensor."""
        chosen = next((rule for pattern, rule in self._rules.items() if fnmatchcase(name, pattern)), None)
        if chosen is not None:
            return chosen
        return "rank 0" if is_buffer or name.rpartition(".")[2] in _STATISTICS else "same"


def _is_whole(part: Part, ranks: list[int], world: World) -> bool:
    """Whether every rank of those that name a tensor seems to hold it whole."""
    spec, shape = part.spec, tuple(part.spec.shape)
    return 0 not in shape and spec in (replicated(spec.dtype, shape, world.size), Spec.replicated(spec.dtype, shape, ranks))


def _on_one(part: Part, rank: int, world: World) -> Part:
    """A tensor that is stored by one rank alone."""
    memory = part.memory if world.rank == rank else _nothing()
    return replace(part, spec=Spec.replicated(part.spec.dtype, tuple(part.spec.shape), [rank]), memory=memory)


def _nothing() -> Any:
    import numpy as np

    return np.empty(0, dtype=np.uint8)


def name_on(rank: int, name: str) -> str:
    """The name by which a rank stores its own of a tensor."""
    return f"{name}.{_OWN}{rank}"


def kept_apart(names: Iterable[str]) -> dict[str, set[int]]:
    """Of the names in a checkpoint those of tensors that each rank has stored for itself, with these ranks."""
    found: dict[str, set[int]] = {}
    for stored in names:
        name, _, last = stored.rpartition(".")
        if last.startswith(_OWN) and last[len(_OWN) :].isdecimal():
            found.setdefault(name, set()).add(int(last[len(_OWN) :]))
    return found


class Comparison:
    """One comparison of what the ranks hold, which goes on in the background.

    ``is_strict`` says that this rank's save may fail for it; if any rank says so, all do.
    """

    def __init__(self, world: World, topic: str, parts: Mapping[str, Part], timeout: float, *, is_strict: bool) -> None:
        self._world = world
        self.topic = topic
        self._timeout = timeout
        self._is_strict = is_strict
        self._samples = _Samples(parts, world)
        self._done = threading.Event()
        self._problem: str | None = None
        self._is_settled = False

    def start(self) -> None:
        """Begins to compare."""
        threading.Thread(target=self._run, name="cairn-replicas", daemon=True).start()

    def outcome(self) -> str | None:
        """What is wrong, once that is known: the save waits for this before it counts."""
        self._done.wait()
        return self._problem

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to compare. It is the same on all ranks."""
        self._done.wait()
        return self._is_settled

    def _run(self) -> None:
        try:
            self._compare()
        except Exception as error:
            self._problem = f"the ranks could not compare what they hold: {told(error)}"
        finally:
            self._done.set()

    def _compare(self) -> None:
        self._world.tell(self.topic, json.dumps([self._is_strict, self._samples.digests()]))
        heard = [json.loads(text) for text in gather(self._world, self.topic, self._timeout)]
        if any(message is None for message in heard):
            return  # a rank has given this save up
        problem = differences([digests for _, digests in heard])
        is_strict = any(strict for strict, _ in heard)
        self._is_settled = problem is None or not is_strict
        if problem is not None and is_strict:
            self._problem = f"{problem}\nhint: {_HINT}"
        elif problem is not None:
            logger.warning("%s\nhint: %s", problem, _HINT)


def withdraw(world: World, topic: str) -> None:
    """Tells the ranks that compare that this one does not."""
    world.tell(topic, "null")


class _Samples:
    """Copies of some bytes of every tensor of which other ranks hold the same."""

    def __init__(self, parts: Mapping[str, Part], world: World) -> None:
        self._held: dict[str, Any] = {}
        self._on_device: list[tuple[str, Any]] = []
        shared: dict[Spec, bool] = {}
        for name, part in parts.items():
            spec = part.spec
            if spec not in shared:
                shared[spec] = _is_shared(spec, world)
            if not shared[spec]:
                continue
            # Of a tensor that is cut along some axes, those hold the same that have the same piece.
            is_whole = spec == replicated(spec.dtype, tuple(spec.shape), world.size)
            key = name if is_whole else f"{name} {spec.pieces(world.rank)}"
            if isinstance(part.memory, DeviceMemory):
                self._on_device.append((key, part.memory))
            elif hasattr(part.memory, "tobytes") and part.strides is None:
                self._held[key] = _sample(part.memory)
        self._fetch = _fetched(self._on_device)

    def digests(self) -> dict[str, int]:
        """The digest of each sample."""
        held, self._held = self._held, {}
        found = {name: zlib.crc32(sample) for name, sample in held.items()}
        for name, sample in self._fetch():
            found[name] = zlib.crc32(sample)
        return found


def _is_shared(spec: Spec, world: World) -> bool:
    """Whether other ranks may hold exactly what this one does: all of them together hold more than there is."""
    if "listed(" in str(spec):
        return False
    ranks = spec.ranks()
    local = spec.local_shape(world.rank) if world.rank in ranks else None
    return local is not None and len(ranks) * math.prod(local) >= 2 * math.prod(spec.shape) > 0


def _sample(memory: Any) -> bytes:
    """All of a small tensor, and blocks of a large one from its first byte to its last."""
    if memory.nbytes <= _BLOCKS * _BLOCK_BYTES:
        return bytes(memory.tobytes())
    return b"".join(memory[start : start + _BLOCK_BYTES].tobytes() for start in _starts(memory.nbytes))


def _starts(len_bytes: int) -> list[int]:
    last = len_bytes - _BLOCK_BYTES
    return [last * block // (_BLOCKS - 1) for block in range(_BLOCKS)]


def _fetched(on_device: list[tuple[str, DeviceMemory]]) -> Callable[[], list[tuple[str, bytes]]]:
    """Copies samples on their devices, in the order of their work, to be fetched later."""
    if not on_device:
        return list
    from .torch import _samples

    return _samples.copied([(name, memory, _ranges(memory.len_bytes)) for name, memory in on_device])


def _ranges(len_bytes: int) -> list[tuple[int, int]]:
    if len_bytes <= _BLOCKS * _BLOCK_BYTES:
        return [(0, len_bytes)]
    return [(start, start + _BLOCK_BYTES) for start in _starts(len_bytes)]


def gather(world: World, topic: str, timeout: float) -> list[str]:
    """Every rank's message, without holding the board while it waits: other threads may need it.

    Raises:
        TimeoutError: if a rank leaves none in time.
    """
    board: Any = world.board
    keys = [f"cairn/{topic}/{rank}" for rank in world.ranks]
    deadline, pause = time.monotonic() + timeout, _POLL_SECONDS[0]
    while hasattr(board, "check") and not board.check(keys):
        if time.monotonic() > deadline:
            raise TimeoutError("a rank has not said what it holds")
        time.sleep(pause)
        pause = min(pause * 2, _POLL_SECONDS[1])
    return [bytes(board.get(key)).decode() for key in keys]


def differences(told: list[dict[str, int]]) -> str | None:
    """Which tensors are not the same on the ranks that hold them, in words."""
    found: dict[str, dict[int, list[int]]] = {}
    for rank, digests in enumerate(told):
        for name, digest in digests.items():
            found.setdefault(name, {}).setdefault(digest, []).append(rank)
    unlike = {name: list(by_digest.values()) for name, by_digest in found.items() if len(by_digest) > 1}
    if not unlike:
        return None
    lines = [f"`{name}`: {_groups(groups)}" for name, groups in sorted(unlike.items())]
    more = f"\n  … and {len(lines) - 20} more" if len(lines) > 20 else ""
    return "tensors that every rank holds whole are not the same on all of them:" + "".join(f"\n  {it}" for it in lines[:20]) + more


def _groups(groups: list[list[int]]) -> str:
    def some(ranks: list[int]) -> str:
        return ", ".join(map(str, ranks[:4])) + (" …" if len(ranks) > 4 else "")

    groups = sorted(groups)
    if len(groups) == sum(map(len, groups)) > 2:
        return "every rank has its own"
    return "; ".join(f"rank{'s' if len(group) > 1 else ''} {some(group)}" for group in groups[:4]) + " differ"


def _shown(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
