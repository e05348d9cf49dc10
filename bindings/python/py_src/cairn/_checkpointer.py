"""Saves and loads the steps of one run."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cached_property
from types import TracebackType
from typing import Any, Literal

from . import _cairn
from ._agreement import Agreement
from ._arguments import check_time, choose
from ._behind import Behind
from ._checkpoint import METRICS, Loaded
from ._course import course_of
from ._derive import find_derived
from ._ema import Averages, Ema
from ._fences import POLICIES, Fences, Policy
from ._handover import Handover
from ._keys import key_text
from ._leave_out import LEFT_OUT, Trimmer, kept_names, to_leave_out
from ._logger import logger
from ._part import Context
from ._place import Place, locate
from ._replicas import Comparison, Placer, Replicas, checked_rules, withdraw
from ._retention import Keep, Pruner
from ._saving import Saving
from ._shared import keep_own_values
from ._reading import Reading, as_step
from ._recall import Recall
from ._tiers import Tiered, bring_up, is_tiered
from ._tree import Flat
from ._values import NotPlain, encode, refused
from ._world import World
from .errors import Cancelled, Error, RanksDisagree, Skipped, StateError, told

_open: weakref.WeakSet[Checkpointer] = weakref.WeakSet()
#: How many objects of this process have saved to a run, which all ranks count alike.
_savers: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)


class Checkpointer(Reading):
    """One rank's access to a run: saves in the background, opens and loads what is committed.

    >>> checkpointer = cairn.Checkpointer("runs/7b", keep=cairn.Keep(last=3, every=1000))
    >>> checkpointer.save(step, {"model": model, "optim": optimizer})     # in the background
    >>> checkpointer.load(into={"model": model, "optim": optimizer})      # newest good step, any layout

    Args:
        url: where the run lies: a path, or a URL such as ``s3://bucket/run``, ``gs://…``, ``az://…`` or ``file://…``, or a
            store of obstore, such as ``obstore.store.S3Store``, or a fast and a durable tier: see :class:`cairn.Tiered`.
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
        ema: averages of weights that are kept and saved with the state: see :class:`cairn.Ema` and :meth:`average`.
        read_twice: reads tensors on a device twice before they may change, and fails the save if they did.
        delta: writes only what changed since the step before and refers to it for the rest: frozen layers, the base of an adapter and
            idle experts are stored once. Such a step is no plain safetensors file; ``cairn compact`` makes it one.
        compress: stores data files compressed, without loss: ``bf16`` weights take about 70 % of their bytes. Any part of them can still be read alone.
        bytes_per_second: a cap for writing, which backs off while training steps take longer than usual.
        require_key: a public key, or its file: steps that it did not sign are refused, see :meth:`sign`.
        storage_options: settings of the object store, such as ``{"region": "eu-west-1"}``, which come before those of the environment.
        keeper: whose memory captures go to, so that they survive this process: the path of a keeper's socket, ``"auto"`` for the one
            that ``CAIRN_KEEPER`` names or that listens where keepers do, if there is one, or ``None``. See ``cairn keeper``.
        replicas: what holds of tensors that every rank holds whole, for all or by pattern: ``"same"``, which is compared at the first save;
            ``"rank 0"``, whose are stored; ``"per rank"``, where each stores its own and gets it back. Parameters, optimizer state and plain tensors are the same if nothing else is said; of buffers
            of modules, which data parallelism keeps on each rank, rank 0's are stored.
    """

    def __init__(
        self,
        url: Place,
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
        ema: Ema | Sequence[Ema] = (),
        read_twice: bool = False,
        delta: bool = False,
        compress: bool = False,
        bytes_per_second: int | None = None,
        require_key: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, str] | None = None,
        keeper: str | os.PathLike[str] | None = "auto",
        replicas: Replicas | None = None,
    ) -> None:
        choose("ranks", ranks, ("same", "differ"))
        choose("fence", fence, POLICIES)
        choose("overlap", overlap, ("wait", "skip", "queue"))
        check_time("commit_timeout", commit_timeout)
        self._url, self._storage_options = locate(url, storage_options)
        self._pruner = None if keep is None else Pruner(keep)
        self._world = world
        self._group = process_group
        self._ranks_differ = ranks == "differ"
        self._keeper = None if keeper is None else os.fspath(keeper)
        self._options: dict[str, Any] = {
            "commit_timeout": commit_timeout,
            "staging_bytes": staging_bytes,
            "scratch_bytes": scratch_bytes,
            "overlap": overlap,
            "read_twice": read_twice,
            "delta": delta,
            "compress": compress,
            "bytes_per_second": bytes_per_second,
            "storage_options": self._storage_options,
            "keeper": self._keeper,
            "keep_fast": url.keep_fast if isinstance(url, Tiered) else Tiered.keep_fast,
        }
        self._require_key = None if require_key is None else key_text(require_key)
        self._placer = Placer(checked_rules(replicas))
        self._comparison: Comparison | None = None
        self._calls = 0
        self._fences = Fences(fence)
        emas = [ema] if isinstance(ema, Ema) else list(ema)
        self._averages = Averages(emas) if emas else None
        if bytes_per_second is not None:
            self._fences.observe = self._observe
        self._writer: _cairn.Run | None = None
        self._reader: _cairn.Run | None = None
        self._saving: Saving | None = None
        self._agreed: Agreement | None = None
        #: Steps that were given up before there was a run to say so.
        self._owed: list[tuple[int, str]] = []
        self._named: tuple[_cairn.Outline, frozenset[str]] | None = None
        self._recall = Recall()
        self._trimmer = Trimmer()
        self._handed: Handover | None = None
        self._process = os.getpid()
        _open.add(self)

    @cached_property
    def _session(self) -> str | None:
        """Each object that saves has a session name of its own, which all ranks count alike."""
        session = self.world.session
        return None if session is None else f"{session}-{next(_savers[self._url])}"

    def _saving_run(self) -> _cairn.Run:
        """The run as all ranks save it together."""
        if self._writer is None:
            world = self.world
            self._writer = _cairn.Run(
                self._url, world.rank, world.size, self._session, unique=world.is_unique, **self._options
            )
            while self._owed:
                self._writer.give_up(*self._owed.pop(0))
        return self._writer

    @property
    def _agreement(self) -> Agreement:
        if self._agreed is None:
            self._agreed = Agreement(self.world, self._session, self._ranks_differ)
        return self._agreed

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
        derive: Mapping[str, str] | None = None,
        leave_out: Sequence[str] = (),
    ) -> Saving:
        """Saves ``state`` as ``step``, in the background. Returns when tensors in host memory are captured and may change.

        Tensors on a GPU are captured while it works on: optimizers in the state wait for that, on the device, before their next step;
        see :meth:`fence` for whatever else changes them.

        ``state`` is a tree of dicts, lists and tuples with tensors, stateful objects and plain values. Every rank of the world
        saves the same steps in the same order, and no rank waits for another here.

        ``derive={"model.*": "optim.state.*.master"}`` does not store weights that are casts of their f32 masters; a load works them
        out. It is checked, on every element. ``leave_out`` names what is not saved at all: patterns, ``"optimizer"``,
        ``"master weights"`` or ``"frozen"``. ``tags`` are words to find the step by; a step that has one is never deleted by ``keep``.

        Raises:
            StateError: if something in the state cannot be kept; the message gives its path.
            StepExists: if the step is committed already and ``replace`` is not given.
            cairn.Error: the failure of the save before, if nobody looked at it.
        """
        number = as_step(step)
        self._agreement.begin()
        self._calls += 1
        attempt = begun = None
        try:
            run = self._saving_run()
            attempt = run.attempts(number)
            # Casts are checked on memory that is there.
            behind = Behind(0 if derive else self._options["scratch_bytes"])
            flat = self._trim(self._prepare(state, metrics, behind), state, derive or {}, leave_out)
            self._warn_of_unchanged()
            outline, memory = self._handover.of(flat, state)
            course_of(self._url).tell(run, self._names_of(outline, flat))
            condition = self._compare(flat)
            begun = run.save(
                number,
                outline,
                memory,
                json.dumps(flat.values),
                json.dumps(flat.rank_values),
                list(tags),
                streams=self._fences.streams(),
                owners=flat.owners,
                watch=self._fences.watch(flat),
                condition=condition,
                averaging=self._averaging(outline, flat),
                replace=replace,
                assets={} if assets is None else dict(assets),
            )
            self._fences.add(begun)
            self._saving = Saving(begun)
        except BaseException as error:
            # Whatever it is, also in a `state_dict` of the user's or a Ctrl-C: the other ranks must not wait for this one.
            self._give_up(number, attempt, begun, error)
            raise
        if self._pruner is not None and self.world.rank == 0:
            self._pruner.start(self._run, begun)
        if blocking:
            self._saving.wait()
        return self._saving

    def average(self, step: int, state: Any) -> bool:
        """Brings the averages up to date with ``state``, in the background; whether any was due at ``step``.

        It is called after every optimizer step, on every rank, and before :meth:`save` of the same step. Tensors on a device may not
        change before a fence, as after a save.

        Raises:
            StateError: if no average is defined, or the state cannot be averaged.
        """
        if self._averages is None:
            raise StateError("there are no averages", hint="give the Checkpointer some: `ema=cairn.Ema(decay=0.9999)`")
        number = as_step(step)
        if self._averages.is_skipped():
            return False
        flat = self._recall.flatten(state, Context(self.world, state, None, {}))
        outline, memory = self._handover.of(flat, state)
        averaging = self._averaging(outline, flat)
        assert averaging is not None, "averages are defined"
        streams, watch = self._fences.streams(), self._fences.watch(flat)
        begun = self._saving_run().average(
            number, averaging, outline, memory, streams=streams, owners=flat.owners, watch=watch
        )
        if begun:
            self._fences.add(averaging)
        return begun

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

    def wait(self) -> None:
        """Waits for the save in the background, if there is one, and for pruning."""
        if self._saving is not None:
            saving, self._saving = self._saving, None
            with suppress(Cancelled, Skipped):  # both were wanted
                saving.wait()
        if self._writer is not None:
            self._writer.wait_uploads()
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

    def __reduce__(self) -> tuple[object, ...]:
        raise TypeError("a Checkpointer belongs to the process that made it: make another one there")

    def __repr__(self) -> str:
        return f"<Checkpointer {self._url!r}>"

    def _prepare(self, state: Any, metrics: Mapping[str, float] | None, behind: Behind) -> Flat:
        """The leaves of a state, compared with those of the other ranks."""
        flat = self._recall.flatten(state, Context(self.world, state, None, {}, behind=behind))
        flat.parts = behind.start(flat.parts)
        for name, what in ((METRICS, "the metrics"), (LEFT_OUT, "what is left out")):
            if name in flat.values or name in flat.parts:
                raise StateError(f"`{name}` is the name of {what}, so nothing else can have it")
        if metrics:
            flat.values[METRICS] = _metrics(metrics)
        timeout: float = self._options["commit_timeout"]
        self._agreement.agree(flat, timeout)
        if self.world.size > 1:
            self._placer.place(flat, self._recall.buffers, self._agreement.holders, self.world)
        return flat

    def _trim(self, flat: Flat, state: Any, derive: Mapping[str, str], leave_out: Sequence[str]) -> Flat:
        """What is stored of a state."""
        if derive or leave_out:
            if self._averages is not None:
                raise StateError("a state that is averaged is saved whole", hint="leave `derive` and `leave_out` out, or `ema`")
            patterns = to_leave_out(flat, state, leave_out, ranks_differ=self._ranks_differ)
            parts = {name: flat.parts[name] for name in kept_names(flat.parts, patterns)}
            derived = find_derived(parts, derive, ranks=self.world.size, ranks_differ=self._ranks_differ)
            flat = self._trimmer.trim(flat, patterns, derived)
        if self._ranks_differ:
            keep_own_values(flat, self.world)
        return flat

    def _compare(self, flat: Flat) -> Callable[[], str | None] | None:
        """Has the ranks compare what all of them hold, until that was settled once; returns what the save has to wait for."""
        if self.world.size == 1 or self.world.board is None or self._comparison is not None and self._comparison.is_settled:
            return None
        # A launch that goes on from a step of this run has been saved like this before.
        is_new = course_of(self._url).told is None
        timeout: float = self._options["commit_timeout"]
        self._comparison = Comparison(self.world, self._replicas_topic, flat.parts, timeout, is_strict=is_new)
        self._comparison.start()
        return self._comparison.outcome

    @property
    def _replicas_topic(self) -> str:
        return f"{self._session}/replicas/{self._calls}"

    def _names_of(self, outline: _cairn.Outline, flat: Flat) -> frozenset[str]:
        if self._named is None or self._named[0] is not outline:
            self._named = outline, frozenset(flat.parts)
        return self._named[1]

    def _give_up(self, step: int, attempt: int | None, begun: _cairn.Saving | None, error: BaseException) -> None:
        """Tells the other ranks that this one cannot save, so that they do not wait for it."""
        if begun is not None:
            begun.cancel()
        if self.world.size == 1 or getattr(error, "nothing_begun", False) or isinstance(error, RanksDisagree):
            # Ranks that disagree have all found the same.
            return
        reason = told(error)
        try:
            self._agreement.refuse(reason)
            if self._comparison is None or self._comparison.topic != self._replicas_topic:
                withdraw(self.world, self._replicas_topic)
            if attempt is None:
                self._owed.append((step, reason))
            elif begun is not None or not (isinstance(error, Error) and self._saving_run().attempts(step) > attempt):
                self._saving_run().give_up(step, reason, attempt)
        except Exception:
            logger.exception("the other ranks were not told that step %d was given up", step)

    @property
    def _handover(self) -> Handover:
        if self._handed is None:
            self._handed = Handover(self.world.rank, self._fences)
        return self._handed

    def _before_latest(self) -> None:
        if is_tiered(self._url):
            bring_up(self._saving_run(), self._url, self.world)

    def _go_on_from(self, loaded: Loaded) -> None:
        if self._averages is not None and loaded.step is not None:
            self._averages.resume_from = self._run.open(loaded.step)
            self._averages.native = None

    def _averaging(self, outline: _cairn.Outline, flat: Flat) -> _cairn.Averaging | None:
        if self._averages is None:
            return None
        world = self.world
        return self._averages.of(outline, flat.parts, self._fences.trainable, world.rank, world.size)

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


def _make_ready(run: _cairn.Run, outline: _cairn.Outline, memory: _cairn.Memory, streams: dict[int, int]) -> None:
    try:
        run.prepare(outline, memory, streams)
    except Error:
        logger.exception("memory for saves could not be made ready")


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
