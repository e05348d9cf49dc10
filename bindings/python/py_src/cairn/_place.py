"""Where runs and models lie, as users name it: a path, an address, or a store object of obstore."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from .errors import StoreError


class StoreObject(Protocol):
    """A store of obstore, or of a package built like it: ``S3Store``, ``GCSStore``, ``AzureStore`` or ``LocalStore``."""

    @property
    def prefix(self) -> Any:
        """The folder inside the bucket, if it is not all of it; of a ``LocalStore``, the folder itself."""
        ...


#: What names a place.
Place: TypeAlias = "str | os.PathLike[str] | StoreObject"

#: Classes of stores that live in buckets: how their addresses begin, and what their settings call the bucket.
_BUCKETS = {"S3Store": ("s3", "bucket"), "GCSStore": ("gs", "bucket"), "AzureStore": ("az", "container_name")}

_HINT = "name the place by its address, and its settings in `storage_options`"


def locate(place: Place, storage_options: Mapping[str, str] | None = None) -> tuple[str, dict[str, str]]:
    """The address of a place, and the settings that open it.

    Raises:
        StoreError: if a store object cannot be said so, or comes with settings beside its own.
    """
    if isinstance(place, (str, os.PathLike)):
        return os.fspath(place), dict(storage_options or {})
    kinds = {base.__name__ for base in type(place).__mro__}
    kind = next((name for name in ("LocalStore", *_BUCKETS) if name in kinds), None)
    if kind is None or not hasattr(place, "prefix"):
        known = ", ".join(f"`{name}`" for name in (*_BUCKETS, "LocalStore"))
        raise StoreError(
            f"a `{type(place).__name__}` is no place that other processes can open",
            hint=f"give a path, an address such as `s3://bucket/run`, or one of obstore's stores: {known}",
        )
    if storage_options:
        raise StoreError("a store object has its own settings: `storage_options` beside it are not clear", hint=_HINT)
    return _folder(place) if kind == "LocalStore" else _bucket(place, kind)


def _folder(store: Any) -> tuple[str, dict[str, str]]:
    if store.prefix is None:
        raise StoreError("this `LocalStore` names no folder", hint="make it with one, or give the path instead")
    return os.fspath(store.prefix), {}


def _bucket(store: Any, kind: str) -> tuple[str, dict[str, str]]:
    """Says a store object as an address and settings, which are what others can open it by."""
    if store.credential_provider is not None:
        raise StoreError(
            f"this `{kind}` gets its credentials from a function of the program, which cannot be asked from here",
            hint="put the keys in its `config`, or leave both out: environment, profiles and the machine's role are looked at",
        )
    scheme, bucket_name = _BUCKETS[kind]
    settings = {**store.config, **(store.client_options or {})}
    bucket = settings.pop(bucket_name, None)
    if bucket is None:
        raise StoreError(f"this `{kind}` does not say its `{bucket_name}`", hint=_HINT)
    for name, setting in settings.items():
        if not isinstance(setting, (str, bool, int)):
            raise StoreError(f"the setting `{name}` of this `{kind}` cannot be handed on", hint=_HINT)
    texts = {name: str(setting).lower() if isinstance(setting, bool) else str(setting) for name, setting in settings.items()}
    folder = f"/{store.prefix}" if store.prefix else ""
    return f"{scheme}://{bucket}{folder}", texts | _tries(store.retry_config or {})


def _tries(retry: Mapping[str, Any]) -> dict[str, str]:
    """How often and how long requests are tried again. Pauses between tries are our own."""
    found = {}
    if "max_retries" in retry:
        found["max_retries"] = str(retry["max_retries"])
    timeout = retry.get("retry_timeout")
    if isinstance(timeout, timedelta):
        found["retry_timeout_s"] = str(math.ceil(timeout.total_seconds()))
    return found
