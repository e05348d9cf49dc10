"""Who saves together: this process's rank, how many there are, and the name of the launch."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, Protocol

from . import _cairn
from ._logger import logger
from .errors import RankFailed, StateError

#: Stands for ever: torch counts time-outs in milliseconds.
_LONGEST_S = 365.0 * 24 * 60 * 60


class Board(Protocol):
    """A place where ranks leave each other short messages; torch's key-value stores are one."""

    def set(self, key: str, value: str) -> object:
        """Leaves a message."""

    def get(self, key: str) -> bytes:
        """Waits for a message and takes a copy."""


@dataclass(frozen=True)
class World:
    """One rank of a launch. ``session`` is equal on all ranks and new for every launch."""

    rank: int = 0
    size: int = 1
    session: str | None = None
    local_rank: int | None = None
    local_size: int | None = None
    #: Where this was learnt: "torchrun", "Slurm", "process group" …
    launcher: str = "single process"
    board: Board | None = None
    #: The ranks as the whole launch counts them, if only some of its processes save together.
    members: tuple[int, ...] | None = None
    #: Whether ``session`` was drawn at random for this launch, so that no other can have it; a launcher's names may come again.
    is_unique: bool = False

    @property
    def ranks(self) -> list[int]:
        """All ranks."""
        return list(range(self.size))

    @staticmethod
    def current(process_group: Any = None) -> World:
        """The world this process lives in: its process group if there is one, else what the launcher's variables say."""
        world = _from_process_group(process_group) or _from_paddle() or _from_jax() or _from_launcher()
        logger.info("rank %d of %d (%s)", world.rank, world.size, world.launcher)
        return world

    def tell(self, topic: str, message: str) -> None:
        """Leaves this rank's message without waiting for the others'."""
        if self.board is not None:
            self.board.set(f"cairn/{topic}/{self.rank}", message)

    def exchange(self, topic: str, message: str, timeout: float | None = None) -> list[str]:
        """Every rank's message, in order of rank; needs a board.

        Waits for each no longer than ``timeout`` seconds, if the board is torch's, else as long as the board does.

        Raises:
            RankFailed: if a rank leaves none in time.
        """
        if self.board is None:
            raise StateError("ranks without a process group cannot exchange messages")
        self.tell(topic, message)
        messages = []
        for rank in self.ranks:
            try:
                messages.append(_take(self.board, f"cairn/{topic}/{rank}", timeout))
            except Exception as error:
                raise RankFailed(f"rank {rank} does not answer: {error}", hint="look at that rank's log") from error
        return messages


def _take(board: Board, key: str, timeout: float | None) -> str:
    distributed: Any = sys.modules.get("torch.distributed")
    if timeout is not None and distributed is not None and isinstance(board, distributed.Store):
        store: Any = board
        store.wait([key], timedelta(seconds=min(timeout, _LONGEST_S)))
    return bytes(board.get(key)).decode()


def _from_process_group(group: Any) -> World | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    rank, size = distributed.get_rank(group), distributed.get_world_size(group)
    if rank < 0:
        raise StateError("this process is not in the process group that saves", hint="call nothing on the other ranks")
    members = None if group is None else tuple(distributed.get_process_group_ranks(group))
    if size == 1:
        return World(0, 1, launcher="process group", members=members)
    board = distributed.distributed_c10d._get_process_group_store(group or distributed.group.WORLD)
    launch = os.environ
    local_rank, local_size = launch.get("LOCAL_RANK"), launch.get("LOCAL_WORLD_SIZE")
    return World(
        rank,
        size,
        _common_session(board, rank),
        int(local_rank) if local_rank else None,
        int(local_size) if local_size else None,
        "process group",
        board,
        members,
        _starts_empty(),
    )


def _from_paddle() -> World | None:
    distributed: Any = sys.modules.get("paddle.distributed")
    if distributed is None or not distributed.is_initialized():
        return None
    rank, size = distributed.get_rank(), distributed.get_world_size()
    if size == 1:
        return World(0, 1, launcher="paddle.distributed")
    board = _paddle_store()
    return World(rank, size, _common_session(board, rank), launcher="paddle.distributed", board=board, is_unique=True)


@cache
def _paddle_store() -> Board:
    store: Board = import_module("paddle.base.core").create_or_get_global_tcp_store()
    return store


def _from_jax() -> World | None:
    """The processes of ``jax.distributed``, which counts them without touching a device."""
    state: Any = getattr(sys.modules.get("jax._src.distributed"), "global_state", None)
    if state is None or state.client is None:
        return None
    rank, size = state.process_id, state.num_processes
    if size == 1:
        return World(0, 1, launcher="jax.distributed")
    board = _jax_board(state.client)
    return World(rank, size, _common_session(board, rank), launcher="jax.distributed", board=board, is_unique=True)


@cache
def _jax_board(client: Any) -> Board:
    board: Board = import_module("cairn.jax._board").JaxBoard(client)
    return board


def _from_launcher() -> World:
    rank, size, session, local_rank, local_size, launcher = _cairn.launch()
    board = None
    if size > 1 and session is None:
        board = _agent_store()
        if board is None:
            raise StateError(
                f"this is rank {rank} of {size} ({launcher}), but nothing names the launch",
                hint="call torch.distributed.init_process_group, jax.distributed.initialize or "
                "paddle.distributed.init_parallel_env first, or set CAIRN_SESSION to something new for each launch",
            )
        session = _common_session(board, rank)
    return World(rank, size, session, local_rank, local_size, launcher, board)


def host_key(rank: int) -> str:
    """Where a rank says on the board which machine it is on."""
    return f"cairn/host/{rank}"


def _host() -> str:
    """This machine, and the memory its processes share: containers on one machine may not share it."""
    try:
        with open("/proc/sys/kernel/random/boot_id") as file:
            boot = file.read().strip()
        return f"{boot}/{os.stat('/dev/shm').st_dev}"
    except OSError:
        return os.urandom(16).hex()


#: The boards seen so far with their sessions; kept, so that no other board can be taken for one of them.
_sessions: list[tuple[Board, str]] = []


def _common_session(board: Board, rank: int) -> str:
    """A name that rank 0 makes up once for each board; asking again gives the same."""
    for known, session in _sessions:
        if known is board:
            return session
    board.set(host_key(rank), _host())
    if rank == 0:
        board.set("cairn/session", os.urandom(16).hex())
    session = bytes(board.get("cairn/session")).decode()
    _sessions.append((board, session))
    return session


def _starts_empty() -> bool:
    """Whether the store of a process group is new with each launch. That of torchrun's agent may still have the session of workers that
    were started before under the same number, and a rank could take that for rank 0's."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def _agent_store() -> Board | None:
    """The store that torchrun keeps for its ranks, if this process was started by it and uses torch."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True" or "torch" not in sys.modules:
        return None
    distributed: Any = import_module("torch.distributed")
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefixed: Board = distributed.PrefixStore(f"cairn-{restart}", store)
    return prefixed
