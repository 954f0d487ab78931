"""Group commit: many awaiting callers, one transaction, one synchronisation of the disk.

Two writers with one interface. `GroupWriter` is for a running node. Small batches are written into the open transaction
right on the event loop, a few microseconds a change. Only the commit waits for the disk, and its place depends on the
disk. A disk that answers in a fraction of a millisecond, as most do today, is waited for on the loop: handing the
commit to a thread and hearing of its end takes about as long again. With a disk that is slower, or has become so,
commits go to the one writer thread, and meanwhile further calls gather for the next. Large batches go to the thread as
a whole. (Small ones do not: a thread asks for the interpreter's lock once a statement, and under load each asking costs
up to five milliseconds.)

So the loop prepares a commit for the thread, and makes sure of it afterwards: the thread asks for the lock once.

A write that nobody hurries for waits a while for one to go along with, so that it costs no synchronisation of its own.

`InlineWriter` commits in the caller, before `submit` returns: for a loop with virtual time, where a thread's
progress would not be counted, and for stores in memory.

Cancelling a caller does not undo its write. Calls are settled in the order in which they were written.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from pool.store.apply import Result
from pool.store.changes import Change, EndProcs, ForgetRemoved, NewCluster, RemoveCluster, RewriteFile, Shrink, Trim
from pool.store.errors import StoreError
from pool.store.session import Outcome, StoreSession

_ON_LOOP = 400  # changes written on the loop in one go: about 5 ms
_SMALL_CLUSTER = 2000  # differing processes of a cluster that are still packed on the loop
# A loop that works in slices shorter than the interpreter's switch interval, with a turn of the loop between them,
# releases its lock for a microsecond at a time. A thread may then wait for seconds and never get it (measured: 10 s
# with slices of 2 ms and the usual interval of 5 ms; 10 ms with this one).
_SWITCH_INTERVAL = 0.0005
_BATCH = 4000  # changes in one transaction, unless a single call has more
# Changes that take long, one alone.
_LONG: frozenset[type] = frozenset((ForgetRemoved, RemoveCluster, RewriteFile, Shrink, Trim))
_QUICK = 0.001  # seconds in which a commit is waited for on the loop
_RECENT = 8  # commits over which their time is averaged: one that takes long is followed by a dozen in the thread


#: Called with what came of the changes once they are on disk.
Settled = Callable[[list[Result]], None]


class _Call(NamedTuple):
    changes: tuple[Change, ...]
    future: asyncio.Future[list[Result]]
    settled: Settled | None


class _StagedWrite(NamedTuple):
    calls: list[_Call]
    staged: list[list[Result]] | None  # None: not yet written into a transaction
    mark: tuple[int, int]
    loop: asyncio.AbstractEventLoop
    prepared: bool = False  # only the disk is left to be waited for


def _any_long(changes: Sequence[Change]) -> bool:
    """Whether one of the changes takes long, however few they are."""
    kinds = set(map(type, changes))
    if not kinds.isdisjoint(_LONG):
        return True
    if EndProcs in kinds and any(isinstance(one, EndProcs) and not isinstance(one.ads, bytes) for one in changes):
        return True
    return NewCluster in kinds and any(
        isinstance(change, NewCluster) and bool(change.deltas or change.state) and change.count > _SMALL_CLUSTER
        for change in changes
    )


def _resolve(calls: Sequence[_Call], outcomes: Sequence[Outcome]) -> None:
    for call, outcome in zip(calls, outcomes, strict=True):
        given_up = call.future.done()
        if isinstance(outcome, StoreError):
            if not given_up:
                call.future.set_exception(outcome)
            continue
        if not given_up:
            call.future.set_result(outcome)
        if call.settled is not None:
            call.settled(outcome)


class InlineWriter:
    """Commits in the caller."""

    def __init__(self, session: StoreSession) -> None:
        self._session = session

    def submit(
        self, changes: tuple[Change, ...], within: float = 0.0, settled: Settled | None = None
    ) -> asyncio.Future[list[Result]]:
        """Write at once; the future is done when this returns."""
        call = _Call(changes, asyncio.get_running_loop().create_future(), settled)
        _resolve([call], self._session.write_batch([changes]))
        return call.future

    async def close(self) -> None:
        """Nothing is ever under way."""

    def abandon(self) -> None:
        """Nothing is ever under way."""


class GroupWriter:
    """Commits many calls at a time.

    Args:
        ticks: seconds, to measure how long a commit takes.
    """

    def __init__(self, session: StoreSession, ticks: Callable[[], float]) -> None:
        self._session = session
        self._ticks = ticks
        self._commit_time = _QUICK  # not known: the first is made in the thread
        self._waiting: list[_Call] = []
        self._pressing = False
        self._planned = False
        self._under_way = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()
        self._jobs: queue.SimpleQueue[_StagedWrite | None] = queue.SimpleQueue()
        if sys.getswitchinterval() > _SWITCH_INTERVAL:
            sys.setswitchinterval(_SWITCH_INTERVAL)
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    def submit(
        self, changes: tuple[Change, ...], within: float = 0.0, settled: Settled | None = None
    ) -> asyncio.Future[list[Result]]:
        """Queue the changes; the future is done when they are on disk.

        Args:
            within: seconds for which another write to go along with is waited for.
            settled: as `Store.write`.
        """
        loop = asyncio.get_running_loop()
        call = _Call(changes, loop.create_future(), settled)
        self._waiting.append(call)
        self._idle.clear()
        if not within:
            self._schedule_flush(loop)
        elif self._timer is None or self._timer.when() > loop.time() + within:
            self._wait_until(loop.time() + within, loop)
        return call.future

    async def close(self) -> None:
        """Wait until everything submitted has been settled, then end the thread."""
        if self._waiting:
            self._schedule_flush(asyncio.get_running_loop())
        await self._idle.wait()
        self.abandon()
        self._thread.join()

    def abandon(self) -> None:
        """End the thread after what it does now, without settling what waits."""
        self._jobs.put(None)

    def _schedule_flush(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits: at the end of this turn of the loop, so that all who write in it share the commit."""
        self._pressing = True
        if not (self._under_way or self._planned):
            self._planned = True
            loop.call_soon(self._flush, loop)

    def _wait_until(self, due: float | None, loop: asyncio.AbstractEventLoop) -> None:
        """Write what waits at that time; None for what is not waiting any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else loop.call_at(due, self._schedule_flush, loop)

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._planned = False
        self._wait_until(None, loop)
        calls, long = self._next_batch()
        self._under_way = True
        mark = self._session.applier.mark()
        staged, prepared = None, False
        if not long:
            try:
                staged = self._session.stage([call.changes for call in calls])
                if self._commit_time < _QUICK:
                    self._commit(mark, self._session.commit)
                    self._finished(loop, calls, staged)
                    return
                prepared = self._session.prepare_commit(mark)
            except StoreError:
                staged = None  # the thread tries each call for itself
        self._jobs.put(_StagedWrite(calls, staged, mark, loop, prepared))

    def _commit(self, mark: tuple[int, int], commit: Callable[[tuple[int, int]], None]) -> None:
        """Commit, and take in how long that takes here."""
        began = self._ticks()
        commit(mark)
        self._commit_time += (self._ticks() - began - self._commit_time) / _RECENT

    def _next_batch(self) -> tuple[list[_Call], bool]:
        """The calls of the next transaction, and whether it takes too long for the loop."""
        total, long, taken = 0, False, 0
        for call in self._waiting:
            if taken and total + len(call.changes) > _BATCH:
                break
            taken += 1
            total += len(call.changes)
            long = long or total > _ON_LOOP or _any_long(call.changes)
        calls, self._waiting = self._waiting[:taken], self._waiting[taken:]
        self._pressing = bool(self._waiting)
        return calls, long

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            outcomes = self._carry_out(job)
            try:
                job.loop.call_soon_threadsafe(self._thread_is_done, job, outcomes)
            except RuntimeError:
                return  # the loop was closed: nobody waits any more

    def _carry_out(self, job: _StagedWrite) -> list[Outcome] | None:
        """The outcome of each call; None where the prepared transaction is on the disk."""
        batch = [call.changes for call in job.calls]
        try:
            if job.staged is None:
                return self._session.write_batch(batch)
            try:
                self._commit(job.mark, self._session.commit_prepared if job.prepared else self._session.commit)
            except StoreError:
                return self._session.write_each(batch)
            return None if job.prepared else list(job.staged)
        except Exception as defect:  # a caller must never wait for ever
            error = StoreError(f"cannot write store {self._session.path}: {type(defect).__name__}: {defect}")
            return [error] * len(job.calls)

    def _thread_is_done(self, job: _StagedWrite, outcomes: list[Outcome] | None) -> None:
        if outcomes is None:
            assert job.staged is not None
            try:
                self._session.confirm_commit()
            except StoreError:
                self._jobs.put(job._replace(staged=None))  # the thread tries each call for itself
                return
            outcomes = list(job.staged)
        self._finished(job.loop, job.calls, outcomes)

    def _finished(self, loop: asyncio.AbstractEventLoop, calls: Sequence[_Call], outcomes: Sequence[Outcome]) -> None:
        self._under_way = False
        _resolve(calls, outcomes)
        if self._pressing:
            # Those just answered may write again in this turn: let them come along.
            self._schedule_flush(loop)
        elif not self._waiting:
            self._idle.set()
