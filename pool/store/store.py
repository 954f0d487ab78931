"""The schedd's memory on disk: queue, events, history and accounting in one SQLite file.

Changes that `write` has acknowledged survive the end of the process and of the machine at any moment. The store does
not know what a job or an ad is, keeps nothing of them in memory, and takes every time from its caller.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from pool.outside import OutsideWorld
from pool.store import reading
from pool.store.apply import Result
from pool.store.changes import Change, EventRow, HistoryRow, Loaded, ProcRow, UsageRow
from pool.store.errors import StoreClosed, from_sqlite
from pool.store.lock import StoreLock
from pool.store.session import StoreSession
from pool.store.writer import GroupWriter, InlineWriter, Settled

T = TypeVar("T")


class Store:
    """An open store. Make it with `open`; use it from one event loop."""

    def __init__(self, session: StoreSession, lock: StoreLock | None, writer: GroupWriter | InlineWriter) -> None:
        self._session = session
        self._lock = lock
        self._writer = writer
        self._inline = isinstance(writer, InlineWriter)
        self._readers: ThreadPoolExecutor | None = None
        self._reading: sqlite3.Connection | None = None
        self._closed = False

    @classmethod
    def open(
        cls,
        path: str,
        *,
        inline: bool = False,
        ticks: Callable[[], float] = OutsideWorld().ticks,
        factory: Callable[..., sqlite3.Connection] = sqlite3.Connection,
    ) -> Store:
        """Open or make the store at `path`; ':memory:' makes one that is gone when it is closed.

        Args:
            inline: commit in the caller, always, for loops whose clock is virtual.
            ticks: seconds, to measure how quick the disk is.
            factory: makes the connection.

        Raises:
            StoreBusy: another schedd works on it.
            StoreTooNew, StoreDamaged, StoreLost, StoreUnwritable, StoreFull: as they say.
        """
        path = str(path)
        if path == ":memory:":
            session = StoreSession(path, factory)
            return cls(session, None, InlineWriter(session))
        lock = StoreLock(path)
        try:
            session = StoreSession(path, factory)
            return cls(session, lock, InlineWriter(session) if inline else GroupWriter(session, ticks))
        except BaseException:
            lock.release()
            raise

    @property
    def path(self) -> str:
        """Where it lies."""
        return self._session.path

    @property
    def migrated_from(self) -> int | None:
        """The older version that opening found and brought forward; None if there was nothing to do."""
        found, now = self._session.found, self._session.version
        return found if 0 < found < now else None

    def load(self) -> Loaded:
        """The clusters as the last schedd left them. For the start, before anything is written; blocks."""
        applier = self._session.applier
        try:
            return reading.load(self._session.connection, applier.next_cluster, applier.next_event)
        except sqlite3.Error as error:
            raise from_sqlite(error, "read store", self.path) from error

    async def load_in_thread(self) -> Loaded:
        """As `load`, with the loop free meanwhile."""
        return self.load() if self._inline else await asyncio.to_thread(self.load)

    async def procs(self) -> AsyncIterator[list[ProcRow]]:
        """The processes of the queue whose state is kept, by cluster and process, in lists of at most `PROCS`."""
        last = (0, -1)
        while rows := await self._read(partial(reading.proc_piece, last, reading.PROCS)):
            yield rows
            last = rows[-1][:2]

    async def write(self, *changes: Change, within: float = 0.0, settled: Settled | None = None) -> list[Result]:
        """Make the changes durable, all or none.

        Args:
            within: seconds for which they may wait for other changes to be written with.
            settled: called with the results when the changes are on disk, in the order of their events' numbers,
                whether or not the caller still waits.

        Returns:
            One result for each change: the event's number for AddEvent, rows forgotten for Trim,
            pages that are still free for Shrink, else None.

        Raises:
            StoreRefused: a change does not fit the queue.
            StoreFull, StoreUnwritable, StoreGone: nothing was acknowledged; the same call may work later.
        """
        return await self.begin(*changes, within=within, settled=settled) if changes else []

    def begin(
        self, *changes: Change, within: float = 0.0, settled: Settled | None = None
    ) -> asyncio.Future[list[Result]]:
        """As `write`, which has begun when this returns: what is begun after it is written after it."""
        self.check_open()
        return self._writer.submit(changes, within, settled)

    def check_open(self) -> None:
        """Raises StoreClosed when nothing can become durable here any more."""
        if self._closed:
            raise StoreClosed(f"cannot write store {self.path}: it is closed")

    async def history(
        self,
        *,
        jobs: Sequence[tuple[int, int | None]] | None = None,
        owner: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[list[HistoryRow]]:
        """Ended processes, newest first, in lists of at most 500.

        Args:
            jobs: only these, as (cluster, process) or (cluster, None) for all of one.
            owner: only this owner's.
            limit: at most that many in all.
        """
        before: int | None = None
        left = limit
        while left is None or left > 0:
            size = reading.PIECE if left is None else min(reading.PIECE, left)
            rows = await self._read(partial(reading.history_piece, jobs, owner, before, size))
            if rows:
                yield rows
            if len(rows) < size:
                return
            before = rows[-1].number
            left = None if left is None else left - len(rows)

    async def events(
        self, cluster: int | None = None, proc: int | None = None, *, after: int = 0
    ) -> AsyncIterator[list[EventRow]]:
        """Events with a number above `after`, oldest first, in lists of at most 500, up to the newest now."""
        while True:
            rows = await self._read(partial(reading.event_piece, cluster, proc, after, reading.PIECE))
            if rows:
                yield rows
            if len(rows) < reading.PIECE:
                return
            after = rows[-1].number

    async def usage(self) -> list[UsageRow]:
        """Jobs and processor time of each owner's ended jobs (EV 2.8)."""
        return await self._read(reading.usage)

    async def free(self) -> tuple[int, int]:
        """Pages of the file, and how many of them nothing is kept in."""
        return await self._read(reading.free_pages)

    @property
    def shrinks(self) -> bool:
        """Whether what becomes free can be given back in slices (`Shrink`); an older store has to be written anew."""
        return self._session.shrinks

    async def close(self) -> None:
        """Settle what was submitted, then close. Writing afterwards is an error."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        if self._readers is not None:
            self._readers.shutdown(wait=True)
        if self._reading is not None:
            self._reading.close()
        self._session.close()
        if self._lock is not None:
            self._lock.release()

    async def _read(self, question: Callable[[sqlite3.Connection], T]) -> T:
        if self._closed:
            raise StoreClosed(f"cannot read store {self.path}: it is closed")
        if self._inline:
            return self._query(question, self._session.connection)
        if self._readers is None:
            self._readers = ThreadPoolExecutor(1, thread_name_prefix="store-reader")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, self._query, question, None)

    def _query(self, question: Callable[[sqlite3.Connection], T], connection: sqlite3.Connection | None) -> T:
        try:
            if connection is None:
                if self._reading is None:
                    self._reading = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
                    self._reading.execute("PRAGMA query_only = 1")
                connection = self._reading
            return question(connection)
        except sqlite3.Error as error:
            raise from_sqlite(error, "read store", self.path) from error
