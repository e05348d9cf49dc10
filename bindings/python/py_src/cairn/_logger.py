"""The package's logger, ``cairn``. Python's logging is imported when there is something to say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import logging

    logger = logging.getLogger("cairn")
else:

    class _Logger:
        def __getattr__(self, name: str) -> Any:
            import logging

            return getattr(logging.getLogger("cairn"), name)

    logger = _Logger()
