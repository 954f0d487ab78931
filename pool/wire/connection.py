"""A connection as its users see it, and the one that speaks the protocol over a transport.

    Connection        call, notify, stream, close; both sides may call at any time
    WireConnection    an `asyncio.Protocol` around the sans-I/O core, for TCP, TLS, unix sockets and memory

What is written in one turn of the loop after the first frame leaves as one piece. While the transport is
full, callers wait and streams have no credit; a side that does not read at all is dropped before it costs
memory without end. Who is on the other side is found out by the network that made the connection.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, cast

from pool.errors import PoolError
from pool.wire import events as ev
from pool.wire.bounds import MEMBER, STRANGER
from pool.wire.dispatch import Call, Dispatcher, Entry, cancel_soon, outcome
from pool.wire.errors import (
    CannotConnect,
    ConnectionLost,
    DeadlineExceeded,
    LocalFault,
    Refused,
    RemoteError,
    WireError,
)
from pool.wire.frames import LARGE
from pool.wire.identity import ANONYMOUS, Identity
from pool.wire.protocol import Protocol
from pool.wire.states import Phase
from pool.wire.stream import Stream

log = logging.getLogger("pool.wire")

HIGH_WATER = 1024 * 1024  # bytes waiting to be written: from here on callers wait
TOO_HIGH = 64 * 1024 * 1024  # bytes: the other side does not read
GREETING_SECONDS = 10.0
STRANGER_SECONDS = 60.0
CLOSING_SECONDS = 3.0

Identify: TypeAlias = Callable[[Mapping[str, Any], asyncio.BaseTransport], Identity]


class Connection(ABC):
    """A connection to another node, a user's tool, or this node itself.

    Attributes:
        identity: who is on the other side.
        address: where it leads, for people.
        closed: done when the connection is gone; its result is the reason, None after a close in peace.
    """

    identity: Identity
    address: str
    closed: asyncio.Future[WireError | None]

    @abstractmethod
    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0
    ) -> Any:
        """Call and wait for the result.

        Args:
            timeout: seconds; it travels with the call. None waits for as long as the connection lasts.

        Raises:
            RemoteError: the method raised, or was refused.
            DeadlineExceeded: no answer in time; it may have been done.
            ConnectionLost: it may have been done.
            LocalFault: the parameters cannot travel.
        """

    @abstractmethod
    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Tell, without an answer; silently nothing on a connection that is gone. Notifications start in
        order."""

    @abstractmethod
    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        """Open a stream. Its errors show when it is used. After `timeout` seconds the other side ends it."""

    @abstractmethod
    async def close(self) -> None:
        """Close; what is under way is lost on both sides."""


