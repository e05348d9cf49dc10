"""Saves and loads the steps of one run."""

from __future__ import annotations

import atexit
import itertools
import json
import operator
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from types import TracebackType
from typing import Any, Literal

from . import _cairn
from ._agreement import Holders, agree, refuse
from ._checkpoint import METRICS, Checkpoint, Explained, Loaded, Strict
from ._fences import POLICIES, Fences, Policy
from ._handover import Handover
from ._logger import logger
from ._part import Context
from ._resume import load_latest
from ._retention import Keep, Pruner
from ._saving import Saving
from ._shared import keep_own_values
from ._recall import Recall
from ._tree import Flat
from ._values import NotPlain, encode, refused
from ._world import World
from .errors import Cancelled, Damaged, Error, RankFailed, RanksDisagree, Skipped, StateError, StepNotFound

_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
#: How many objects of this process have saved to a run, which all ranks count alike.
_savers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class Checkpointer:
    """One rank's access to a run: saves in the background, opens and loads what is committed.

    >>> checkpointer = cairn.Checkpointer("runs/7b", keep=cairn.Keep(last=3, every=1000))
    >>> checkpointer.save(step, {"model": model, "optim": optimizer})     # returns when the state is captured
    >>> checkpointer.load(into={"model": model, "optim": optimizer})      # newest good step, any layout

    Args:
        url: where the run lies: a path or a ``file://`` URL.
        keep: which steps stay; without it, all of them.
        world: this process's rank and world; found in its process group or its launcher's variables if not given.
        process_group: the torch process group whose ranks save together, if not all of them.
        ranks: ``"same"`` if all ranks name the same tensors (data and tensor parallelism), ``"differ"`` if each names its own
            (pipeline stages, experts). With ``"same"`` a tensor that only some ranks name is refused before anything is
            written; with ``"differ"`` a load does not mind that the checkpoint has more than this rank names.
        commit_timeout: seconds a rank waits for the others before it gives up; ``float("inf")`` never does.
        staging_bytes: the most memory for captured state; without a limit as much as the rank writes.
        scratch_bytes: memory on each device for copies that leave the training stream at once, so that even short steps do not wait.
        fence: who says when tensors on a device may change after a save. ``"auto"``: optimizers in the state do, before their step;
            what they do not own is copied before anything that comes after the save. ``"manual"``: you do, with :meth:`fence`.
            ``"none"``: everything is copied before anything that comes after the save.
        overlap: what happens to a save while the one before is being written: it ``"wait"``\\ s, is passed over (``"skip"``), or is
            captured beside it as far as staging memory goes (``"queue"``).
        read_twice: reads tensors on a device twice before they may change, and fails the save if they did.
        bytes_per_second: a cap for writing, which backs off while training steps take longer than usual.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        keep: Keep | None = None,
        world: World | None = None,
        process_group: Any = None,
        ranks: Literal["same", "differ"] = "same",
        commit_timeout: float = 600.0,
        staging_bytes: int | None = None,
        scratch_bytes: int = 0,
        fence: Policy = "auto",
        overlap: Literal["wait", "skip", "queue"] = "wait",
        read_twice: bool = False,
        bytes_per_second: int | None = None,
    ) -> None:
        _choose("ranks", ranks, ("same", "differ"))
        _choose("fence", fence, POLICIES)
        _choose("overlap", overlap, ("wait", "skip", "queue"))
        if not commit_timeout >= 0:
            raise StateError(
                f"commit_timeout={commit_timeout} is not a time to wait",
                hint="give seconds, 0 or more; `float('inf')` waits for ever",
            )
        self._url = os.fspath(url)
        self._pruner = None if keep is None else Pruner(keep)
        self._world = world
        self._group = process_group
        self._ranks_differ = ranks == "differ"
        self._options: dict[str, Any] = {
            "commit_timeout": commit_timeout,
            "staging_bytes": staging_bytes,
            "scratch_bytes": scratch_bytes,
            "overlap": overlap,
            "read_twice": read_twice,
            "bytes_per_second": bytes_per_second,
        }
        self._fences = Fences(fence)
        if bytes_per_second is not None:
            self._fences.observe = self._observe
        self._writer: _cairn.Run | None = None
        self._reader: _cairn.Run | None = None
        self._saving: Saving | None = None
        self._holders: Holders | None = None
        self._recall = Recall()
        self._handed: Handover | None = None
        self._process = os.getpid()
        _open.add(self)

    @property
    def url(self) -> str:
        """Where the run lies."""
        return self._url

    @property
    def world(self) -> World:
        """This process's rank and world."""
        if self._world is None:
            self._world = World.current(self._group)
        return self._world

    @property
    def _run(self) -> _cairn.Run:
        """The run as a reader sees it: one rank may look while the others do not."""
        if self._reader is None:
            self._reader = _cairn.Run(self._url, 0, 1, None)
        return self._reader

    def _saving_run(self) -> _cairn.Run:
        """The run as all ranks save it together. Each object that saves has a session name of its own."""
        if self._writer is None:
            world, session = self.world, None
            if world.session is not None:
                session = f"{world.session}-{next(_savers[self._url])}"
            self._writer = _cairn.Run(self._url, world.rank, world.size, session, **self._options)
        return self._writer

    def save(
        self,
        step: int,
        state: Any,
        *,
        blocking: bool = False,
        metrics: Mapping[str, float] | None = None,
        tags: Sequence[str] = (),
        replace: bool = False,
        assets: Mapping[str, bytes] | None = None,
    ) -> Saving:
        """Saves ``state`` as ``step``. Returns when it is captured and may change; the rest goes on in the background.

        ``state`` is a tree of dicts, lists and tuples with tensors, stateful objects and plain values. Every rank of the world
        saves the same steps in the same order, and no rank waits for another here.

        Raises:
            StateError: if something in the state cannot be kept; the message gives its path.
            StepExists: if the step is committed already and ``replace`` is not given.
            cairn.Error: the failure of the save before, if nobody looked at it.
        """
        number = _step(step)
        try:
            flat = self._prepare(state, metrics)
        except Error as error:
            self._give_up(number, error)
            raise
        self._prune()
        self._warn_of_unchanged()
        native = self._saving_run().save(
            number,
            *self._handover.of(flat, state),
            json.dumps(flat.values),
            json.dumps(flat.rank_values),
            list(tags),
            streams=self._fences.streams(),
            owners=flat.owners,
            watch=self._fences.watch(flat),
            replace=replace,
            assets={} if assets is None else dict(assets),
        )
        self._fences.add(native)
        self._saving = Saving(native)
        if blocking:
            self._saving.wait()
        return self._saving

    def fence(self) -> AbstractContextManager[None]:
        """Waits until the state handed to :meth:`save` may change; on a device, has later work wait there instead.

        Optimizers in the state do this before their step. Whatever else changes saved tensors on a device does it first:

        >>> with checkpointer.fence():
        ...     weights.mul_(0.9)
        """
        self._fences.pass_all()
        return nullcontext()

    def prepare(self, state: Any, *, blocking: bool = False) -> None:
        """Makes memory ready for states like this one, so that the first save is as quick as the others.

        That goes on in the background unless ``blocking``; a save that comes earlier waits for what it needs.
        """
        flat = self._recall.flatten(state, Context(self.world, state, None, {}))
        outline, memory = self._handover.of(flat, state)
        run, streams = self._saving_run(), self._fences.streams()
        thread = threading.Thread(target=_make_ready, args=(run, outline, memory, streams), name="cairn-prepare", daemon=True)
        thread.start()
        if blocking:
            thread.join()

    def release(self) -> None:
        """Frees memory that no save uses, on the host and on devices. The next save takes it anew."""
        if self._writer is not None:
            self._writer.release()

    def load(
        self,
        step: int | Literal["latest"] = "latest",
        *,
        into: Any,
        strict: Strict = True,
        recipe: None = None,
        verify: bool = True,
    ) -> Loaded:
        """Loads a step in place, on any layout; ``"latest"`` is the newest one whose bytes are all intact.

        ``"latest"`` is for all ranks together: they agree on the step, even if only one of them finds damage. A rank that wants to
        load alone names a step.

        Raises:
            StepNotFound: if there is no (usable) step.
            KeyMismatch: with every difference between checkpoint and ``into``, before any data is read.
        """
        if recipe is not None:
            raise StateError("this version has no recipes", hint="leave `recipe` out, and rename keys in `into` instead")
        if self._ranks_differ and strict is True:
            strict = "partial"
        if step != "latest":
            return self.open(step).load(into, strict=strict, verify=verify, together=not self._ranks_differ)

        def load(number: int) -> Loaded:
            self._check(number)
            return self.open(number).load(into, strict=strict, verify=verify, together=not self._ranks_differ)

        return load_latest(self.world, self._url, self.steps(), load)

    def open(self, step: int | Literal["latest"] = "latest") -> Checkpoint:
        """Opens a committed step; reads no tensor data."""
        if step != "latest":
            return Checkpoint(self._run.open(_step(step)), self.world)
        for number in reversed(self.steps()):
            try:
                self._check(number)
                return self.open(number)
            except Damaged as error:
                logger.warning("passing over step %d: %s", number, error.message)
        raise StepNotFound(f"`{self._url}` has no usable checkpoint")

    def steps(self) -> list[int]:
        """The committed steps, ascending."""
        return self._run.steps()

    def verify(self, step: int | Literal["latest"] = "latest", *, read_data: bool | float = True) -> dict[str, Any]:
        """Checks a step's structure, and all or a fraction of its bytes.

        Raises:
            Damaged: with everything that is wrong.
        """
        number = _step(step) if step != "latest" else self._newest()
        if number not in self.steps():
            self._run.open(number)  # says why it is not there
        return self._check(number, float(read_data))

    def explain(self, step: int | Literal["latest"] = "latest", *, into: Any) -> Explained:
        """What a load would read, and what would not fit; reads no tensor data."""
        return self.open(step).explain(into)

    def wait(self) -> None:
        """Waits for the save in the background, if there is one, and for pruning."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            with suppress(Cancelled, Skipped):  # both were wanted
                saving.wait()
            self._prune()
        if self._pruner is not None:
            self._pruner.wait()

    def close(self) -> None:
        """Waits until everything is durable. The object can be used again afterwards."""
        if self._process == os.getpid():
            self.wait()
            _open.discard(self)

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            self.close()
        except Error:
            if error is None:
                raise
            logger.exception("a save failed while another error was on its way")

    def __repr__(self) -> str:
        return f"<Checkpointer {self._url!r}>"

    def _prepare(self, state: Any, metrics: Mapping[str, float] | None) -> Flat:
        """The leaves of a state, compared with those of the other ranks."""
        flat = self._recall.flatten(state, Context(self.world, state, None, {}))
        if METRICS in flat.values or METRICS in flat.parts:
            raise StateError(f"`{METRICS}` is the name of the metrics, so nothing else can have it")
        if metrics:
            flat.values[METRICS] = _metrics(metrics)
        self._holders = agree(flat, self.world, self._url, self._ranks_differ, self._holders)
        if self._ranks_differ:
            keep_own_values(flat, self.world)
        return flat

    def _give_up(self, step: int, error: Error) -> None:
        """Tells the other ranks that this one cannot save, so that they do not wait for it."""
        if self.world.size == 1 or isinstance(error, (RanksDisagree, RankFailed)):
            return
        if self._holders is None:
            refuse(self.world, self._url, error.message)
        self._saving_run().give_up(step, error.message)

    @property
    def _handover(self) -> Handover:
        if self._handed is None:
            self._handed = Handover(self.world.rank, self._fences)
        return self._handed

    def _prune(self) -> None:
        """Rank 0 deletes what no rule keeps, away from the training loop."""
        if self._pruner is not None and self.world.rank == 0:
            self._pruner.start(self._run)

    def _observe(self, seconds: float) -> None:
        if self._writer is not None:
            self._writer.observe(seconds, self._saving is not None and not self._saving.done())

    def _warn_of_unchanged(self) -> None:
        """Names parameters that an optimizer is to change and that have the bytes of the save before."""
        if self._saving is None or not self._fences.trainable:
            return
        stale = [name for name in self._saving._native.unchanged() if name in self._fences.trainable]
        if stale:
            shown = ", ".join(f"`{name}`" for name in stale[:8]) + (f" and {len(stale) - 8} more" if len(stale) > 8 else "")
            logger.warning("step %d: same bytes as in the save before: %s", self._saving.step, shown)

    def _newest(self) -> int:
        steps = self.steps()
        if not steps:
            raise StepNotFound(f"`{self._url}` has no committed step")
        return steps[-1]

    def _check(self, step: int, fraction: float = 0.0) -> dict[str, Any]:
        report = self._run.verify(step, fraction)
        if report["damage"]:
            raise Damaged(
                "\n".join(report["damage"]),
                hint="use another step: `cairn ls` shows them, and loading the latest passes over damaged ones",
            )
        return report


def _choose(name: str, choice: object, choices: Sequence[str]) -> None:
    if choice not in choices:
        raise StateError(f"{name}={choice!r} is not a choice", hint="use " + " or ".join(f'"{one}"' for one in choices))


def _make_ready(run: _cairn.Run, outline: _cairn.Outline, memory: _cairn.Memory, streams: dict[int, int]) -> None:
    try:
        run.prepare(outline, memory, streams)
    except Error:
        logger.exception("memory for saves could not be made ready")


def _step(step: object) -> int:
    """``step`` as a number, if it is one that counts."""
    try:
        number = operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number < 2**64:
        raise StateError(f"{step!r} is not a step", hint="steps are whole numbers from 0")
    return number


def _metrics(metrics: Mapping[str, float]) -> Any:
    try:
        return encode(dict(metrics), METRICS)
    except NotPlain as error:
        raise refused(error) from None


@atexit.register
def _close_all() -> None:
    """What was started is finished, even if nobody waited for it."""
    for checkpointer in list(_open):
        try:
            checkpointer.close()
        except Error as error:
            logger.error("%s: %s", checkpointer.url, error)
