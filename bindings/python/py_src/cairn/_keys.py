"""Keys as users name them: by themselves, or by the file they lie in."""

from __future__ import annotations

import os
from pathlib import Path

from .errors import StateError

#: How the text of every key begins.
_PREFIX = "cairn-ed25519-"


def key_text(key: str | os.PathLike[str]) -> str:
    """The key itself, read from its file if a file was named."""
    if isinstance(key, str) and key.startswith(_PREFIX):
        return key
    try:
        return Path(key).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"the key `{os.fspath(key)}` cannot be read: {error}", hint="`cairn keygen` makes a pair of keys") from None
