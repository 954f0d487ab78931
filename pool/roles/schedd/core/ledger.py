"""The queue, its store and its events, kept in step.

Every change of a job goes through `commit`: memory first, so that the next decision sees it; then the store; and
only when the store has it for good do events go out and the caller goes on to act on it or to acknowledge it. Where
the disk refuses (full, read-only), nothing is acknowledged and nothing is lost: the write is tried again, with what
the jobs are by then, until it goes through (start contract, rules 1 and 4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.jobs.states import Happening, JobStatus, transition
from pool.outside import OutsideWorld
from pool.policy.exits import stays_in_queue
from pool.policy.packed import RepeatPacker, pack, unpack
from pool.policy.queue import HELD, IDLE, JobId, JobQueue, QueuedCluster, QueuedJob
from pool.roles.garbage import at_rest
from pool.roles.schedd.core.history_records import AlikeJobs, HistoryRecords
from pool.roles.schedd.core.intake import TURN, ClusterIntake
from pool.store import (
    WHOLE_CLUSTER,
    AddEvent,
    AddEvents,
    Change,
    ClusterRow,
    EndProc,
    NewCluster,
    ProcRow,
    RemoveCluster,
    SetProc,
    SetProcs,
    Store,
    StoreClosed,
    StoreError,
)

RETRY = 1.0


@dataclass(slots=True)
class JobChange:
    """One change of one job.

    Attributes:
        happening: what moves the job to another state by the table of `pool.jobs.states`; None leaves it.
        changes: attributes to set; None as a value removes one.
        event: what to tell about it, with its data.
        status: the state it led to, once it has been noted.
    """

    job: QueuedJob
    happening: Happening | None = None
    changes: dict[str, Any] = field(default_factory=dict)
    event: EventKind | None = None
    data: dict[str, Any] = field(default_factory=dict)
    noted: bool = False
    status: JobStatus | None = None


@dataclass(slots=True)
class AlikeChange:
    """The same change of jobs of one cluster that follow each other. It has an event, and no run begins or ends by it.

    Attributes:
        jobs: they have the same status, state and notes; their own differences say nothing of how a removed job is
            recorded (`RECORDED_BY`).
        happening, changes, event, data: as `JobChange`'s.
    """

    jobs: Sequence[QueuedJob]
    happening: Happening
    changes: dict[str, Any]
    event: EventKind
    data: dict[str, Any]

    @classmethod
    def of(cls, first: JobChange, jobs: Sequence[QueuedJob]) -> AlikeChange:
        """The change of one of them, done to all."""
        assert first.happening is not None
        assert first.event is not None
        return cls(jobs, first.happening, first.changes, first.event, first.data)


#: Is told of events once they are durable; and of the same event of many jobs, with those jobs.
Listener = Callable[[Sequence[JobEvent]], None]
AlikeListener = Callable[[AlikeEvents, Sequence[QueuedJob]], None]


def ignore_alike(events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
    """For listeners that wait for starts and ends of runs: no such event comes for many jobs together."""


class _Hearing(NamedTuple):
    """A listener; where it takes no events of many jobs together, it is told of each."""

    listener: Listener
    alike: AlikeListener | None


class ProcStates:
    """The states of processes as the store has them, one after the other.

    Args:
        pieces: of the store, by cluster and process.
    """

    def __init__(self, pieces: AsyncIterator[Sequence[ProcRow]]) -> None:
        self._pieces = pieces
        self._rows: Iterator[ProcRow] = iter(())
        self._next: ProcRow | None = None

    async def begin(self) -> None:
        """Read the first."""
        await self._read_on()

    async def _read_on(self) -> None:
        self._next = next(self._rows, None)
        if self._next is None:
            async for rows in self._pieces:
                self._rows = iter(rows)
                self._next = next(self._rows, None)
                break

    async def pass_to(self, cluster: int) -> None:
        """Leave what is of clusters before that one."""
        while self._next is not None and self._next[0] < cluster:
            await self._read_on()

    async def read_state(self, cluster: int, proc: int, most: int) -> tuple[int, bytes | None, int]:
        """A process's status, and its own attributes, None after its end; and for how many processes, at most `most`,
        from that one on this is so. To be asked in the order of the queue."""
        found = self._next
        if found is None or found[0] != cluster or found[1] > proc:
            return IDLE, b"", most if found is None or found[0] != cluster else min(most, found[1] - proc)
        _, _, status, state, _ = found
        end = proc
        while found is not None and found[0] == cluster and found[1] <= end and found[2:4] == (status, state):
            end = min(found[1] + found[4], proc + most)
            if end < found[1] + found[4]:
                break
            await self._read_on()
            found = self._next
        return status, state, end - proc


class NewJobs:
    """The jobs of a cluster that has just become durable, of which there may be a million.

    Attributes:
        cluster, count: whose, and how many.
    """

    def __init__(
        self, cluster: QueuedCluster, count: int, pieces: Sequence[list[QueuedJob]], intake: ClusterIntake
    ) -> None:
        self.cluster = cluster
        self.count = count
        self._pieces = list(pieces)
        self._intake = intake

    def have(self, name: str) -> bool:
        """Whether any of them has that attribute, of its own or with its cluster; found without a look at each."""
        return self.cluster.wire.get(name) is not None or name in self._intake.names

    def are_alike(self, *names: str) -> bool:
        """Whether all of them are idle, and none has one of these attributes of its own."""
        whole = self._intake.all_held is None and not self._intake.held
        return whole and self._intake.names.isdisjoint(names)

    def jobs(self) -> Iterator[QueuedJob]:
        """The jobs, in their order; the iterator keeps none that it has given."""
        return _given_up(list(reversed(self._pieces)))


def _given_up(pieces: list[list[QueuedJob]]) -> Iterator[QueuedJob]:
    while pieces:
        yield from pieces.pop()


class Ledger:
    """The one place through which the queue changes.

    Args:
        works_for: called with the jobs that something is written for: it costs processor time, on whichever thread.
    """

    def __init__(
        self,
        store: Store,
        queue: JobQueue,
        outside: OutsideWorld,
        log: logging.Logger,
        works_for: Callable[[Iterable[QueuedJob]], None] = lambda jobs: None,
    ) -> None:
        self.store = store
        self.queue = queue
        self.next_cluster = 1
        self.last_event = 0
        self.meta: dict[str, bytes] = {}
        #: Jobs that left the queue with the events that listeners are being told.
        self.gone: dict[JobId, QueuedJob] = {}
        #: The cluster whose SUBMIT listeners are being told; its jobs enter the queue after that.
        self.came: NewJobs | None = None
        #: Jobs that are no longer in the queue, and not for certain in the history yet: listings show them.
        self.not_yet_in_history: dict[JobId, QueuedJob] = {}
        self._outside = outside
        self._log = log
        self._listeners: list[_Hearing] = []
        self._reserved: dict[int, str] = {}
        self._works_for = works_for
        self._loaded = 0

    def now(self) -> float:
        """Wall time."""
        return self._outside.wall()

    # -- start -------------------------------------------------------------------------------------------

    async def load(self) -> list[QueuedJob]:
        """Fill the queue from the store, in slices; returns the jobs that were running."""
        loaded = await self.store.load_in_thread()
        self.next_cluster = loaded.next_cluster
        self.last_event = loaded.next_event - 1
        self.meta = loaded.meta
        running: list[QueuedJob] = []
        states = ProcStates(self.store.procs())
        await states.begin()
        loaded.clusters.reverse()  # what has been taken in is freed, one by one
        with at_rest(sum(row.count for row in loaded.clusters)):
            while loaded.clusters:
                await self._load_cluster(loaded.clusters.pop(), states, running)
        return running

    async def _load_cluster(self, row: ClusterRow, states: ProcStates, running: list[QueuedJob]) -> None:
        cluster = QueuedCluster(row.cluster, row.owner, unpack(row.ad))
        await states.pass_to(row.cluster)
        deltas, proc = row.deltas(), 0
        while proc < row.count:
            if self._loaded >= TURN:
                await asyncio.sleep(0)
                self._loaded = 0
            status, kept, count = await states.read_state(row.cluster, proc, min(TURN - self._loaded, row.count - proc))
            own = list(islice(deltas, count))
            self._loaded += count
            if kept is not None:
                if not cluster.jobs:
                    self.queue.add_cluster(cluster)
                jobs = _loaded_jobs(cluster, proc, status, own, unpack(kept) if kept else None)
                self.queue.add_alike(jobs)
                if jobs[0].stored_note("_run") is not None:
                    running += jobs
            proc += count

    # -- submit ------------------------------------------------------------------------------------------

    def reserve(self, owner: str) -> int:
        """An id for a cluster that will be submitted; lost with a restart, never given twice."""
        cluster = self.next_cluster
        self.next_cluster += 1
        self._reserved[cluster] = owner
        return cluster

    def use_reserved(self, cluster: int, owner: str) -> bool:
        """Whether the id was reserved for this owner; it can be used once."""
        if self._reserved.get(cluster) != owner:
            return False
        del self._reserved[cluster]
        return True

    async def submit(
        self,
        number: int,
        owner: str,
        intake: ClusterIntake,
        also: Sequence[Change] = (),
    ) -> QueuedCluster:
        """Accept a cluster: it is durable when this returns. Raises StoreError when it cannot be.

        Args:
            also: further changes in the same durable step.
        """
        now = self._outside.wall()
        count, deltas, all_held = intake.count, intake.deltas, intake.all_held
        state = None if all_held is None else (HELD, pack(all_held))
        changes: list[Change] = [*also, NewCluster(number, owner, pack(intake.ad), count, intake.packed, now, state)]
        cluster = QueuedCluster(number, owner, intake.ad)
        cluster.coming = True
        pieces: list[list[QueuedJob]] = []
        for start in range(0, count, TURN):
            if start:
                await asyncio.sleep(0)
            piece: list[QueuedJob] = []
            for proc in range(start, min(count, start + TURN)):
                held = intake.held_state(proc)
                job = QueuedJob(cluster, proc, IDLE if held is None else HELD, deltas[proc] if deltas else None, held)
                piece.append(job)
                if held is not None and held is not all_held:
                    changes.append(SetProc(number, proc, HELD, pack(held)))
            pieces.append(piece)
        changes.append(AddEvent(number, WHOLE_CLUSTER, str(EventKind.SUBMIT), now, pack({"count": count})))

        def on_commit(results: list[Any]) -> None:
            self.queue.add_cluster(cluster)
            self.came = NewJobs(cluster, count, pieces, intake)
            self._publish([JobEvent(results[-1], number, WHOLE_CLUSTER, EventKind.SUBMIT, now, {"count": count})])
            self.came = None

        await self.store.write(*changes, settled=on_commit)
        pieces.reverse()
        alike = deltas is None and not intake.held
        while pieces:  # each is freed when its jobs are in
            if alike:
                self.queue.add_alike(pieces.pop())
            else:
                for job in pieces.pop():
                    self.queue.add(job)
            if pieces:
                await asyncio.sleep(0)
        cluster.coming = False
        if not cluster.jobs:  # the first had ended before the last was there
            self.queue.remove_cluster(cluster)
            await self._write(lambda: [RemoveCluster(number)])
        return cluster

    # -- change ------------------------------------------------------------------------------------------

    def apply_early(self, step: JobChange) -> None:
        """Apply a step in memory, for decisions that follow before it is durable; `commit` must come after it.

        Raises:
            JobStateError: this cannot happen to the job in its state.
        """
        if step.noted:
            return
        step.noted = True
        if step.happening is not None:
            step.status = transition(step.job.status, step.happening).next
            step.changes.setdefault("EnteredCurrentStatus", int(self._outside.wall()))
        step.job.update(step.changes)
        if step.status is not None:
            self.queue.set_status(step.job, step.status)

    async def commit(self, *steps: JobChange) -> None:
        """Apply steps; returns when they are durable. Jobs that reach an end leave the queue for the history."""
        await self.begin(*steps)

    def begin(self, *steps: JobChange) -> Coroutine[Any, Any, None]:
        """Apply steps, and begin to write them; they are durable when the coroutine returns.

        What is begun later is written later.
        """
        now = self._outside.wall()
        events: list[tuple[JobChange, float]] = []
        ended: list[EndProc] = []
        left: dict[JobId, QueuedJob] = {}
        records = HistoryRecords(now)
        emptied: set[int] = set()
        self._works_for([step.job for step in steps])
        for step in steps:
            job = step.job
            self.apply_early(step)
            if step.event is not None:
                events.append((step, now))
            if job.status.final:
                alike = records.of(job)
                if step.happening is not Happening.LEAVE:
                    step.data = alike.event_data(step.data)
                    if alike.may_stay and _stays_in_queue(job, now):
                        continue
                ended.append(alike.record(job))
                left[job.id] = job
                if self.queue.remove(job):
                    emptied.add(job.cluster.id)

        def changes() -> list[Change]:
            made: list[Change] = []
            made += _present_states(dict.fromkeys(step.job for step in steps))
            made += ended
            made += [RemoveCluster(number) for number in emptied]
            data = RepeatPacker()
            made += [AddEvent(*step.job.id, str(step.event), when, data.pack(step.data)) for step, when in events]
            return made

        def on_commit(results: list[Any]) -> None:
            if events:
                numbers = results[len(results) - len(events) :]
                self.gone = left
                self._publish(
                    [
                        JobEvent(number, *step.job.id, _kind(step), when, step.data)
                        for number, (step, when) in zip(numbers, events, strict=True)
                    ]
                )
                self.gone = {}

        return self._begin_leaving(left, changes, on_commit)

    def begin_alike(self, step: AlikeChange) -> Coroutine[Any, Any, None]:
        """As `begin`, for jobs that are changed together."""
        now, jobs, first = self._outside.wall(), step.jobs, step.jobs[0]
        cluster, status = first.cluster, transition(first.status, step.happening).next
        self._works_for(jobs if not status.final or first.get("NumJobStarts") else [first])
        step.changes.setdefault("EnteredCurrentStatus", int(now))
        first.update(step.changes)
        for job in jobs[1:]:
            job.become_like(first)
        self.queue.set_alike_status(jobs, status)
        place = (cluster.id, first.proc, len(jobs))
        data, left = step.data, dict[JobId, QueuedJob]()
        stored: list[Change] = []
        if status.final:
            alike = AlikeJobs(first, now)
            data = alike.event_data(data)
            stored.append(alike.record_all(jobs))
            left = {job.id: job for job in jobs}
            if self.queue.remove_alike(jobs):
                stored.append(RemoveCluster(cluster.id))
        else:
            stored.append(SetProcs(*place, status, first.packed_changes()))
        told = AddEvents(*place, str(step.event), now, pack(data))

        def changes() -> list[Change]:
            made = [*(stored or _present_states(jobs)), told]
            if not left:
                stored.clear()  # if it must be tried again, the jobs may not be alike any more
            return made

        def on_commit(results: list[Any]) -> None:
            self.gone = left
            self._publish_alike(AlikeEvents(results[-1], *place, step.event, now, data), jobs)
            self.gone = {}

        return self._begin_leaving(left, changes, on_commit)

    def _begin_leaving(
        self, left: dict[JobId, QueuedJob], changes: Callable[[], list[Change]], on_commit: Callable[[list[Any]], None]
    ) -> Coroutine[Any, Any, None]:
        """Begin to write; until that is durable the jobs that leave are in neither the queue nor the history."""
        self.not_yet_in_history |= left
        try:
            return self._until_gone(left, self._begin(changes, on_commit))
        except StoreError:
            self._are_gone(left)
            raise

    async def _until_gone(self, left: Iterable[JobId], writing: Coroutine[Any, Any, None]) -> None:
        try:
            await writing
        finally:
            self._are_gone(left)

    def _are_gone(self, left: Iterable[JobId]) -> None:
        for name in left:
            del self.not_yet_in_history[name]

    async def record_event(self, cluster: int, proc: int, kind: EventKind, data: dict[str, Any]) -> None:
        """Add an event that changes no job; durable when this returns."""
        now = self._outside.wall()
        packed = pack(data)
        await self._write(
            lambda: [AddEvent(cluster, proc, str(kind), now, packed)],
            lambda results: self._publish([JobEvent(results[0], cluster, proc, kind, now, data)]),
        )

    async def write_changes(self, *changes: Change) -> None:
        """Make changes durable that are of no job, however often that must be tried."""
        await self._write(lambda: list(changes))

    async def _write(
        self, changes: Callable[[], list[Change]], settled: Callable[[list[Any]], None] | None = None
    ) -> None:
        await self._begin(changes, settled)

    def _begin(
        self, changes: Callable[[], list[Change]], settled: Callable[[list[Any]], None] | None = None
    ) -> Coroutine[Any, Any, None]:
        """Begin to make changes durable, however often that must be tried; `settled` as in `Store.write`."""
        first = changes()
        return self._written(self.store.begin(*first, settled=settled) if first else None, changes, settled)

    async def _written(
        self,
        writing: Awaitable[Any] | None,
        changes: Callable[[], list[Change]],
        settled: Callable[[list[Any]], None] | None,
    ) -> None:
        logged = False
        while writing is not None:
            try:
                await writing
                return
            except StoreError as error:
                if not error.retry or isinstance(error, StoreClosed):
                    raise
                if not logged:
                    self._log.error("the queue cannot be written; trying again", extra={"error": str(error)})
                    logged = True
                await asyncio.sleep(RETRY)
                again = changes()
                writing = self.store.begin(*again, settled=settled) if again else None

    # -- events ------------------------------------------------------------------------------------------

    def listen(self, listener: Listener, alike: AlikeListener | None = None) -> Callable[[], None]:
        """Be told of events once they are durable, in the order of their numbers; returns what ends it.

        Args:
            alike: takes the same event of many jobs, of which `listener` is not told then; None: `listener` is told.
        """
        hearing = _Hearing(listener, alike)
        self._listeners.append(hearing)
        return lambda: self._listeners.remove(hearing)

    def _publish(self, events: Sequence[JobEvent]) -> None:
        if events and events[-1].number is not None:
            self.last_event = max(self.last_event, events[-1].number)
        for hearing in list(self._listeners):
            hearing.listener(events)

    def _publish_alike(self, events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
        self.last_event = max(self.last_event, events.last_number)
        each: list[JobEvent] = []
        for hearing in list(self._listeners):
            if hearing.alike is not None:
                hearing.alike(events, jobs)
            else:
                each = each or list(events)
                hearing.listener(each)


def _loaded_jobs(
    cluster: QueuedCluster, first: int, status: int, own: Sequence[bytes | None], state: dict[str, Any] | None
) -> list[QueuedJob]:
    """Jobs of a cluster that follow each other, with their own differences, packed, and one state."""
    jobs: list[QueuedJob] = []
    for proc, delta in enumerate(own, first):
        job = QueuedJob(cluster, proc, status, unpack(delta) if delta else None, None if jobs else state)
        if jobs:
            job.become_like(jobs[0])
        jobs.append(job)
    return jobs


def _present_states(jobs: Iterable[QueuedJob]) -> Iterator[SetProc]:
    """The states of those that are in the queue."""
    for job in jobs:
        if job.cluster.jobs.get(job.proc) is job:
            yield SetProc(*job.id, job.status, job.packed_changes())


def _kind(step: JobChange) -> EventKind:
    assert step.event is not None
    return step.event


def _stays_in_queue(job: QueuedJob, now: float) -> bool:
    return job.status == JobStatus.COMPLETED and stays_in_queue(job.ad(), now)
