"""The protocol between sender and receiver of a remote pipe: bounds and words.

The sender (`pool.pipes.sender`) sends bytes and, at the end, None. The receiver (`pool.pipes.receiver`) first sends
how many bytes have arrived, then from time to time how many were used, and at last one of the words.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pool.errors import PoolError

#: Bytes of one stream in transit at most. So a stream carries this many bytes for each round trip.
WINDOW = 32 << 20
#: Size of a kernel's pipe, and of one read, bytes.
ROOM = 1 << 20
#: The receiver's words: all bytes have arrived; no reader is left.
ALL, GONE = "all", "gone"


class StreamLost(PoolError):
    """Bytes of one part of a job can no longer reach another."""


class PipeStream(Protocol):
    """The methods of a wire stream that pipes use."""

    def raise_limit(self, size: int, /) -> None: ...
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
