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

    def add(self, key: str, amount: int) -> int:
        """Adds to a number and returns the sum."""
        total: int = self._client.key_value_increment(key, amount)
        return total

    def compare_set(self, key: str, expected: str, wish: str) -> bytes:
        """Leaves a message where there is none yet (``expected`` is empty), and returns the one that is there."""
        assert expected == "", "nothing else is needed"
        try:
            self._client.key_value_set(key, wish)
        except Exception:  # somebody was faster
            pass
        return self.get(key)

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all of these messages are there."""
        try:
            for key in keys:
                self._client.key_value_try_get(key)
        except Exception:  # the client has no narrower class for a message that is not there
            return False
        return True
