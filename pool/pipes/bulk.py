"""A stream between two parts of a job moves to a connection of its own when it carries much (`pool.wire.bulk_stream`).

    writer's node                                   reader's node
    stream startd.join ------ items --------------> takes them
    connects again: startd.lend {ticket, key}       detaches that connection, keeps its socket
    startd.lent {ticket} -------------------------> answers when that is done
    detaches the connection too
    stream: {lane: ticket}, its last item           takes the next bytes from the socket
    socket ========= bytes, and the end ==========>

The stream stays open for the reader's reports (bytes arrived, bytes used, all, gone); when it ends, the bulk stream
ends too. The new connection goes to the same address, so firewalls need no change. If it cannot be made (a network
without sockets in tests, a node of an older version), the stream carries the bytes as before.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable
from typing import Any, Self

from pool.errors import PoolError
from pool.wire import Connection, Stream, WireConnection
from pool.wire.bulk_stream import KEY, BulkReceiver, BulkSender
from pool.wire.errors import CallRefused

#: A stream that has carried this many bytes gets a connection of its own.
WORTH = 4 << 20
#: Seconds for making that connection, at most.
PATIENCE = 10.0

Opened = tuple[str, BulkSender]


class SwitchingSender:
    """The writer's end of a stream that may move to a bulk stream.

    Args:
        stream: `startd.join`.
        open_bulk_stream: opens one to the same node; returns its ticket there and the sender. Raises PoolError,
            OSError or TimeoutError.
    """

    def __init__(self, stream: Stream, open_bulk_stream: Callable[[], Awaitable[Opened]]) -> None:
        self._stream = stream
        self._open_bulk = open_bulk_stream
        self._opening: asyncio.Task[Opened | None] | None = None
        self._sent = 0
        self._bulk: BulkSender | None = None

    async def send(self, item: Any) -> None:
        """Send bytes, or None for the end. Raises WireError when the stream is over."""
        if self._bulk is None:
            await self._branch()
        if self._bulk is not None:
            await self._bulk.send(item or b"")
            return
        await self._stream.send(item)
        self._sent += len(item or b"")

    async def _branch(self) -> None:
        if self._opening is None:
            if self._sent >= WORTH:
                self._opening = asyncio.get_running_loop().create_task(self._opened())
        elif self._opening.done() and (opened := self._opening.result()) is not None:
            ticket, bulk = opened
            await self._stream.send({"lane": ticket})
            self._bulk = bulk

    async def _opened(self) -> Opened | None:
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            return await self._open_bulk()
        return None

    async def receive(self) -> Any:
        """Return the reader's next report."""
        return await self._stream.receive()

    def __aiter__(self) -> Stream:
        return self._stream

    def raise_limit(self, size: int) -> None:
        """Let the reader's side send so many more reports ahead."""
        self._stream.raise_limit(size)

    async def finish(self) -> None:
        """Send no more."""
        await self._stream.finish()

    def abort(self) -> None:
        """Drop the stream and the bulk stream."""
        self._stream.abort()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        elif self._opening is not None and not self._opening.cancelled():
            opened = self._opening.result()
            if opened is not None:
                opened[1].close()


class SwitchingReceiver:
    """The reader's end of such a stream.

    Args:
        take: returns the bulk stream of a ticket; raises Refused.
    """

    def __init__(self, stream: Stream, take: Callable[[str], BulkReceiver]) -> None:
        self._stream = stream
        self._take = take
        self._bulk: BulkReceiver | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._bulk is None:
            item = await self._stream.__anext__()
            if not isinstance(item, dict):
                return item
            self._bulk = self._take(str(item.get("lane")))
        if self._ended:
            return await self._stream.__anext__()
        data = await self._bulk.receive()
        self._ended = not data
        return data or None

    async def receive(self) -> Any:
        """Bytes, or None for the end. Raises EOFError when the stream is over."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise EOFError("the stream has ended") from None

    async def send(self, item: Any) -> None:
        """Report to the writer's side."""
        await self._stream.send(item)

    def raise_limit(self, size: int) -> None:
        """Let the writer's side send so many bytes more ahead."""
        self._stream.raise_limit(size)

    async def finish(self) -> None:
        """End the reports."""
        await self._stream.finish()

    def abort(self) -> None:
        """Drop the stream and the bulk stream."""
        self._stream.abort()
        self.close()

    def close(self) -> None:
        """Close the bulk stream."""
        if self._bulk is not None:
            self._bulk.close()


