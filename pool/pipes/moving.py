"""A pipe's stream to another pool, which moves to a direct connection as soon as there is one.

The stream carries bytes from the beginning, so nothing waits for the better way. When it moves it breaks, as any
stream may: its sender opens another one, which goes the better way, after the last byte that has arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pool.pipes.protocol import PipeStream
from pool.wire.errors import ConnectionLost, WireError


class MovingStream:
    """The writer's end of such a stream.

    Args:
        wait_better: returns when another stream would go a better way.
    """

    def __init__(self, stream: PipeStream, wait_better: Callable[[], Awaitable[None]]) -> None:
        self._stream = stream
        self._wait_better = wait_better
        self._moves = False
        self._waiting = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        await self._wait_better()
        self._moves = True
        self._stream.abort()

    async def send(self, item: Any) -> None:
        """Send bytes, or None for the end. Raises WireError when the stream is over; ConnectionLost when it moves."""
        try:
            await self._stream.send(item)
        except WireError:
            if self._moves:
                raise ConnectionLost("the stream moves to a direct connection") from None
            raise

    async def receive(self) -> Any:
        """Return the reader's next report."""
        return await self._stream.receive()

    def __aiter__(self) -> Any:
        return aiter(self._stream)

    def raise_limit(self, size: int) -> None:
        """Let the reader's side send so many more reports ahead."""
        self._stream.raise_limit(size)

    async def finish(self) -> None:
        """Send no more."""
        await self._stream.finish()

    def abort(self) -> None:
        """Drop the stream."""
        self._waiting.cancel()
        self._stream.abort()