class WireConnection(asyncio.Protocol, Connection):
    """Speaks the protocol over a transport.

    Args:
        opener: whether this side connected.
        dispatcher: serves the other side's calls; None refuses them.
        identify: finds out who is there, from the hello and the transport; raises PoolError to refuse.
        hello: what this side says about itself.
        made: told when there is a transport; False turns the other side away.
    """

    def __init__(
        self,
        *,
        opener: bool,
        dispatcher: Dispatcher | None,
        identify: Identify,
        hello: Mapping[str, Any],
        address: str,
        made: Callable[[WireConnection], bool] | None = None,
    ) -> None:
        self._made = made
        self._loop = asyncio.get_running_loop()
        self.identity = ANONYMOUS
        self.address = address
        self.closed = self._loop.create_future()
        self.opened: asyncio.Future[None] = self._loop.create_future()
        self._core = Protocol(opener=opener, hello=hello)
        self._dispatcher = dispatcher or Dispatcher()
        self._identify = identify
        self._transport: asyncio.Transport | None = None
        self._corked = False
        self._paused = False
        self._reason: WireError | None = None
        self._calls: dict[int, asyncio.Future[Any]] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._streams: dict[int, Stream] = {}
        self._serving: dict[int, tuple[asyncio.Task[None], bool]] = {}
        self._stream_tasks: dict[int, asyncio.Task[None]] = {}
        self._notified: set[asyncio.Task[None]] = set()
        self._clock: asyncio.TimerHandle | None = None

    # -- calling ---------------------------------------------------------------------------------------------

    async def call(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0
    ) -> Any:
        loop = self._loop
        if self._paused or self._waiting or self._core.room <= 0:
            timeout = await self._wait_for_room(method, timeout)
        self._must_be_open(method)
        number = self._core.request(method, params or {}, timeout)
        future = self._calls[number] = loop.create_future()
        self._flush()
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
        if self.closed.done() or self._core.phase is not Phase.READY:
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
            self._core.phase = Phase.CLOSED
            self._over(None)

    # -- streams' carrier ------------------------------------------------------------------------------------

    def stream_credit(self, number: int) -> int:
        return 0 if self._paused else self._core.credit(number)

    def stream_send(self, number: int, item: object) -> int:
        left = self._core.send(number, item)
        self._flush()
        return 0 if self._paused else left

    def stream_used(self, number: int, size: int) -> None:
        if not self.closed.done():
            self._core.give_credit(number, size)
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
        if number not in self._stream_tasks:
            self._streams.pop(number, None)

    # -- transport -------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        if self._made is not None and not self._made(self):
            self._transport.abort()
            return
        self._clock = self._loop.call_later(GREETING_SECONDS, self._too_slow)
        if self._core.opener:
            self._core.greet()
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
        if reason is None and self._core.phase is not Phase.CLOSED:
            said = f": {exc}" if exc is not None and str(exc) else ""
            reason = ConnectionLost(f"the connection to {self.address} was lost{said}")
        self._core.phase = Phase.CLOSED
        self._over(reason)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._let_in()
        for stream in list(self._streams.values()):
            stream.credited()

    def _flush(self) -> None:
        """Write the first frame of a turn at once, and those that follow in it together."""
        if self._corked or self._transport is None:
            return
        self._corked = True
        self._loop.call_soon(self._uncork)
        self._write()

    def _uncork(self) -> None:
        self._corked = False
        self._write()

    def _write(self) -> None:
        pieces = self._core.take()
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
        self._core.bye(reason)
        self._write()
        if self._transport is not None:
            self._transport.close()
            if self._clock is not None:
                self._clock.cancel()
            self._clock = self._loop.call_later(CLOSING_SECONDS, self._transport.abort)
        elif not self.closed.done():
            self._over(reason)

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
                self._on_request(event)
            case ev.Notification():
                self._on_notification(event)
            case ev.StreamItem():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.fed(event.item, event.size)
            case ev.StreamCredit():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.credited()
            case ev.StreamOpened():
                self._on_opened(event)
            case ev.StreamFinished():
                if (stream := self._streams.get(event.number)) is not None:
                    stream.finished()
            case ev.StreamEnded():
                self._on_ended(event)
            case ev.Cancel():
                task, cancellable = self._serving.get(event.number, (None, False))
                if task is not None and cancellable:
                    cancel_soon(task)
            case ev.Hello():
                self._on_hello(event.said)
            case ev.Closed():
                self._on_closed(event.reason)
        self._flush()

    def _on_hello(self, said: dict[str, Any]) -> None:
        assert self._transport is not None
        try:
            self.identity = self._identify(said, self._transport)
        except PoolError as error:
            self._shut(CannotConnect(error.message, hint=error.hint, retry=error.retry))
            return
        stranger = self.identity.kind == "anonymous"
        if not self._core.opener:
            self._core.greet(STRANGER if stranger else MEMBER)
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None
        if stranger and not self._core.opener:
            self._clock = self._loop.call_later(STRANGER_SECONDS, self._too_slow)
        if not self.opened.done():
            self.opened.set_result(None)

    def _on_closed(self, reason: WireError | None) -> None:
        if reason is not None:
            what = "closed the connection" if isinstance(reason, RemoteError) else "broke the protocol"
            kind = ConnectionLost if self.opened.done() else CannotConnect
            self._reason = kind(
                f"{self.address} {what}: {reason.message}", hint=reason.hint, retry=reason.retry
            )
            log.debug(
                "closed", extra={"address": self.address, "peer": str(self.identity), "why": str(reason)}
            )
        self._write()
        if self._transport is not None:
            self._transport.close()

    def _on_request(self, event: ev.Request) -> None:
        try:
            entry = self._dispatcher.find(event.method, self.identity, event.params, streaming=False)
        except Refused as error:
            self._core.reply(event.number, None, error)
            return
        call = self._call(event.seconds)
        task = self._loop.create_task(self._answer(entry, call, event))
        self._serving[event.number] = task, entry.declared.cancellable
        if entry.declared.cancellable:
            entry.watch(task, event.seconds)

    async def _answer(self, entry: Entry, call: Call, event: ev.Request) -> None:
        result, error = await outcome(entry, call, event.params)
        del self._serving[event.number]
        if self._core.phase is not Phase.READY:
            return
        try:
            self._core.reply(event.number, result, error)
        except LocalFault as fault:
            log.error("an answer cannot travel", extra={"method": entry.name, "error": str(fault)})
            self._core.reply(event.number, None, LocalFault(f"the answer of {entry.name}: {fault.message}"))
        self._flush()

    def _on_notification(self, event: ev.Notification) -> None:
        try:
            entry = self._dispatcher.find(event.method, self.identity, event.params, streaming=False)
        except Refused as error:
            log.warning("refused", extra={"peer": str(self.identity), "error": str(error)})
            return
        task = self._loop.create_task(self._hear(entry, event))
        self._notified.add(task)
        task.add_done_callback(self._notified.discard)

    async def _hear(self, entry: Entry, event: ev.Notification) -> None:
        _, error = await outcome(entry, self._call(None), event.params)
        if isinstance(error, PoolError):
            log.warning("a notification failed", extra={"method": entry.name, "error": str(error)})

    def _on_opened(self, event: ev.StreamOpened) -> None:
        try:
            entry = self._dispatcher.find(event.method, self.identity, event.params, streaming=True)
        except Refused as error:
            self._core.end(event.number, error)
            return
        stream = Stream(self, event.number, event.method, self._core.bounds.window)
        self._streams[event.number] = stream
        task = self._loop.create_task(self._attend(entry, self._call(event.seconds), event, stream))
        self._stream_tasks[event.number] = task
        entry.watch(task, event.seconds)

    async def _attend(self, entry: Entry, call: Call, event: ev.StreamOpened, stream: Stream) -> None:
        _, error = await outcome(entry, call, event.params, stream)
        stream.ended(None)
        del self._stream_tasks[event.number]
        self.stream_end(event.number, error)
        self._streams.pop(event.number, None)

    def _on_ended(self, event: ev.StreamEnded) -> None:
        stream = self._streams.get(event.number)
        if stream is None:
            return
        task = self._stream_tasks.get(event.number)
        if task is None:
            del self._streams[event.number]
            stream.ended(event.error)
        else:
            cancel_soon(task)

    # -- ends ------------------------------------------------------------------------------------------------

    def _over(self, reason: WireError | None) -> None:
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
        for task, cancellable in self._serving.values():
            if cancellable:
                cancel_soon(task)
        for number, stream in self._streams.items():
            if number in self._stream_tasks:
                cancel_soon(self._stream_tasks[number])
            else:
                stream.ended(lost)

    def _overdue(self, number: int, method: str, timeout: float) -> None:
        future = self._calls.get(number)
        if future is not None and not future.done():
            future.set_exception(
                DeadlineExceeded(f"{self.address} did not answer {method} within {timeout:g} s")
            )
            self._give_up(number)

    def _give_up(self, number: int) -> None:
        if self._calls.pop(number, None) is not None and not self.closed.done():
            self._core.cancel(number)
            self._flush()

    def _too_slow(self) -> None:
        self._clock = None
        self._shut(CannotConnect(f"{self.address} did not introduce itself in time", retry=True))

    def _call(self, seconds: float | None) -> Call:
        return Call(self.identity, self, None if seconds is None else self._loop.time() + seconds)

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
                    if not self._paused and self._core.room > 0:
                        break
        except BaseException as error:
            if waiter in self._waiting:
                self._waiting.remove(waiter)
            self._let_in()
            if isinstance(error, TimeoutError):
                raise DeadlineExceeded(
                    f"{self.address} had no room for {method} within {timeout:g} s"
                ) from None
            raise
        return None if timeout is None else max(0.0, timeout - (self._loop.time() - began))

    def _let_in(self) -> None:
        room = self._core.room
        while self._waiting and not self._paused and room > 0:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def _must_be_open(self, method: str) -> None:
        if self.closed.done() or self._core.phase is not Phase.READY:
            why = self.closed.result() if self.closed.done() else self._reason
            said = why.message if why is not None else "it was closed"
            raise CannotConnect(f"cannot call {method}: {said}", hint=why.hint if why is not None else "")