class LentConnections:
    """Connections from writers' nodes, until their streams take them."""

    def __init__(self) -> None:
        self._streams: dict[str, asyncio.Future[BulkReceiver]] = {}

    async def open_bulk(self, ticket: str, key: bytes, connection: Connection) -> None:
        """Make a bulk stream of a connection. Raises CallRefused if that is not possible."""
        if not isinstance(connection, WireConnection) or len(key) != KEY:
            raise CallRefused("this connection cannot carry bytes of a job")
        self.take_socket(ticket, await connection.detach(), key)

    def take_socket(self, ticket: str, peer: socket.socket, key: bytes) -> None:
        """Make a bulk stream of a connected socket. Raises CallRefused if there is one with this ticket."""
        bulk = BulkReceiver(peer, key)
        waiting = self._stream_of(ticket)
        if waiting.done():
            bulk.close()
            raise CallRefused("there is a connection with this ticket")
        waiting.set_result(bulk)

    async def wait_bulk(self, ticket: str) -> None:
        """Wait until `open_bulk` is done. Raises CallRefused after `PATIENCE` seconds."""
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._stream_of(ticket))
        except TimeoutError:
            raise CallRefused("no connection with this ticket has come") from None

    def take_stream(self, ticket: str) -> BulkReceiver:
        """Return the bulk stream with this ticket, once. Raises CallRefused if there is none."""
        waiting = self._streams.pop(ticket, None)
        if waiting is None or not waiting.done():
            raise CallRefused("there is no connection with this ticket")
        return waiting.result()

    def _stream_of(self, ticket: str) -> asyncio.Future[BulkReceiver]:
        waiting = self._streams.get(ticket)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._streams[ticket] = loop.create_future()
            loop.call_later(2 * PATIENCE, self._forget, ticket)
        return waiting

    def _forget(self, ticket: str) -> None:
        waiting = self._streams.pop(ticket, None)
        if waiting is not None and waiting.done():
            waiting.result().close()
        elif waiting is not None:
            waiting.cancel()


async def open_bulk_stream(
    link: Connection, apart: Callable[[], Awaitable[Connection]], stream: dict[str, Any], secret: Callable[[int], str]
) -> Opened:
    """Open a bulk stream to the node at the other end of a link; return its ticket there and the sender.

    Args:
        apart: opens another connection to that node.
        stream: the parameters of `startd.join`.
        secret: see `pool.outside`.

    Raises:
        PoolError, TimeoutError: it cannot be opened.
    """
    if not isinstance(link, WireConnection) or not link.detachable:
        raise CallRefused("this link has no socket")
    ticket, key = secret(16), bytes.fromhex(secret(KEY))
    params = {**stream, "ticket": ticket}
    return ticket, BulkSender(
        await open_connection(link, apart, ("startd.open_bulk", "startd.wait_bulk"), params, key), key
    )


async def open_connection(
    link: Connection,
    apart: Callable[[], Awaitable[Connection]],
    verbs: tuple[str, str],
    params: dict[str, Any],
    key: bytes = b"",
) -> socket.socket:
    """Open a connection to the node at the other end of a link that both take out of the protocol; return its socket.

    Args:
        apart: opens another connection to that node.
        verbs: the notice on the new connection that lends it, and the call that waits until the other side has it.
        params: of both.
        key: goes with the notice.

    Raises:
        PoolError, TimeoutError: it cannot be opened.
    """
    async with asyncio.timeout(PATIENCE):
        other = await apart()
        try:
            other.notify(verbs[0], {**params, "key": key})
            await link.call(verbs[1], params, timeout=PATIENCE)
            if not isinstance(other, WireConnection):
                raise CallRefused("this link has no socket")
            return await other.detach()
        except BaseException:
            if not other.closed.done():
                await other.close()
            raise
