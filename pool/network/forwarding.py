"""Connections from a user's machine to a port of a job in its own network (`poolnode forward`).

    browser -- user's tool -- schedd -- startd -- socket in the job's network, from its keeper

Bytes travel as items of one stream of the protocol for each connection, with its flow control. The first item from the
job's side says that the connection is there; an error says why it is not. None is the end of one direction. If either
side breaks, the other one is reset: nobody takes a part of a page for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Coroutine
from struct import Struct
from typing import Any, Protocol

from pool.errors import PoolError
from pool.network.passing import passed_socket
from pool.wire import Stream

#: The first item from the job's side.
CONNECTED = "connected"
#: Bytes of an item.
PIECE = 64 << 10
#: Seconds for a connection to the job: a busy server takes it at the kernel's fourth try.
PATIENCE = 30.0
#: In place of a port: whether there could be a connection.
ONLY_ASK = 0
#: Added to a port: by IPv6.
BY_SIX = 1 << 16


class ForwardRefused(PoolError):
    """There is no connection to the port."""


class ConnectingKeeper(Protocol):
    """The keeper of a job with a network of its own."""

    def connect(self, port: int, fd: int, /) -> None: ...


async def connect_to_job(keeper: ConnectingKeeper, port: int) -> socket.socket:
    """A connection to a port of a job in its own network, at 127.0.0.1 or else at ::1.

    Raises:
        ForwardRefused: nothing listens there, or the job does not answer.
    """
    try:
        return await _connect(keeper, port)
    except ForwardRefused as refused:
        with contextlib.suppress(ForwardRefused):
            return await _connect(keeper, port + BY_SIX)
        raise refused


async def _connect(keeper: ConnectingKeeper, number: int) -> socket.socket:
    port = number % BY_SIX
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    near.setblocking(False)
    with near:
        with far:
            keeper.connect(number, far.fileno())
        try:
            async with asyncio.timeout(PATIENCE):
                made = await passed_socket(near)
                if made is None:
                    raise ForwardRefused(f"the job's machine cannot connect to its port {port}")
                await _writable(made)
        except (TimeoutError, OSError):
            raise ForwardRefused(f"no connection to the job's port {port} within {PATIENCE:g} s", retry=True) from None
    if error := made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        made.close()
        hint = "the program has to listen there, on 127.0.0.1, on ::1 or on all addresses"
        raise ForwardRefused(f"cannot connect to port {port} of the job: {os.strerror(error).lower()}", hint=hint)
    return made


async def _writable(connection: socket.socket) -> None:
    loop, ready = asyncio.get_running_loop(), asyncio.Event()
    loop.add_writer(connection.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_writer(connection.fileno())


async def carry(stream: Stream, connection: socket.socket) -> None:
    """Carry bytes between a stream and a connection, until both directions have ended or either breaks.

    The connection is closed then, or reset if something broke.

    Raises:
        ForwardRefused: the connection broke.
        PoolError, EOFError: the stream broke.
    """
    loop = asyncio.get_running_loop()

    async def out() -> None:
        while data := await loop.sock_recv(connection, PIECE):
            await stream.send(data)
        await stream.send(None)

    async def into() -> None:
        async for data in stream:
            if not data:
                break
            if not isinstance(data, bytes):
                raise ForwardRefused("the other side has sent something else than bytes")
            await loop.sock_sendall(connection, data)
        connection.shutdown(socket.SHUT_WR)

    try:
        await both(out(), into())
    except BaseException as error:
        reset_at_close(connection)
        if isinstance(error, OSError):
            raise ForwardRefused("the connection was reset") from error
        raise
    finally:
        connection.close()


def reset_at_close(connection: socket.socket) -> None:
    """Have the other side see that a connection has broken when it is closed, instead of its end."""
    with contextlib.suppress(OSError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, Struct("ii").pack(1, 0))


async def pass_on(one: Stream, other: Stream) -> None:
    """Carry items between two streams, until both directions have ended or either breaks."""

    async def pass_items(source: Stream, to: Stream) -> None:
        async for item in source:
            await to.send(item)
            if item is None:
                return

    await both(pass_items(one, other), pass_items(other, one))


async def both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Do both; when one fails the other is given up, since its peer is gone."""
    tasks = [asyncio.ensure_future(work) for work in (one, other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
