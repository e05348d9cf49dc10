"""The key-value store of ``jax.distributed`` as a place where ranks leave each other messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

TIMEOUT_MS = 300_000


class JaxBoard:
    """Messages through the coordinator that joins the processes of JAX."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def set(self, key: str, value: str) -> None:
        """Leaves a message."""
        self._client.key_value_set(key, value, allow_overwrite=True)

    def get(self, key: str) -> bytes:
        """Waits for a message and takes a copy."""
        found: str = self._client.blocking_key_value_get(key, TIMEOUT_MS)
        return found.encode()

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all of these messages are there."""
        try:
            for key in keys:
                self._client.key_value_try_get(key)
        except Exception:  # the client has no narrower class for a message that is not there
            return False
        return True
