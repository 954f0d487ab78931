"""Events for one program that follows many jobs: any number of watches over one stream.

The program sends `{watch: number, ids, after}` and `{close: number}`; it is sent lists of `[number, upto, events]`: the
events of a watch, oldest first, and that there are no others of it up to the event `upto`. A watch begins with what
is in the store after `after`; without `after` it begins now. Its first item without events says that it has caught up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from pool.errors import PoolError
from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.policy.packed import unpack
from pool.policy.queue import QueuedJob
from pool.roles.schedd.core.ledger import Ledger
from pool.store import WHOLE_CLUSTER, EventRow
from pool.wire import Stream
from pool.wire.parameter_checks import JOB_IDS

#: Events in one item. Events looked at before others get their turn on the loop.
BATCH, TURN = 500, 200
#: With so many events waiting the reader is too slow; it is cut off, and asks again from where it was.
MOST_WAITING = 100_000
#: Watches on one stream.
MOST_WATCHES = 100_000
#: Messages that are taken before they are acted on.
AHEAD = 1000
#: Seconds after events were sent for which further ones gather, to be sent together.
GATHER = 0.01
UntilLogged = Callable[[Sequence[JobEvent]], Awaitable[None]]


class _QueueWatch:
    """One watch: the jobs by cluster (None: all of it), and the last event that was sent or looked at for it."""

    def __init__(self, ids: Sequence[Sequence[int]] | None, after: int) -> None:
        self.last = after
        self.jobs: dict[int, set[int] | None] | None = None if ids is None else {}
        for one in ids or ():
            assert self.jobs is not None
            known = self.jobs.setdefault(one[0], set())
            if len(one) == 1:
                self.jobs[one[0]] = None
            elif known is not None:
                known.add(one[1])

    def concerns(self, cluster: int, proc: int) -> bool:
        if self.jobs is None:
            return True
        procs = self.jobs.get(cluster, ())
        return procs is None or proc in procs or (proc == WHOLE_CLUSTER and cluster in self.jobs)


class EventStream:
    """One stream with its watches."""

    def __init__(self, ledger: Ledger, stream: Stream, until_logged: UntilLogged) -> None:
        """
        Args:
            until_logged: waits until users' logs have the ends among some events; see `Reporting.until_logged`.
        """
        self._until_logged = until_logged
        self._ledger = ledger
        self._stream = stream
        self._watches: dict[int, _QueueWatch] = {}
        self._of_cluster: dict[int, dict[int, _QueueWatch]] = {}
        self._of_all: dict[int, _QueueWatch] = {}
        self._messages: deque[Any] = deque()
        self._events: deque[JobEvent] = deque()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._over = self._too_slow = False

    async def run(self) -> None:
        """Until the program gives the stream up.

        Raises:
            PoolError: it reads too slowly, or says what is no message.
        """
        stop = self._ledger.listen(self._on_events, self._on_alike_events)
        reading = asyncio.get_running_loop().create_task(self._read())
        try:
            while not (self._over and not self._messages):
                await self._wake.wait()
                self._wake.clear()
                await self._handle_messages()
                if await self._send_events():
                    await asyncio.sleep(GATHER)
        finally:
            stop()
            reading.cancel()
            with contextlib.suppress(asyncio.CancelledError, PoolError):
                await reading

    async def _read(self) -> None:
        try:
            async for message in self._stream:
                self._messages.append(message)
                self._wake.set()
                while len(self._messages) > AHEAD:
                    self._room.clear()
                    await self._room.wait()
        finally:
            self._over = True
            self._wake.set()

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        wanted = self._events
        if len(wanted) > MOST_WAITING:
            self._too_slow = True
            return
        for event in events:
            if self._of_all or event.cluster in self._of_cluster:
                wanted.append(event)
        if wanted:
            self._wake.set()

    def _on_alike_events(self, events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
        if self._of_all or events.cluster in self._of_cluster:
            self._on_events(list(events))

    async def _handle_messages(self) -> None:
        while self._messages:
            message = self._messages.popleft()
            self._room.set()
            match message:
                case {"watch": int(number)}:
                    await self._open(number, message)
                case {"close": int(number)}:
                    self._close(number)
                case _:
                    raise PoolError("a message of schedd.follow is neither {watch, ids, after} nor {close}")

    async def _open(self, number: int, message: Mapping[str, Any]) -> None:
        ids, after = message.get("ids"), message.get("after")
        if (ids is not None and not JOB_IDS.fits(ids)) or not (after is None or type(after) is int):
            raise PoolError(f"what watch {number} is to follow is no list of jobs and the number of an event")
        if number in self._watches or len(self._watches) >= MOST_WATCHES:
            raise PoolError(f"watch {number} is open already, or there are {MOST_WATCHES} of them")
        now = self._ledger.last_event
        watch = self._watches[number] = _QueueWatch(ids, now if after is None else after)
        if watch.jobs is None:
            self._of_all[number] = watch
        for cluster in watch.jobs or ():
            self._of_cluster.setdefault(cluster, {})[number] = watch
        if watch.last < now:
            await self._catch_up(number, watch)
        await self._stream.send([[number, watch.last, []]])

    def _close(self, number: int) -> None:
        watch = self._watches.pop(number, None)
        self._of_all.pop(number, None)
        for cluster in (watch.jobs or ()) if watch is not None else ():
            watches = self._of_cluster[cluster]
            del watches[number]
            if not watches:
                del self._of_cluster[cluster]

    async def _catch_up(self, number: int, watch: _QueueWatch) -> None:
        """Send what is in the store."""
        upto = self._ledger.last_event
        async for rows in self._stored(watch, watch.last):
            for start in range(0, len(rows), BATCH):
                piece = rows[start : start + BATCH]
                chosen = [_wire(row) for row in piece if watch.concerns(row.cluster, row.proc)]
                watch.last = max(watch.last, piece[-1].number)
                if chosen:
                    await self._stream.send([[number, watch.last, chosen]])
        watch.last = max(watch.last, upto)

    async def _stored(self, watch: _QueueWatch, after: int) -> AsyncIterator[list[EventRow]]:
        """Of one cluster, or of all in the order in which they happened, so that a watch can go on from any of them."""
        only = next(iter(watch.jobs)) if watch.jobs is not None and len(watch.jobs) == 1 else None
        async for rows in self._ledger.store.events(only, after=after):
            yield rows

    async def _send_events(self) -> bool:
        """Send what has happened to each watch it is for; whether there was anything."""
        if self._too_slow:
            raise PoolError("too slow a reader of events", hint="follow again from the last number seen", retry=True)
        ready = tuple(self._events)
        await self._until_logged(ready)
        items: dict[int, list[dict[str, Any]]] = {}
        count, sent = 0, False
        for event in ready:
            self._events.popleft()
            for number, watch in self._watching(event.cluster):
                count += 1
                if not count % TURN:
                    await asyncio.sleep(0)
                if (event.number or 0) > watch.last and watch.concerns(event.cluster, event.proc):
                    watch.last, sent = event.number or 0, True
                    items.setdefault(number, []).append(event.to_wire())
            if count >= BATCH:
                await self._send(items)
                items, count = {}, 0
        await self._send(items)
        return sent

    def _watching(self, cluster: int) -> Iterator[tuple[int, _QueueWatch]]:
        yield from list(self._of_cluster.get(cluster, {}).items())
        yield from list(self._of_all.items())

    async def _send(self, items: Mapping[int, list[dict[str, Any]]]) -> None:
        sent = [[number, events[-1]["number"], events] for number, events in items.items()]
        for start in range(0, len(sent), BATCH):
            await self._stream.send(sent[start : start + BATCH])


def _wire(row: EventRow) -> dict[str, Any]:
    return JobEvent(row.number, row.cluster, row.proc, EventKind(row.kind), row.time, unpack(row.data)).to_wire()
