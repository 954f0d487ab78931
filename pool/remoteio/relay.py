"""Carrying a job's frames between a socket and a stream: bytes, not looked into, with the flow control of both."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from pool.metering import counted

#: Bytes that are read at a time.
CHUNK = 256 * 1024
#: Bytes more that the other node may send ahead: bytes that a long way to the submit side holds (160 MB/s at 100
#: ms).
WINDOW = 16 * 1024 * 1024
#: Waits until so many bytes may go.
Gate = Callable[[int], Awaitable[None]]


class RelayStream(Protocol):
    """The part of a wire stream that is used here."""

    async def send(self, item: Any, /) -> None: ...
    async def finish(self) -> None: ...
    def raise_limit(self, size: int, /) -> None: ...
    def __aiter__(self) -> Any: ...


async def forward(stream: RelayStream, end: socket.socket, gate: Gate | None = None) -> None:
    """Carry both ways until either side ends; closes the socket.

    Args:
        end: non-blocking.
        gate: asked before anything goes on, in either direction.

    Raises:
        WireError, OSError: how it ended, where it broke.
    """
    loop = asyncio.get_running_loop()
    stream.raise_limit(WINDOW)

    async def send_all() -> None:
        while data := await loop.sock_recv(end, CHUNK):
            if gate is not None:
                await gate(len(data))
            await stream.send(data)

    async def receive_all() -> None:
        async for item in stream:
            if not isinstance(item, bytes):
                continue
            if gate is not None:
                await gate(len(item))
            await loop.sock_sendall(end, item)

    tasks = [loop.create_task(counted(send_all())), loop.create_task(counted(receive_all()))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        end.close()
