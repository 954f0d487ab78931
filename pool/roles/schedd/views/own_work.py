"""The jobs of this schedd as they come and end, for the world: what the pool would do without a flock follows from it.

The stream sends lists of items: `["jobs", cluster, first, count, processors, done, ad]`, jobs that are alike and want
a machine, in the order of their submits, with the seconds that each has run; `ad` with the first of a cluster, to ask
which machines fit; and `["ended", cluster, proc, ran]`, a job that has left the queue or is held. An empty list says
that all are told that were there at the beginning.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from pool.errors import PoolError
from pool.jobs.events import EventKind, JobEvent
from pool.policy.managed import is_reserved
from pool.policy.queue import HELD, JobId, QueuedCluster, QueuedJob
from pool.roles.cooperative import WorkTurns
from pool.roles.schedd.core.ledger import Ledger, NewJobs
from pool.wire import Stream

Wire = dict[str, Any]
#: Items in one message. With so many items waiting the reader is too slow, and is cut off.
BATCH, MOST_WAITING = 500, 2_000_000
#: Seconds for which items gather.
GATHER = 0.02
#: Processors that a job may ask for.
MOST_UNITS = 10_000
#: Attributes of a job that no machine's fitness follows from, and that may be long.
_LONG = frozenset(("Env", "Environment", "Args", "Arguments", "TransferInput", "TransferOutput"))
ENDS = (EventKind.TERMINATED, EventKind.ABORTED, EventKind.HELD)


class OwnWork:
    """One such stream."""

    def __init__(self, ledger: Ledger, turns: WorkTurns) -> None:
        self._ledger = ledger
        self._turns = turns
        self._items: deque[list[Any]] = deque()
        self._wake = asyncio.Event()
        #: Jobs up to this one are told; of others nothing is, since they are listed as they are by then.
        self._told: tuple[float, float] = (-1, -1)
        self._old: frozenset[int] = frozenset()  # clusters that were there at the beginning
        self._out: set[JobId] = set()  # jobs in the queue that are held, or have ended and stay to be seen
        self._with_ad: set[int] = set()

    async def run(self, stream: Stream) -> None:
        """Until the reader is gone.

        Raises:
            PoolError: it reads too slowly.
        """
        stop = self._ledger.listen(self._on_events)
        try:
            self._old = frozenset(self._ledger.queue.clusters)
            async with self._turns.work("", "list jobs for the flock") as turn:
                for _ in self._list():
                    if turn.is_over:
                        await turn.pause()
            self._told = (math.inf, math.inf)
            await self._send(stream)
            await stream.send([])
            while True:
                await self._wake.wait()
                await asyncio.sleep(GATHER)
                await self._send(stream)
        finally:
            stop()

    async def _send(self, stream: Stream) -> None:
        self._wake.clear()
        while self._items:
            if len(self._items) > MOST_WAITING:
                raise PoolError("too slow a reader of jobs", hint="ask again", retry=True)
            await stream.send([self._items.popleft() for _ in range(min(BATCH, len(self._items)))])

    def _list(self) -> Iterator[None]:
        for number in sorted(self._old):
            cluster = self._ledger.queue.clusters.get(number)
            if cluster is None or not _wants_machines(cluster):
                continue
            while cluster.coming:
                yield
            for proc in cluster.jobs:
                if (job := cluster.jobs.get(proc)) is not None:
                    self._add(job)
                self._told = (number, proc)
                yield

    def _add_cluster(self, came: NewJobs) -> None:
        jobs = came.jobs()
        self._add(next(jobs))
        if came.are_alike("RequestCpus"):
            self._items[-1][3] = came.count
            return
        for job in jobs:
            self._add(job)

    def _add(self, job: QueuedJob) -> None:
        """A job of the queue: alone, or as one more like the last."""
        if job.status is HELD or job.status.final:
            self._out.add(job.id)
            return
        done, units = _number(job.get("CommittedTime")), _units(job)
        if job.status.has_machine and (began := _number(job.get("JobCurrentStartDate"))):
            done += max(0.0, self._ledger.now() - began)
        last = self._items[-1] if self._items else None
        cluster, proc = job.id
        if (
            last is not None
            and last[0] == "jobs"
            and last[1:3] == [cluster, proc - last[3]]
            and last[4:6] == [units, done]
        ):
            last[3] += 1
            return
        ad = None
        if cluster not in self._with_ad:
            self._with_ad.add(cluster)
            ad = {name: value for name, value in job.cluster.wire.items() if name not in _LONG}
        self._items.append(["jobs", cluster, proc, 1, units, done, ad])

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        before = len(self._items)
        for event in events:
            if event.kind is EventKind.SUBMIT:
                came = self._ledger.came
                if came is not None and _wants_machines(came.cluster):
                    self._add_cluster(came)
            elif event.kind in ENDS or event.kind is EventKind.RELEASED:
                self._change(event)
        if len(self._items) > before or before:
            self._wake.set()

    def _change(self, event: JobEvent) -> None:
        number = (event.cluster, event.proc)
        job = self._ledger.gone.get(number) or self._ledger.queue.find(*number)
        told = number <= self._told or event.cluster not in self._old
        if job is None or not told or not _wants_machines(job.cluster):
            return
        if event.kind is EventKind.RELEASED:
            if number in self._out and not job.status.final:
                self._out.discard(number)
                self._add(job)
            return
        counted = number not in self._out
        if number in self._ledger.gone:
            self._out.discard(number)
        else:
            self._out.add(number)
        if counted:
            self._items.append(["ended", *number, _number(job.get("CommittedTime"))])


def _wants_machines(cluster: QueuedCluster) -> bool:
    """Whether its jobs are for machines that the negotiator gives away."""
    return not (cluster.is_local or cluster.is_workflow or cluster.dedicated or is_reserved(cluster.owner))


def _units(job: QueuedJob) -> int:
    return max(1, min(MOST_UNITS, math.ceil(_number(job.get("RequestCpus", 1)))))


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
