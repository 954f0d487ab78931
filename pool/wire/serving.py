"""Answering: what the other side of a connection has asked for and is not done yet.

One task for each call. Every request is replied to, whatever its method does, and every stream is ended. The endpoint
calls for these, and writes what they produce.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.wire import events as ev
from pool.wire.dispatch import Call, Dispatcher, RegisteredMethod, cancel_soon, outcome
from pool.wire.errors import CallRefused, LocalFault
from pool.wire.protocol import Protocol
from pool.wire.states import ConnectionPhase
from pool.wire.stream import Stream

if TYPE_CHECKING:
    from pool.wire.endpoint import WireConnection

log = logging.getLogger("pool.wire")


class Serving:
    """The serving half of one connection.

    Args:
        connection: given to methods as `call.connection`; carries the streams.
        core: what replies are said to.
        streams: the connection's table, ours and theirs, by number.
        flush: has what the core produced written.
    """

    def __init__(
        self,
        connection: WireConnection,
        core: Protocol,
        dispatcher: Dispatcher,
        streams: dict[int, Stream],
        flush: Callable[[bool], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._core = core
        self._dispatcher = dispatcher
        self._streams = streams
        self._flush = flush
        self._requests: dict[int, tuple[asyncio.Task[None], bool]] = {}
        self._attending: dict[int, asyncio.Task[None]] = {}
        self._hearing: set[asyncio.Task[None]] = set()

    # -- requests --------------------------------------------------------------------------------------------

    def request(self, event: ev.Request) -> None:
        """Run a method and reply."""
        try:
            entry = self._dispatcher.find(event.method, self._connection.identity, event.params, streaming=False)
        except CallRefused as error:
            self._core.reply(event.number, None, error)
            return
        cancellable = entry.declared.cancellable
        task = self._loop.create_task(self._answer(entry, event))
        self._requests[event.number] = task, cancellable
        if cancellable:
            entry.watch(task, event.seconds)

    async def _answer(self, entry: RegisteredMethod, event: ev.Request) -> None:
        result, error = await outcome(entry, self._call(event.seconds), event.params)
        del self._requests[event.number]
        if self._core.phase is not ConnectionPhase.READY:
            return
        try:
            self._core.reply(event.number, result, error)
        except LocalFault as fault:
            log.error("an answer cannot travel", extra={"method": entry.name, "error": str(fault)})
            self._core.reply(event.number, None, LocalFault(f"the answer of {entry.name}: {fault.message}"))
        self._flush(not self._requests)

    def cancel(self, number: int) -> None:
        """The caller gave up: cancel a method that only waits. The others go on and are replied to."""
        task, cancellable = self._requests.get(number, (None, False))
        if task is not None and cancellable:
            cancel_soon(task)

    def notification(self, event: ev.Notification) -> None:
        """Run a method that nobody waits for."""
        identity = self._connection.identity
        try:
            entry = self._dispatcher.find(event.method, identity, event.params, streaming=False)
        except CallRefused as error:
            log.warning("refused", extra={"peer": str(identity), "error": str(error)})
            return
        task = self._loop.create_task(self._run_notified(entry, event))
        self._hearing.add(task)
        task.add_done_callback(self._hearing.discard)

    async def _run_notified(self, entry: RegisteredMethod, event: ev.Notification) -> None:
        _, error = await outcome(entry, self._call(None), event.params)
        if isinstance(error, PoolError):
            log.warning("a notification failed", extra={"method": entry.name, "error": str(error)})

    # -- streams ---------------------------------------------------------------------------------------------

    def opened(self, event: ev.StreamOpened) -> None:
        """Run a method with a stream, and end that with it."""
        try:
            entry = self._dispatcher.find(event.method, self._connection.identity, event.params, streaming=True)
        except CallRefused as error:
            self._core.end(event.number, error)
            return
        stream = Stream(self._connection, event.number, event.method, self._core.bounds.window)
        self._streams[event.number] = stream
        task = self._loop.create_task(self._run_streaming(entry, event, stream))
        self._attending[event.number] = task
        entry.watch(task, event.seconds)

    async def _run_streaming(self, entry: RegisteredMethod, event: ev.StreamOpened, stream: Stream) -> None:
        _, error = await outcome(entry, self._call(event.seconds), event.params, stream)
        stream.ended(None)
        del self._attending[event.number]
        self._connection.stream_end(event.number, error)
        self._streams.pop(event.number, None)

    def has_stream(self, number: int) -> bool:
        """Whether a method of ours has that stream."""
        return number in self._attending

    def abandoned(self, number: int) -> None:
        """The other side gave up a stream that it had opened."""
        task = self._attending.get(number)
        if task is not None:
            cancel_soon(task)

    # -- ends ------------------------------------------------------------------------------------------------

    def cancel_all(self) -> None:
        """Nobody listens any more: cancel what only waits, and all that has a stream."""
        for task, cancellable in self._requests.values():
            if cancellable:
                cancel_soon(task)
        for task in self._attending.values():
            cancel_soon(task)

    def _call(self, seconds: float | None) -> Call:
        deadline = None if seconds is None else self._loop.time() + seconds
        return Call(self._connection.identity, self._connection, deadline)
