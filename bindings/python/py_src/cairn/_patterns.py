"""Patterns over names: ``*`` stands for any text, ``?`` for one character, all else for itself."""

from __future__ import annotations

import re


class Pattern:
    """A pattern over whole names."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._regex = re.compile(re.escape(text).replace(r"\*", "(.*)").replace(r"\?", "."), re.DOTALL)

    def match(self, name: str) -> str | None:
        """What the first ``*`` stands for in ``name``, nothing if there is none; ``None`` if the name does not fit."""
        found = self._regex.fullmatch(name)
        if found is None:
            return None
        return found[1] if self._regex.groups else ""
