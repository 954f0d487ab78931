"""A connection from a node to itself: the same calls without a network.

Parameters, results and items are packed and unpacked once, so neither side sees the other's later changes and
what works here works between machines (tuples become lists, sets are refused). Bytes, which nobody can
change, are handed over as they are. Rights are checked as ever, with the identity the connection was made
with. Methods run in tasks of their own, as for a remote caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any

from pool.errors import PoolError
from pool.wire.bounds import MEMBER
from pool.wire.connection import Connection
from pool.wire.dispatch import Call, Dispatcher, RegisteredMethod, cancel_soon, outcome
from pool.wire.errors import (
    CallRefused,
    CannotConnect,
    ConnectionLost,
    DeadlineExceeded,
    LocalFault,
    from_wire,
    to_wire,
)
from pool.wire.frames import Encoder, decode
from pool.wire.identity import Identity
from pool.wire.stream import Stream

log = logging.getLogger("pool.wire")


class LocalConnection(Connection):
    """Calls the methods of a dispatcher in this process.

    Args:
        back: serves what the methods call on their `call.connection`; without it that is the connection itself.
    """

    def __init__(
        self, dispatcher: Dispatcher, identity: Identity, address: str = "local:", back: Dispatcher | None = None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.identity = identity
        self.address = address
        self.closed = self._loop.create_future()
        self._dispatcher = dispatcher
        self._encoder = Encoder()
        self._calls: dict[asyncio.Future[Any], asyncio.Task[None] | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: dict[_LocalCarrier, None] = {}
        self._other_side = self
        if back is not None:
            self._other_side = LocalConnection(back, identity, address)
            self._other_side._other_side = self

    async def call(self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = 30.0) -> Any:
        loop = self._loop
        entry, params = self._find(method, params, streaming=False)
        call = Call(self.identity, self._other_side, None if timeout is None else loop.time() + timeout)
        answer = loop.create_future()
        task = loop.create_task(self._run(entry, call, params, answer))
        cancellable = entry.declared.cancellable
        if cancellable:
            entry.watch(task, timeout)
        self._calls[answer] = task if cancellable else None
        self._tasks.add(task)
        timer = None if timeout is None else loop.call_later(timeout, _overdue, answer, method, timeout)
        try:
            result = await answer
        except (asyncio.CancelledError, DeadlineExceeded):
            if cancellable:
                cancel_soon(task)
            raise
        finally:
            del self._calls[answer]
            if timer is not None:
                timer.cancel()
        return result

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        if self.closed.done():
            return
        try:
            entry, params = self._find(method, params, streaming=False)
        except PoolError as error:
            if isinstance(error, LocalFault):
                raise
            log.warning("refused", extra={"peer": str(self.identity), "error": str(error)})
            return
        self._tasks.add(self._loop.create_task(self._run_notified(entry, params)))

    async def stream(
        self, method: str, params: Mapping[str, Any] | None = None, timeout: float | None = None
    ) -> Stream:
        here, there = _LocalCarrier(self), _LocalCarrier(self)
        here.stream, there.stream = (Stream(end, 0, method, MEMBER.window) for end in (here, there))
        here.other, there.other = there, here
        try:
            entry, params = self._find(method, params, streaming=True)
        except CannotConnect:
            raise
        except PoolError as error:
            here.stream.ended(from_wire(to_wire(error)))
            return here.stream
        call = Call(self.identity, self._other_side, None if timeout is None else self._loop.time() + timeout)
        there.task = self._loop.create_task(self._run_streaming(entry, call, params, there))
        entry.watch(there.task, timeout)
        self._streams[here] = None
        return here.stream

    async def close(self) -> None:
        if self.closed.done():
            return
        self.closed.set_result(None)
        lost = ConnectionLost(f"the connection to {self.address} was closed")
        for answer, task in self._calls.items():
            if not answer.done():
                answer.set_exception(lost)
            if task is not None:
                cancel_soon(task)
        for end in list(self._streams):
            if end.other is not None and end.other.task is not None:
                cancel_soon(end.other.task)
            end.stream.ended(lost)
        await self._other_side.close()

    # -- running ---------------------------------------------------------------------------------------------

    def _find(
        self, method: str, params: Mapping[str, Any] | None, *, streaming: bool
    ) -> tuple[RegisteredMethod, dict[str, Any]]:
        if self.closed.done():
            raise CannotConnect(f"cannot call {method}: the connection was closed")
        given = self.copy(params or {})[0]
        try:
            return self._dispatcher.find(method, self.identity, given, streaming=streaming), given
        except CallRefused as error:
            raise from_wire(to_wire(error)) from None

    async def _run(self, entry: RegisteredMethod, call: Call, params: Any, answer: asyncio.Future[Any]) -> None:
        result, error = await outcome(entry, call, params)
        self._tasks.discard(asyncio.current_task())
        if answer.done():
            return
        try:
            if isinstance(error, DeadlineExceeded) and call.deadline is not None and self._loop.time() >= call.deadline:
                answer.set_exception(error)  # the method's timer was quicker than the caller's
            elif error is not None:
                answer.set_exception(from_wire(to_wire(error)))
            else:
                answer.set_result(self.copy(result)[0])
        except LocalFault as fault:
            fault = LocalFault(f"the answer of {entry.name}: {fault.message}")
            answer.set_exception(from_wire(to_wire(fault)))

    async def _run_notified(self, entry: RegisteredMethod, params: Any) -> None:
        _, error = await outcome(entry, Call(self.identity, self._other_side, None), params)
        self._tasks.discard(asyncio.current_task())
        if isinstance(error, PoolError):
            log.warning("a notification failed", extra={"method": entry.name, "error": str(error)})

    async def _run_streaming(self, entry: RegisteredMethod, call: Call, params: Any, end: _LocalCarrier) -> None:
        _, error = await outcome(entry, call, params, end.stream)
        end.stream.ended(None)
        end.stream_end(0, error)

    def copy(self, value: object) -> tuple[Any, int]:
        """The value as it would arrive, and its size in bytes."""
        if type(value) is bytes and len(value) < MEMBER.frame:
            return value, len(value)
        _, body = self._encoder.encode(value, MEMBER.frame)
        return decode(body), len(body)

    def forget(self, end: _LocalCarrier) -> None:
        self._streams.pop(end, None)


class _LocalCarrier:
    """The carrier of one side of a local stream."""

    stream: Stream
    other: _LocalCarrier | None = None
    task: asyncio.Task[None] | None = None  # the method's, on the side that serves

    def __init__(self, connection: LocalConnection) -> None:
        self._connection = connection
        self._credit = MEMBER.window
        self._ended = False

    def stream_credit(self, number: int) -> int:
        return self._credit

    def stream_send(self, number: int, item: object) -> int:
        copy, size = self._connection.copy(item)
        self._credit -= size
        if self.other is not None:
            self.other.stream.item_received(copy, size)
        return self._credit

    def stream_used(self, number: int, size: int) -> None:
        if self.other is not None:
            self.other._credit += size
            self.other.stream.credited()

    def stream_finish(self, number: int) -> None:
        if self.other is not None:
            self.other.stream.finished()

    def stream_end(self, number: int, error: BaseException | None) -> None:
        if self._ended:
            return
        self._ended = True
        other = self.other
        if other is None:
            return
        if other.task is not None:
            cancel_soon(other.task)
            self._connection.forget(self)
        else:
            other.stream.ended(None if error is None else from_wire(to_wire(error)))
            self._connection.forget(other)


def _overdue(answer: asyncio.Future[Any], method: str, timeout: float) -> None:
    if not answer.done():
        answer.set_exception(DeadlineExceeded(f"this node did not answer {method} within {timeout:g} s"))
