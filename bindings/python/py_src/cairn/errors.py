"""Everything Cairn raises: one class for each kind of trouble, all of them :class:`Error`.

Each carries a ``hint``: what the reader can do next, or ``None``.
"""

from __future__ import annotations


class Error(Exception):
    """Something did not work. Nothing that was safe before has been harmed."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, dict(self.__dict__)))


def _rebuild(cls: type[Error], message: str, attributes: dict[str, object]) -> Error:
    error = cls(message)
    error.__dict__.update(attributes)
    return error


def told(error: BaseException) -> str:
    """An error of any kind, as other ranks are told of it."""
    return error.message if isinstance(error, Error) else f"{type(error).__name__}: {error}".removesuffix(": ")


class StateError(Error):
    """The state cannot be saved or loaded as it is: the message names the place in it."""


class RecipeError(Error):
    """A recipe is wrong, or does not fit the tensors: the message shows the statement."""


class KeyMismatch(Error):
    """Checkpoint and target do not fit; every difference is listed, and no data was read."""

    missing: list[str] = []
    unexpected: list[str] = []
    mismatched: list[str] = []


class StepExists(Error):
    """The step is committed already and was not to be replaced."""


class StepNotFound(Error):
    """There is no such step, or no usable one."""

    #: The steps that were tried and passed over, and why.
    skipped: dict[int, str] = {}


class StepIncomplete(Error):
    """The step was begun but never committed."""


class Damaged(Error):
    """Bytes on disk are not the ones that were written."""


class RankFailed(Error):
    """Another rank failed or did not deliver its part in time. Nothing was committed."""


class RanksDisagree(Error):
    """The ranks describe the state differently. Nothing was committed."""


class NotUploaded(Error):
    """A step is safe on the fast tier and could not be brought to the durable one yet. It is tried again by itself."""


class Torn(Error):
    """Tensors were changed while they were being captured. Nothing was committed."""


class Skipped(Error):
    """The step was passed over, because the save before was not done."""


class Cancelled(Error):
    """The save was cancelled. Nothing was committed."""


class DeviceError(Error):
    """A device or its driver failed, or there is no memory."""


class StoreError(Error):
    """The disk or object store failed: full, read-only, out of reach."""


class FormatError(Error):
    """A file of another tool cannot be read; pickles that would run code end here, too."""


class Untrusted(Error):
    """A signature is required, and the step has none that fits: nothing of it was handed out."""


class VersionError(Error):
    """The checkpoint was written by a newer Cairn."""
