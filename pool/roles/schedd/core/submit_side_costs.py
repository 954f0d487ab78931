"""Processor time that jobs cost on the submit side, counted for each job until its run's end is written (A11, EV 2.8).

Leverage is remote processor time for each second of this. It has three parts.

- Own: the turns in which the schedd works for one job (its start, its files, its checkpoints), and the threads and file
  servers that work for it meanwhile. Meters count these.
- Submit: a cluster's submit is counted as a whole, and each of its jobs has an equal part of it.
- Common: all else that this process does while it works for jobs: messages, negotiation, the writing of the queue, by
  whatever thread. Each change of a job that is written is a *step*. The processor time between two steps,
  less the time that meters have counted, belongs to the job of the first of them; several at once have equal parts.
  Time after the end of a job that has left the queue belongs to the next one.

Some time is counted for no job: time in which nothing was done for jobs, questions of users, the jobs that run on this
machine (`RoleContext.aside`), the removal of jobs that never ran, and work after the last step of the last run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from pool.jobs.events import EventKind
from pool.metering import Meter
from pool.outside import OutsideWorld
from pool.policy.queue import QueuedCluster, QueuedJob
from pool.roles.schedd.core.claims import HeldClaim
from pool.roles.schedd.core.ledger import JobChange

T = TypeVar("T")

#: So long after a step this process still works for jobs, seconds.
QUIET = 2.0


class SubmitSideCosts:
    """The costs of one schedd's jobs.

    Args:
        claims: by their ids.
        aside: counts what this process does for none of them.
    """

    def __init__(self, claims: Mapping[str, HeldClaim], outside: OutsideWorld, aside: Meter) -> None:
        self._claims = claims
        self._outside = outside
        self._aside = aside
        self._metered = Meter(outside.thread_cpu)
        self._meters: dict[tuple[int, int], Meter] = {}
        self._stepped: list[QueuedJob] = []
        self._carried = 0.0
        self._read = 0.0
        self._last = float("-inf")
        self._closing: asyncio.TimerHandle | None = None

    async def measured(self, claim: str, work: Coroutine[Any, Any, T]) -> T:
        """Do this for the job on a claim, if there is one, and count what it takes."""
        found = self._claims.get(claim)
        if found is None or found.job is None:
            return await work
        return await self._meter_of(found.job).measured(work)

    async def submitted(self, work: Coroutine[Any, Any, QueuedCluster]) -> QueuedCluster:
        """Take in a cluster, and count what that takes for its jobs."""
        meter = Meter(self._outside.thread_cpu, self._metered)
        cluster = await meter.measured(work)
        cluster.cost = meter.seconds / max(1, len(cluster.jobs))
        return cluster

    def step(self, jobs: Iterable[QueuedJob]) -> None:
        """Something is written for jobs, a step for each."""
        self.mark_busy()
        self._stepped += jobs

    def mark_busy(self) -> None:
        """This process works for jobs."""
        now = asyncio.get_running_loop().time()
        if now == self._last:
            return
        read = self._reading()
        if now - self._last <= QUIET:
            self._share_out(read - self._read)
        else:
            self._carried = 0.0
        self._read, self._last = read, now
        if self._closing is None:
            self._closing = asyncio.get_running_loop().call_later(QUIET, self._close)

    def _share_out(self, seconds: float) -> None:
        jobs, self._stepped = self._stepped, []
        part = max(0.0, seconds) / max(1, len(jobs))
        if not jobs:
            self._carried += part
        for job in jobs:
            if job.cluster.jobs.get(job.proc) is job:
                job.cost += part + self._carried
                self._carried = 0.0
            elif job.get("NumJobStarts"):
                self._carried += part

    def collect_seconds(self, job: QueuedJob, now: float) -> float:
        """Seconds that the job has cost since the last call.

        Args:
            now: processor seconds of this thread since the turn began in which this is asked; counted now, and not
                again when the turn ends.
        """
        self.mark_busy()
        meter = self._meter_of(job)
        seconds = meter.seconds + now + job.cost
        meter.seconds, job.cost = -now, 0.0
        if job.get("LocalUserCpu") is None:
            seconds += job.cluster.cost
        return max(0.0, seconds)

    def charge(self, job: QueuedJob, steps: list[JobChange], now: float = 0.0) -> None:
        """Write into the end of a run the processor time that it took on the submit side (EV 2.8).

        Args:
            now: see `collect_seconds`.
        """
        spent = self.collect_seconds(job, now)
        steps[0].changes["LocalUserCpu"] = round(float(job.get("LocalUserCpu", 0) or 0) + spent, 6)
        for step in steps:
            if step.job is job and step.event is not EventKind.EXECUTE:
                step.data["local_user_cpu"] = round(spent, 6)

    def forget(self, job: QueuedJob) -> None:
        """The job is in the queue no more."""
        self._meters.pop(job.id, None)

    def close(self) -> None:
        """Look at nothing any more."""
        if self._closing is not None:
            self._closing.cancel()

    def _reading(self) -> float:
        """Processor seconds of this process that nobody has counted."""
        return self._outside.cpu() - self._metered.inside - self._aside.inside

    def _close(self) -> None:
        """Count the time after the last step for its job."""
        self._closing = None
        loop, read = asyncio.get_running_loop(), self._reading()
        self._share_out(read - self._read)
        self._read = read
        if (end := self._last + QUIET) > loop.time():
            self._closing = loop.call_at(end, self._close)

    def _meter_of(self, job: QueuedJob) -> Meter:
        meter = self._meters.get(job.id)
        if meter is None:
            meter = self._meters[job.id] = Meter(self._outside.thread_cpu, self._metered)
        return meter
