"""All that a program watches in a pool, over one stream (`schedd.follow`).

Each watch has a number on the stream. A message opens and closes it, and events of its jobs come with its number. When
the stream ends for a temporary reason (the node is restarted, the connection is lost, the reader was too slow), it is
opened again, and every watch goes on from the last event that it had. A watch with a slow reader is closed for as long
as the reader needs, so that neither side keeps much for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from pool.client.patience import Patience
from pool.errors import PoolError

if TYPE_CHECKING:
    from pool.wire import Stream

WireEvent = dict[str, Any]
#: Events that wait for one reader before its watch is closed for a while.
MOST_WAITING = 20_000


class StreamOpener(Protocol):
    """The part of a Pool that opens streams."""

    patience: float

    def streaming(self, method: str, params: dict[str, Any]) -> AbstractAsyncContextManager[Stream]: ...


class Watch:
    """One watch: some jobs, or all.

    Args:
        ids: [cluster] and [cluster, process] of the jobs; None for all.
        after: the number of the last event that is not wanted; None for what happens from now on.
    """

    def __init__(self, number: int, ids: list[list[int]] | None, after: int | None) -> None:
        self.number = number
        self.ids = ids
        self.after = after
        self.paused = False
        self._waiting: deque[tuple[int, list[WireEvent]]] = deque()
        self._count = 0
        self._error: PoolError | None = None
        self._wake = asyncio.Event()

    def add_events(self, number: int, events: list[WireEvent]) -> bool:
        """Take what came; all of this watch up to an event's number has come with it. False: it is too much."""
        if self.paused:
            return True
        self._waiting.append((number, events))
        self._count += len(events)
        self._wake.set()
        self.paused = self._count > MOST_WAITING
        return not self.paused

    def failed(self, error: PoolError) -> None:
        """There will be no more."""
        self._error = error
        self._wake.set()

    @property
    def drained(self) -> bool:
        return not self._waiting

    async def next(self) -> list[WireEvent]:
        """The next events; an empty list says that there are none before now.

        Raises:
            PoolError: the schedd cannot be followed.
        """
        while not self._waiting:
            if self._error is not None:
                raise self._error
            self._wake.clear()
            await self._wake.wait()
        number, events = self._waiting.popleft()
        self._count -= len(events)
        self.after = number
        return events

    def opening(self) -> dict[str, Any]:
        """The message that opens it, from where it is."""
        return {"watch": self.number, "ids": self.ids, "after": self.after}


class PoolWatches:
    """The watches of one pool."""

    def __init__(self, streams: StreamOpener) -> None:
        self._streams = streams
        self._open: dict[int, Watch] = {}
        self._last = 0
        self._task: asyncio.Task[None] | None = None
        self._messages: deque[dict[str, Any]] = deque()
        self._to_send = asyncio.Event()

    async def events(
        self, ids: Iterable[Sequence[int]] | None = None, after: int | None = 0
    ) -> AsyncGenerator[list[WireEvent], None]:
        """The events of jobs, in wire form, as they happen, without end.

        Raises:
            PoolError: the schedd refuses, or did not come back within the pool's patience.
        """
        self._last += 1
        watch = Watch(self._last, None if ids is None else [list(one) for one in ids], after)
        self._open[watch.number] = watch
        self._queue_message(watch.opening())
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._follow(), name="follow jobs")
        try:
            while True:
                yield await watch.next()
                if watch.paused and watch.drained:
                    watch.paused = False
                    self._queue_message(watch.opening())
        finally:
            del self._open[watch.number]
            self._queue_message({"close": watch.number})
            if not self._open:
                self._stop()

    async def close(self) -> None:
        """End every watch."""
        task = self._task
        self._stop()
        if task is not None:
            await asyncio.wait([task])
        for watch in self._open.values():
            watch.failed(PoolError("the connection to the pool was closed"))

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def _queue_message(self, message: dict[str, Any]) -> None:
        self._messages.append(message)
        self._to_send.set()

    async def _follow(self) -> None:
        """Keep the stream open for as long as there are watches."""
        patience = Patience(self._streams.patience)
        while True:
            try:
                try:
                    async with self._streams.streaming("schedd.follow", {}) as stream:
                        await self._exchange(stream, patience)
                    raise PoolError("the schedd ended the stream of events", retry=True)
                except PoolError as error:
                    await patience.wait(error)
            except PoolError as error:
                for watch in self._open.values():
                    watch.failed(error)
                return

    async def _exchange(self, stream: Stream, patience: Patience) -> None:
        self._messages.clear()
        for watch in self._open.values():
            if not watch.paused:
                self._queue_message(watch.opening())
        sending = asyncio.get_running_loop().create_task(self._send(stream), name="send what is watched")
        try:
            async for items in stream:
                patience.goes_well()
                for number, upto, events in items:
                    watch_or_none = self._open.get(number)
                    if watch_or_none is not None and not watch_or_none.add_events(upto, events):
                        self._queue_message({"close": number})
        finally:
            sending.cancel()
            with contextlib.suppress(asyncio.CancelledError, PoolError):
                await sending

    async def _send(self, stream: Stream) -> None:
        while True:
            while self._messages:
                await stream.send(self._messages.popleft())
            self._to_send.clear()
            await self._to_send.wait()
