"""One rank's part of one tensor, as adapters hand it to the engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from ._containers import leaves

if TYPE_CHECKING:
    from ._behind import Behind
    from ._cairn import Source, Spec
    from ._world import World


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory on a device, by its address. It keeps nothing alive: whoever owns it is among the owners of the walk."""

    device: int
    address: int
    len_bytes: int
    #: Whether it stays as it is until a fence; memory that is nobody else's always does.
    fenced: bool = False
    #: Whose turn it is to change it: what changes earlier is copied earlier.
    turn: int = 0

    @property
    def nbytes(self) -> int:
        """How much it is, by the name that arrays have for it."""
        return self.len_bytes


@dataclass(slots=True)
class Part:
    """A tensor's placement, and this rank's memory of it.

    ``memory`` is a contiguous one-dimensional ``uint8`` array that shares the tensor's memory, or :class:`DeviceMemory` while
    saving, or an array that stands in for it:
    then ``after`` moves what a load has put there to where it belongs, or ``rebuild`` makes the tensor that takes the place
    of one that cannot change. ``key`` is equal for names that share memory.
    """

    spec: Spec
    memory: Any
    strides: tuple[int, ...] | None = None
    after: Callable[[], None] | None = None
    key: object = None
    rebuild: Callable[[], Any] | None = None


@dataclass(slots=True)
class Node:
    """A stateful object taken apart: the tree it consists of, and how it takes a loaded tree back.

    If it ``rebuilds``, what ``restore`` returns takes the object's place.
    """

    tree: Any
    restore: Callable[[Any], Any]
    rebuilds: bool = False


@dataclass
class Context:
    """What adapters may know while a state is walked."""

    world: World
    #: What is being saved or loaded into.
    tree: object
    #: Where a load comes from; ``None`` while saving.
    source: Source | None = None
    #: For adapters to keep things in during one walk.
    notes: dict[str, Any] | None = None
    #: How exactly checkpoint and target must fit.
    strict: bool | Literal["partial"] = True
    #: What is waited for when the walk is over, such as the copies from a device.
    settle: dict[object, Callable[[], object]] = field(default_factory=dict)
    #: What must live until the state is captured.
    owners: list[object] = field(default_factory=list)
    #: What is fetched from devices after the save has returned; ``None`` if nothing is.
    behind: Behind | None = None
    #: For adapters to keep things in from one save to the next; nothing that owns memory.
    kept: dict[object, Any] = field(default_factory=dict)

    @cached_property
    def leaves(self) -> list[tuple[str, object]]:
        """Everything in the tree that is no container, with its path."""
        return list(leaves(self.tree))

    @property
    def loading(self) -> bool:
        """Whether memory will be written to."""
        return self.source is not None


@cache
def replicated(dtype: str, shape: tuple[int, ...], size: int) -> Spec:
    """The placement of a tensor that every rank of a world holds whole."""
    from ._cairn import Spec

    return Spec.replicated(dtype, shape, range(size))


class Adapter(Protocol):
    """What a framework's module offers, as module-level functions."""

    def is_tensor(self, value: object) -> bool:
        """Whether :meth:`part` has an answer."""

    def part(self, value: object, path: str, context: Context) -> Part | None:
        """This rank's part of ``value``, or ``None`` if it is no tensor."""

    def node(self, value: object, path: str, context: Context) -> Node | None:
        """``value`` taken apart, or ``None`` if it has no state of its own."""


class PerRank:
    """A value that belongs to this rank alone, such as the state of its random-number generators.

    A rank that did not exist when the checkpoint was saved keeps what it has.
    """

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"PerRank({self.value!r})"
