"""A stream between two parts of a job gets a lane (`pool.wire.lane`) when it turns out to carry much.

    writer's node                                   reader's node
    stream startd.join ------ items --------------> takes them
    connects once more: startd.lend {ticket, key}   gives that connection up, keeps its socket
    startd.lent {ticket} -------------------------> answers when that is done
    gives the connection up too
    stream: {lane: ticket}, its last item           what comes next comes by the lane
    lane =========== bytes, and the end ==========>

The stream stays: what the reader's side says (how much came, was used, all, gone) goes on it as before, and with it
ends the lane. A new connection to the same address goes wherever the first went, so that no firewall is to be asked;
where there is none all the same (the network is a test's, the other node knows no lanes) the stream carries on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Self

from pool.errors import PoolError
from pool.wire import Connection, Stream, WireConnection
from pool.wire.errors import Refused
from pool.wire.lane import KEY, ReceivingLane, SendingLane

#: Bytes that a stream has carried when it gets a lane.
WORTH = 4 << 20
#: Seconds that making one may take.
PATIENCE = 10.0

Opened = tuple[str, SendingLane]


class Leaving:
    """The writer's end of a stream that may get a lane.

    Args:
        stream: `startd.join`.
        open_lane: makes a lane to the same node, and its ticket there; raises PoolError, OSError or TimeoutError.
    """

    def __init__(self, stream: Stream, open_lane: Callable[[], Awaitable[Opened]]) -> None:
        self._stream = stream
        self._open_lane = open_lane
        self._opening: asyncio.Task[Opened | None] | None = None
        self._sent = 0
        self._lane: SendingLane | None = None

    async def send(self, item: Any) -> None:
        """Send bytes, or None for the end. Raises WireError when the stream is over."""
        if self._lane is None:
            await self._branch()
        if self._lane is not None:
            await self._lane.send(item or b"")
            return
        await self._stream.send(item)
        self._sent += len(item or b"")

    async def _branch(self) -> None:
        if self._opening is None:
            if self._sent >= WORTH:
                self._opening = asyncio.get_running_loop().create_task(self._opened())
        elif self._opening.done() and (opened := self._opening.result()) is not None:
            ticket, lane = opened
            await self._stream.send({"lane": ticket})
            self._lane = lane

    async def _opened(self) -> Opened | None:
        with contextlib.suppress(PoolError, OSError, TimeoutError):
            return await self._open_lane()
        return None

    async def receive(self) -> Any:
        """What the reader's side says next."""
        return await self._stream.receive()

    def __aiter__(self) -> Stream:
        return self._stream

    def widen(self, size: int) -> None:
        """Let the reader's side say so much more ahead."""
        self._stream.widen(size)

    async def finish(self) -> None:
        """Send no more."""
        await self._stream.finish()

    def abort(self) -> None:
        """Give stream and lane up."""
        self._stream.abort()
        if self._opening is not None and not self._opening.done():
            self._opening.cancel()
        elif self._opening is not None and not self._opening.cancelled():
            opened = self._opening.result()
            if opened is not None:
                opened[1].close()


class Arriving:
    """The reader's end of such a stream.

    Args:
        take: the lane with a ticket; raises Refused.
    """

    def __init__(self, stream: Stream, take: Callable[[str], ReceivingLane]) -> None:
        self._stream = stream
        self._take = take
        self._lane: ReceivingLane | None = None
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        if self._lane is None:
            item = await self._stream.__anext__()
            if not isinstance(item, dict):
                return item
            self._lane = self._take(str(item.get("lane")))
        if self._ended:
            return await self._stream.__anext__()
        data = await self._lane.receive()
        self._ended = not data
        return data or None

    async def receive(self) -> Any:
        """Bytes, or None for the end. Raises EOFError when the stream is over."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise EOFError("the stream has ended") from None

    async def send(self, item: Any) -> None:
        """Tell the writer's side."""
        await self._stream.send(item)

    def widen(self, size: int) -> None:
        """Let the writer's side send so many bytes more ahead."""
        self._stream.widen(size)

    async def finish(self) -> None:
        """Tell nothing more."""
        await self._stream.finish()

    def abort(self) -> None:
        """Give stream and lane up."""
        self._stream.abort()
        self.close()

    def close(self) -> None:
        """The lane is of no more use."""
        if self._lane is not None:
            self._lane.close()


class Lent:
    """Connections that writers' nodes have lent to this node, until their streams take them."""

    def __init__(self) -> None:
        self._lanes: dict[str, asyncio.Future[ReceivingLane]] = {}

    async def lend(self, ticket: str, key: bytes, connection: Connection) -> None:
        """Make a lane of a connection. Raises Refused: it cannot be one."""
        if not isinstance(connection, WireConnection) or len(key) != KEY:
            raise Refused("this connection cannot carry bytes of a job")
        lane = ReceivingLane(await connection.detach(), key)
        waiting = self._of(ticket)
        if waiting.done():
            lane.close()
            raise Refused("there is a connection with this ticket")
        waiting.set_result(lane)

    async def lent(self, ticket: str) -> None:
        """Wait until `lend` is done. Raises Refused: nobody lends within `PATIENCE` seconds."""
        try:
            async with asyncio.timeout(PATIENCE):
                await asyncio.shield(self._of(ticket))
        except TimeoutError:
            raise Refused("no connection with this ticket has come") from None

    def take(self, ticket: str) -> ReceivingLane:
        """The lane with this ticket, which is the taker's. Raises Refused: there is none."""
        waiting = self._lanes.pop(ticket, None)
        if waiting is None or not waiting.done():
            raise Refused("there is no connection with this ticket")
        return waiting.result()

    def _of(self, ticket: str) -> asyncio.Future[ReceivingLane]:
        waiting = self._lanes.get(ticket)
        if waiting is None:
            loop = asyncio.get_running_loop()
            waiting = self._lanes[ticket] = loop.create_future()
            loop.call_later(2 * PATIENCE, self._forget, ticket)
        return waiting

    def _forget(self, ticket: str) -> None:
        waiting = self._lanes.pop(ticket, None)
        if waiting is not None and waiting.done():
            waiting.result().close()
        elif waiting is not None:
            waiting.cancel()


async def open_lane(
    link: Connection, apart: Callable[[], Awaitable[Connection]], stream: dict[str, Any], secret: Callable[[int], str]
) -> Opened:
    """A lane to the node at the other end of a link, and its ticket there.

    Args:
        apart: makes another connection to it.
        stream: the parameters of `startd.join`.
        secret: see `pool.outside`.

    Raises:
        PoolError, TimeoutError: there is none to be had.
    """
    if not isinstance(link, WireConnection) or not link.detachable:
        raise Refused("this link has no socket")
    ticket, key = secret(16), bytes.fromhex(secret(KEY))
    async with asyncio.timeout(PATIENCE):
        other = await apart()
        try:
            other.notify("startd.lend", {**stream, "ticket": ticket, "key": key})
            await link.call("startd.lent", {**stream, "ticket": ticket}, timeout=PATIENCE)
            if not isinstance(other, WireConnection):
                raise Refused("this link has no socket")
            peer = await other.detach()
        except BaseException:
            if not other.closed.done():
                await other.close()
            raise
    return ticket, SendingLane(peer, key)
