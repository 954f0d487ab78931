"""A connection over a transport: an `asyncio.Protocol` around the core, for TLS, unix sockets and memory.

Writes of one turn of the loop after the first frame leave as one piece. While the transport is full, callers wait and
streams have no credit. A side that does not read at all is dropped before it costs memory without end. The network that
made the connection finds out who is on the other side; `serving` answers its requests.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from pool.errors import PoolError
from pool.wire import events as ev
from pool.wire.bounds import MEMBER, STRANGER
from pool.wire.connection import Connection
from pool.wire.dispatch import Dispatcher
from pool.wire.errors import CannotConnect, ConnectionLost, DeadlineExceeded, LocalFault, RemoteError, WireError
from pool.wire.frames import LARGE
from pool.wire.identity import ANONYMOUS, Identity
from pool.wire.protocol import Protocol
from pool.wire.serving import Serving
from pool.wire.states import ConnectionPhase
from pool.wire.stream import Stream

log = logging.getLogger("pool.wire")

HIGH_WATER = 1024 * 1024  # bytes waiting to be written: from here on callers wait
TOO_HIGH = 64 * 1024 * 1024  # bytes: the other side does not read
GREETING_SECONDS = 10.0
STRANGER_SECONDS = 60.0
CLOSING_SECONDS = 3.0
LONGEST_TIMER = 30 * 86400.0  # seconds; a token that is good for longer is looked at when it comes again

Identify: TypeAlias = Callable[[Mapping[str, Any], asyncio.BaseTransport], Identity]


class WireConnection(asyncio.Protocol, Connection):
    """Speaks the protocol over a transport.

    Args:
        opener: whether this side connected.
        dispatcher: serves the other side's calls; None refuses them.
        identify: finds out who is there, from the hello and the transport; raises PoolError to refuse.
        hello: what this side says about itself.
    """

    def __init__(
        self,
        *,
        opener: bool,
        dispatcher: Dispatcher | None,
        identify: Identify,
        hello: Mapping[str, Any],
        address: str,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.identity = ANONYMOUS
        self.address = address
        self.closed = self._loop.create_future()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._core = Protocol(opener=opener, hello=hello)
        self._identify = identify
        self._transport: asyncio.Transport | None = None
        self._corked = False
        self._paused = False
        self._reason: WireError | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._streams: dict[int, Stream] = {}
        self._serving = Serving(self, self._core, dispatcher or Dispatcher(), self._streams, self._flush)
        self._clock: asyncio.TimerHandle | None = None

    # -- calling ---------------------------------------------------------------------------------------------

    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        loop = self._loop
        if self._paused or self._waiting or self._core.spare_requests <= 0:
            timeout = await self._wait_for_room(method, timeout)
        self._must_be_open(method)
        number = self._core.request(method, params or {}, timeout)
        future = self._calls[number] = loop.create_future()
        self._flush(len(self._calls) == 1)
        timer = None if timeout is None else loop.call_later(timeout, self._overdue, number, method, timeout)
        try:
            return await future
        except asyncio.CancelledError:
            self._give_up(number)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self.closed.done() or self._core.phase is not ConnectionPhase.READY:
            return
        self._core.notify(method, params or {})
        self._flush()

    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        if self._paused:
            await self._wait_for_room(method, 30.0)
        self._must_be_open(method)
        number = self._core.open(method, params or {}, timeout)
        stream = self._streams[number] = Stream(self, number, method, self._core.bounds.window)
        self._flush()
        return stream

    async def close(self) -> None:
        self._shut(None)
        await asyncio.wait([self.closed], timeout=CLOSING_SECONDS)
        if self._transport is not None and not self.closed.done():
            self._transport.abort()
            await asyncio.wait([self.closed])

    def drop(self) -> None:
        """Close without a word, for a connection that did not come about."""
        if self._transport is not None:
            self._transport.abort()
        elif not self.closed.done():
            self._core.phase = ConnectionPhase.CLOSED
            self._end_connection(None)

    @property
    def detachable(self) -> bool:
        """Whether there is a socket to `detach`."""
        return self._transport is not None and self._transport.get_extra_info("socket") is not None

    async def detach(self) -> socket.socket:
        """Give the connection up and keep its socket, whose bytes are the caller's from now on.

        Both sides do so, and neither may have said anything that the other has not heard: a side knows that by another
        connection only, for on this one nothing can be said any more.

        Raises:
            LocalFault: it has no socket, or is over.
        """
        if not self.detachable or self.closed.done():
            raise LocalFault(f"the connection to {self.address} has no socket to give away")
        assert self._transport is not None
        self._write()  # the last words leave first
        kept = socket.socket(fileno=os.dup(self._transport.get_extra_info("socket").fileno()))
        try:
            self.drop()
            await asyncio.wait([self.closed])
        except BaseException:
            kept.close()
            raise
        return kept

    # -- streams' carrier ------------------------------------------------------------------------------------

    def stream_credit(self, number: int) -> int:
        return 0 if self._paused else self._core.credit(number)

    def stream_send(self, number: int, item: object) -> int:
        left = self._core.send(number, item)
        self._flush()
        return 0 if self._paused else left

    def stream_used(self, number: int, size: int) -> None:
        if not self.closed.done():
            self._core.grant_credit(number, size)
            self._flush()

    def stream_finish(self, number: int) -> None:
        if not self.closed.done():
            self._core.finish(number)
            self._flush()

    def stream_end(self, number: int, error: BaseException | None) -> None:
        if self.closed.done():
            return
        self._core.end(number, error)
        self._flush()
        if not self._serving.has_stream(number):
            self._streams.pop(number, None)

    # -- transport -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        if self.closed.done():  # it was closed before it had one
            self._transport.abort()
            return
        self._clock = self._loop.call_later(GREETING_SECONDS, self._too_slow)
        if self._core.opener:
            self._core.send_hello()
            self._flush()

    def data_received(self, data: bytes) -> None:
        for event in self._core.receive(data):
            if type(event) is ev.Reply:
                self._on_reply(event)
            else:
                self._on_event(event)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: BaseException | None) -> None:
        reason = self._reason
        if reason is None and self._core.phase is not ConnectionPhase.CLOSED:
            said = f": {exc}" if exc is not None and str(exc) else ""
            if self.opened.done():
                reason = ConnectionLost(f"the connection to {self.address} was lost{said}")
            else:
                reason = CannotConnect(f"cannot connect to {self.address}: it closed the connection{said}")
        self._core.phase = ConnectionPhase.CLOSED
        self._end_connection(reason)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._let_in()
        for stream in list(self._streams.values()):
            stream.credited()

    def _flush(self, alone: bool = False) -> None:
        """Write the first frame of a turn at once, and those that follow in it together.

        Args:
            alone: nothing else is under way, so nothing is expected to follow.
        """
        if self._corked or not self._core.out or self._transport is None:
            return
        if not alone:
            self._corked = True
            self._loop.call_soon(self._uncork)
        self._write()

    def _uncork(self) -> None:
        self._corked = False
        self._write()

    def _write(self) -> None:
        pieces = self._core.take_output()
        transport = self._transport
        if not pieces or transport is None or transport.is_closing():
            return
        if len(pieces) == 1:
            transport.write(pieces[0])
        elif sum(map(len, pieces)) <= LARGE:
            transport.write(b"".join(pieces))
        else:
            transport.writelines(pieces)
        if self._paused and transport.get_write_buffer_size() > TOO_HIGH:
            self._reason = ConnectionLost(f"{self.address} does not read what it is sent")
            transport.abort()

    def _shut(self, reason: WireError | None) -> None:
        """Say goodbye and close."""
        self._reason = self._reason or reason
        self._core.send_goodbye(reason)
        self._write()
        if self._transport is not None:
            self._transport.close()
            if self._clock is not None:
                self._clock.cancel()
            self._clock = self._loop.call_later(CLOSING_SECONDS, self._transport.abort)
        elif not self.closed.done():
            self._end_connection(reason)

    # -- events ----------------------------------------------------------------------------------------------

    def _on_reply(self, event: ev.Reply) -> None:
        future = self._calls.pop(event.number, None)
        if future is not None and not future.done():
            if event.error is not None:
                future.set_exception(event.error)
            else:
                future.set_result(event.result)
        if self._waiting:
            self._let_in()

    def _on_event(self, event: ev.Event) -> None:
        match event:
            case ev.Request():
                self._serving.request(event)
            case ev.Notification():
                self._serving.notification(event)
            case ev.StreamItem():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.item_received(event.item, event.size)
            case ev.StreamCredit():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.credited()
            case ev.StreamOpened():
                self._serving.opened(event)
            case ev.StreamFinished():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.finished()
            case ev.StreamEnded():
                if self._serving.has_stream(event.number):
                    self._serving.abandoned(event.number)
                elif (stream := self._streams.pop(event.number, None)) is not None:
                    stream.ended(event.error)
            case ev.Cancel():
                self._serving.cancel(event.number)
            case ev.Hello():
                self._on_hello(event.said)
            case ev.Closed():
                self._on_closed(event.reason)
        self._flush()

    def _on_hello(self, said: dict[str, Any]) -> None:
        assert self._transport is not None
        if self._core.phase is ConnectionPhase.CLOSED:
            return
        try:
            self.identity = self._identify(said, self._transport)
        except PoolError as error:
            self._shut(CannotConnect(error.message, hint=error.hint, retry=error.retry))
            return
        stranger = self.identity.kind == "anonymous"
        if not self._core.opener:
            self._core.send_hello(STRANGER if stranger else MEMBER)
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if self.identity.seconds is not None:
            self._clock = self._loop.call_later(min(self.identity.seconds, LONGEST_TIMER), self._expired)
        if stranger and not self._core.opener:
            self._clock = self._loop.call_later(STRANGER_SECONDS, self._too_slow)
        if not self.opened.done():
            self.opened.set_result(None)

    def _on_closed(self, reason: WireError | None) -> None:
        if reason is not None:
            what = "closed the connection" if isinstance(reason, RemoteError) else "broke the protocol"
            kind = ConnectionLost if self.opened.done() else CannotConnect
            self._reason = kind(f"{self.address} {what}: {reason.message}", hint=reason.hint, retry=reason.retry)
            log.debug("closed", extra={"address": self.address, "peer": str(self.identity), "why": str(reason)})
        self._write()
        if self._transport is not None:
            self._transport.close()

    # -- ends ------------------------------------------------------------------------------------------------

    def _end_connection(self, reason: WireError | None) -> None:
        """The connection is gone: everything under way ends, except what changes something here."""
        if self.closed.done():
            return
        self.closed.set_result(reason)
        if self._clock is not None:
            self._clock.cancel()
        lost = reason or ConnectionLost(f"the connection to {self.address} was closed")
        if not self.opened.done():
            self.opened.set_exception(lost)
            self.opened.exception()
        for future in [*self._calls.values(), *self._waiting]:
            if not future.done():
                future.set_exception(lost)
                future.exception()
        self._calls.clear()
        self._waiting.clear()
        self._serving.cancel_all()
        for number, stream in self._streams.items():
            if not self._serving.has_stream(number):
                stream.ended(lost)

    def _overdue(self, number: int, method: str, timeout: float) -> None:
        future = self._calls.get(number)
        if future is not None and not future.done():
            future.set_exception(DeadlineExceeded(f"{self.address} did not answer {method} within {timeout:g} s"))
            self._give_up(number)

    def _give_up(self, number: int) -> None:
        if self._calls.pop(number, None) is not None and not self.closed.done():
            self._core.cancel(number)
            self._flush()

    def _too_slow(self) -> None:
        self._clock = None
        self._shut(CannotConnect(f"{self.address} did not introduce itself in time", retry=True))

    def _expired(self) -> None:
        self._clock = None
        self._shut(CannotConnect("the token of this connection has expired", hint="have a new one made"))

    # -- room ------------------------------------------------------------------------------------------------

    async def _wait_for_room(self, method: str, timeout: float | None) -> float | None:
        """Wait while the transport is full or too much is under way; returns what is left of the timeout."""
        self._must_be_open(method)
        began = self._loop.time()
        try:
            async with asyncio.timeout(timeout):
                while True:
                    waiter = self._loop.create_future()
                    self._waiting.append(waiter)
                    await waiter
                    if not self._paused and self._core.spare_requests > 0:
                        break
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._let_in()
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(f"{self.address} had no room for {method} within {timeout:g} s") from None
            raise
        return None if timeout is None else max(0.0, timeout - (self._loop.time() - began))

    def _let_in(self) -> None:
        room = self._core.spare_requests
        while self._waiting and not self._paused and room > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def _must_be_open(self, method: str) -> None:
        if self.closed.done() or self._core.phase is not ConnectionPhase.READY:
            why = self.closed.result() if self.closed.done() else self._reason
            said = why.message if why is not None else "it was closed"
            raise CannotConnect(f"cannot call {method}: {said}", hint=why.hint if why is not None else "")
