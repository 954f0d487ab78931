"""How long what may be tried again is tried again: with growing pauses, until patience ends or it goes well."""

from __future__ import annotations

import asyncio

from pool.errors import PoolError

FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0


class Patience:
    """Patience with one node.

    Args:
        seconds: how long trouble may last before it is given up.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._pause = FIRST_RETRY

    def goes_well(self) -> None:
        """There is no trouble, or none any more."""
        self._since, self._pause = None, FIRST_RETRY

    async def wait(self, error: PoolError) -> None:
        """Wait before the next try.

        Raises:
            PoolError: the one given, where trying again is of no use or has been done for long enough.
        """
        now = asyncio.get_running_loop().time()
        self._since = now if self._since is None else self._since
        if not error.retry or now - self._since > self._seconds:
            raise error
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_RETRY)
