"""A stream as its users see it: items in both directions, each with credit of its own.

    async with await connection.stream("schedd.query", {}) as stream:
        async for batch in stream: ...

Leaving the block early gives the stream up. The other side's method ends the stream by returning or raising;
what it sent before that is delivered first. How items travel is the `Carrier`'s: a connection, or within a
process.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, Protocol, Self

from pool.wire.errors import Cancelled, LocalFault, WireError


class Carrier(Protocol):
    """The operations that a stream needs of its carrier. The numbers are the stream's id."""

    def stream_credit(self, number: int) -> int: ...
    def stream_send(self, number: int, item: object) -> int: ...
    def stream_used(self, number: int, size: int) -> None: ...
    def stream_finish(self, number: int) -> None: ...
    def stream_end(self, number: int, error: BaseException | None) -> None: ...


class Stream:
    """One side of a stream.

    Attributes:
        method: what was called.
    """

    __slots__ = (
        "_aborted",
        "_carrier",
        "_error",
        "_finished",
        "_inbox",
        "_loop",
        "_no_more",
        "_number",
        "_over",
        "_reader",
        "_senders",
        "_used",
        "_window",
        "method",
    )

    def __init__(self, carrier: Carrier, number: int, method: str, window: int) -> None:
        self.method = method
        self._loop = asyncio.get_running_loop()
        self._carrier = carrier
        self._number = number
        self._window = window
        self._inbox: deque[tuple[Any, int]] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._senders: deque[asyncio.Future[None]] = deque()
        self._used = 0
        self._finished = False  # we send no more
        self._no_more = False  # they send no more
        self._over = False  # they are done with it, or the connection is gone
        self._aborted = False  # we gave it up
        self._error: WireError | None = None

    # -- reading ---------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        while not self._inbox:
            if self._error is not None:
                raise self._error
            if self._no_more or self._over or self._aborted:
                raise StopAsyncIteration
            if self._reader is not None:
                raise LocalFault(f"two readers of one stream ({self.method})")
            self._reader = self._loop.create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        item, size = self._inbox.popleft()
        self._used += size
        if self._used * 2 >= self._window and not (self._no_more or self._over):
            used, self._used = self._used, 0
            self._carrier.stream_used(self._number, used)
        return item

    async def receive(self) -> Any:
        """The next item.

        Raises:
            EOFError: there are no more.
        """
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise EOFError(f"{self.method} has ended") from None

    # -- writing ---------------------------------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether an item can be sent now, without a wait for the other side."""
        return not self._senders and self._carrier_credit() > 0

    async def send(self, item: object) -> None:
        """Send an item, once the other side has room for it.

        Raises:
            WireError: the stream is over (by the other side's error, if there was one), or the item cannot
            travel.
        """
        if not self.has_room:
            await self._wait_credit()
        if self._carrier.stream_send(self._number, item) > 0:
            self._wake_sender()

    async def finish(self) -> None:
        """Send no more; reading goes on."""
        if not self._finished and not self._over and not self._aborted:
            self._finished = True
            self._carrier.stream_finish(self._number)

    def abort(self, error: BaseException | None = None) -> None:
        """Give the stream up, at once and for both directions. Nothing happens if it is over."""
        if self._over or self._aborted:
            return
        self._aborted = True
        self._inbox.clear()
        self._carrier.stream_end(self._number, error or Cancelled(f"{self.method} was given up"))
        self._wake_all()

    def raise_limit(self, size: int) -> None:
        """Let the other side send so many bytes more ahead of what is read here, for as long as the stream lasts."""
        if not self._over and not self._aborted:
            self._window += size
            self._carrier.stream_used(self._number, size)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.abort()

    @property
    def is_over(self) -> bool:
        """Whether the other side is done with it, for both directions, or the connection is gone."""
        return self._over

    # -- what the carrier tells ------------------------------------------------------------------------------

    def item_received(self, item: object, size: int) -> None:
        """An item has come."""
        self._inbox.append((item, size))
        self._wake_reader()

    def credited(self) -> None:
        """There is credit to send."""
        self._wake_sender()

    def finished(self) -> None:
        """The other side sends no more."""
        self._no_more = True
        self._wake_reader()

    def ended(self, error: WireError | None) -> None:
        """The other side is done, or the connection is gone."""
        if not self._over and not self._aborted:
            self._over = True
            self._error = error
            self._wake_all()

    # -- small things ----------------------------------------------------------------------------------------

    async def _wait_credit(self) -> None:
        """Wait in line until there is credit and nobody is before us."""
        waiter = self._loop.create_future()
        self._senders.append(waiter)
        try:
            await waiter
            while self._carrier_credit() <= 0:
                waiter = self._senders[0] = self._loop.create_future()
                await waiter
        except BaseException:
            self._senders.remove(waiter)
            self._wake_sender()
            raise
        self._senders.popleft()

    def _carrier_credit(self) -> int:
        if self._over or self._aborted:
            raise self._error or LocalFault(f"cannot send: {self.method} has ended")
        if self._finished:
            raise LocalFault(f"cannot send: this side of {self.method} is finished")
        return self._carrier.stream_credit(self._number)

    def _wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    def _wake_sender(self) -> None:
        if self._senders and not self._senders[0].done():
            self._senders[0].set_result(None)

    def _wake_all(self) -> None:
        self._wake_reader()
        self._wake_sender()  # each that leaves the line wakes the next
