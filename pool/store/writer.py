"""Group commit: many awaiting callers, one transaction, one synchronisation of the disk.

Two writers with one interface. `GroupWriter` is for a running node. Small batches are written into the open
transaction right on the event loop, a few microseconds a change, and only the commit, which waits for the
disk, goes to the one writer thread: handing every statement to the thread would make it ask for the
interpreter's lock once a statement, and under load each asking costs up to five milliseconds. Large batches
go to the thread as a whole. While a commit is under way, further calls gather for the next.

`InlineWriter` commits in the caller, before `submit` returns: for a loop with virtual time, where a thread's
progress would not be counted, and for stores in memory.

Cancelling a caller does not undo its write.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from typing import NamedTuple

from pool.store.apply import Result
from pool.store.changes import Change, NewCluster, RemoveCluster, Trim
from pool.store.errors import StoreError
from pool.store.session import Outcome, Session

_ON_LOOP = 400  # changes written on the loop in one go: about 5 ms
_SMALL_CLUSTER = 2000  # differing processes of a cluster that are still packed on the loop
# A loop that works in slices shorter than the interpreter's switch interval, with a turn of the loop between
# them, gives its lock away for a microsecond at a time and a thread may wait for seconds without ever being
# given it (measured: 10 s with slices of 2 ms and the usual interval of 5 ms; 10 ms with this one).
_SWITCH_INTERVAL = 0.0005
_BATCH = 4000  # changes in one transaction, unless a single call has more


class _Call(NamedTuple):
    changes: tuple[Change, ...]
    future: asyncio.Future[list[Result]]


class _Job(NamedTuple):
    calls: list[_Call]
    staged: list[list[Result]] | None  # None: not yet written into a transaction
    mark: tuple[int, int]
    loop: asyncio.AbstractEventLoop


def _is_long(change: Change) -> bool:
    if isinstance(change, NewCluster):
        return bool(change.deltas) and change.count > _SMALL_CLUSTER
    return isinstance(change, (RemoveCluster, Trim))


def _settle(calls: list[_Call], outcomes: list[Outcome]) -> None:
    for call, outcome in zip(calls, outcomes, strict=True):
        if call.future.done():
            continue
        if isinstance(outcome, StoreError):
            call.future.set_exception(outcome)
        else:
            call.future.set_result(outcome)


class InlineWriter:
    """Commits in the caller."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def submit(self, changes: tuple[Change, ...]) -> asyncio.Future[list[Result]]:
        """Write at once; the future is done when this returns."""
        call = _Call(changes, asyncio.get_running_loop().create_future())
        _settle([call], self._session.write_batch([changes]))
        return call.future

    async def close(self) -> None:
        """Nothing is ever under way."""

    def abandon(self) -> None:
        """Nothing is ever under way."""


class GroupWriter:
    """Commits in a thread of its own, many calls at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._waiting: list[_Call] = []
        self._flush_planned = False
        self._under_way = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        if sys.getswitchinterval() > _SWITCH_INTERVAL:
            sys.setswitchinterval(_SWITCH_INTERVAL)
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    def submit(self, changes: tuple[Change, ...]) -> asyncio.Future[list[Result]]:
        """Queue the changes; the future is done when they are on disk."""
        loop = asyncio.get_running_loop()
        call = _Call(changes, loop.create_future())
        self._waiting.append(call)
        if not (self._under_way or self._flush_planned):
            # At the end of this turn of the loop, so that all who write in this turn share the commit.
            self._flush_planned = True
            self._idle.clear()
            loop.call_soon(self._flush, loop)
        return call.future

    async def close(self) -> None:
        """Wait until everything submitted has been settled, then end the thread."""
        await self._idle.wait()
        self.abandon()
        self._thread.join()

    def abandon(self) -> None:
        """End the thread after what it does now, without settling what waits."""
        self._jobs.put(None)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flush_planned = False
        calls, total, long = self._take()
        if not calls:
            self._idle.set()
            return
        self._under_way = True
        mark = self._session.applier.mark()
        staged = None
        if total <= _ON_LOOP and not long:
            try:
                staged = self._session.stage([call.changes for call in calls])
            except StoreError:
                pass  # the thread tries each call for itself
        self._jobs.put(_Job(calls, staged, mark, loop))

    def _take(self) -> tuple[list[_Call], int, bool]:
        total, long, taken = 0, False, 0
        for call in self._waiting:
            if taken and total + len(call.changes) > _BATCH:
                break
            taken += 1
            total += len(call.changes)
            long = long or any(_is_long(change) for change in call.changes)
        calls, self._waiting = self._waiting[:taken], self._waiting[taken:]
        return calls, total, long

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcomes = self._carry_out(job)
            try:
                job.loop.call_soon_threadsafe(self._finished, job, outcomes)
            except RuntimeError:
                return  # the loop was closed: nobody waits any more

    def _carry_out(self, job: _Job) -> list[Outcome]:
        batch = [call.changes for call in job.calls]
        try:
            if job.staged is None:
                return self._session.write_batch(batch)
            try:
                self._session.commit(job.mark)
            except StoreError:
                return self._session.write_each(batch)
            return list(job.staged)
        except Exception as defect:  # a caller must never wait for ever
            error = StoreError(f"cannot write store {self._session.path}: {type(defect).__name__}: {defect}")
            return [error] * len(job.calls)

    def _finished(self, job: _Job, outcomes: list[Outcome]) -> None:
        self._under_way = False
        _settle(job.calls, outcomes)
        if self._waiting:
            # Those just answered may write again in this turn: let them come along.
            self._flush_planned = True
            job.loop.call_soon(self._flush, job.loop)
        else:
            self._idle.set()
