"""What both ends of a job's pipe to another machine agree on: bounds, words, and what carries them.

An outlet (`pool.starter.outlet`) sends bytes and, at the end, None. An inlet (`pool.starter.inlet`) first says how many
have come, then how many were used, and one of the words.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pool.errors import PoolError

#: Bytes of one stream on their way at most, and so the rate over a delay: so many bytes for each round trip.
WINDOW = 32 << 20
#: Bytes that a kernel's pipe holds, and that are read at a time.
ROOM = 1 << 20
#: What an inlet says beside numbers: all has come; nobody reads it any more.
ALL, GONE = "all", "gone"


class StreamLost(PoolError):
    """What one part of a job wrote cannot reach another any more."""


class Stream(Protocol):
    """The part of a wire stream that is used here."""

    def widen(self, size: int, /) -> None: ...
    async def send(self, item: Any, /) -> None: ...
    async def receive(self) -> Any: ...
    async def finish(self) -> None: ...
    def abort(self) -> None: ...
    def __aiter__(self) -> Any: ...


async def ready(fd: int, *, write: bool) -> None:
    """Wait until a descriptor can be read or written."""
    loop = asyncio.get_running_loop()
    can: asyncio.Future[None] = loop.create_future()

    def set_can() -> None:
        if not can.done():
            can.set_result(None)

    (loop.add_writer if write else loop.add_reader)(fd, set_can)
    try:
        await can
    finally:
        (loop.remove_writer if write else loop.remove_reader)(fd)
