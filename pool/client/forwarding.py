"""Brings a port of a running job to this machine: a listening socket, and a stream for each connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.network.forwarding import CONNECTED, ONLY_ASK, carry, reset_at_close

if TYPE_CHECKING:
    from pool.client.pool import Pool

#: Connections at a time.
MOST = 100
#: Seconds between two looks whether the job is still in the queue.
LOOK = 5.0
#: Seconds until a reason is said again.
AGAIN = 10.0


class JobHasLeft(PoolError):
    """The job whose port was forwarded is not in the queue any more."""


async def may_forward(pool: Pool, job: tuple[int, int], *, node: int) -> None:
    """See whether ports of a job can be forwarded at this moment.

    Raises:
        PoolError: it is not the user's, does not run, or has its machine's network.
    """
    async with pool.streaming("schedd.forward", {"id": list(job), "port": ONLY_ASK, "node": node}) as stream:
        await stream.receive()


async def forward_port(
    pool: Pool, job: tuple[int, int], port: int, listener: socket.socket, *, node: int, failed: Callable[[str], None]
) -> None:
    """Carry every connection that comes to a listening socket to a port of a job, until cancelled.

    A connection that breaks on its way is reset here.

    Args:
        node: the part of a job of several.
        failed: called with the reason when a connection cannot be made; with the same one not for some seconds.

    Raises:
        JobHasLeft: the job has ended, or was removed.
    """
    loop, room = asyncio.get_running_loop(), asyncio.Semaphore(MOST)
    listener.setblocking(False)
    params = {"id": list(job), "port": port, "node": node}
    said: dict[str, float] = {}

    def report_once(why: str) -> None:
        if loop.time() - said.get(why, -AGAIN) >= AGAIN:
            said[why] = loop.time()
            failed(why)

    async def forward_one(connection: socket.socket) -> None:
        connected = False
        with connection:
            try:
                async with pool.streaming("schedd.forward", params) as stream:
                    connected = await stream.receive() == CONNECTED
                    await carry(stream, connection)
            except (PoolError, EOFError) as error:
                reset_at_close(connection)
                if not connected:
                    report_once(getattr(error, "message", "") or "the connection has ended")
            except OSError:
                pass  # the local program has gone
            finally:
                room.release()

    async def accept_all() -> None:
        async with asyncio.TaskGroup() as connections:
            while True:
                await room.acquire()
                connection, _ = await loop.sock_accept(listener)
                connections.create_task(forward_one(connection))

    taking = asyncio.ensure_future(accept_all())
    try:
        while not taking.done():
            await asyncio.wait([taking], timeout=LOOK)
            if not taking.done() and not await _is_queued(pool, job):
                name = f"{job[0]}.{job[1]}"
                raise JobHasLeft(f"job {name} has left the queue", hint=f"`poolnode history {name}` shows its end")
        await taking
    finally:
        taking.cancel()
        await asyncio.gather(taking, return_exceptions=True)


async def _is_queued(pool: Pool, job: tuple[int, int]) -> bool:
    try:
        return bool(await pool.jobs(ids=[job], attributes=["JobStatus"]))
    except PoolError:
        return True  # the pool cannot tell at this moment
