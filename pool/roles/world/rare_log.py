"""Log lines about other pools, at most one a minute for each message and pool."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

#: Seconds between two equal lines.
EACH = 60.0
#: Lines that are remembered.
MOST = 1000


class RareLog:
    """Writes a line at once, and the same line again after a minute at the earliest, with the number left out."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._last: dict[tuple[str, str], tuple[float, int]] = {}

    def warning(self, message: str, extra: Mapping[str, Any], level: int = logging.WARNING) -> None:
        """Log a message about the pool that `extra` names, unless the same was logged less than a minute ago."""
        now = asyncio.get_running_loop().time()
        key = (message, str(extra.get("pool")))
        said, left_out = self._last.pop(key, (now - EACH, 0))
        if now - said < EACH:
            self._last[key] = (said, left_out + 1)
            return
        self._last[key] = (now, 0)
        if len(self._last) > MOST:
            del self._last[next(iter(self._last))]
        self._log.log(level, message, extra={**extra, **({"more": left_out} if left_out else {})})
