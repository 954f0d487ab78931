"""Brings a port of a running job to this machine: a listening socket, and a stream for each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.network.forwarding import CONNECTED, carry

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: Connections at a time.
MOST = 100


async def forward_port(
    pool: Pool, job: tuple[int, int], port: int, listener: socket.socket, *, node: int, failed: Callable[[str], None]
) -> None:
    """Carry every connection that comes to a listening socket to a port of a job, until cancelled.

    Args:
        node: the part of a job of several.
        failed: called with the reason when a connection cannot be carried.
    """
    loop, room = asyncio.get_running_loop(), asyncio.Semaphore(MOST)
    listener.setblocking(False)
    params = {"id": list(job), "port": port, "node": node}

    async def forward_one(connection: socket.socket) -> None:
        with connection:
            try:
                async with pool.streaming("schedd.forward", params) as stream:
                    if await stream.receive() == CONNECTED:
                        await carry(stream, connection)
            except (PoolError, EOFError) as error:
                failed(getattr(error, "message", "") or "the connection has ended")
            except OSError:
                pass  # the local program has gone
            finally:
                room.release()

    async with asyncio.TaskGroup() as connections:
        while True:
            await room.acquire()
            connection, _ = await loop.sock_accept(listener)
            connections.create_task(forward_one(connection))
