"""Jobs that start at a moment of their own: kept back until then; held, or given their next one, when they miss it.

`pool.policy.deferral` says what the times are. A job's wait here costs an entry in a heap; nothing is searched.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pool.jobs.crontab import CRONTAB, Crontab, NoSuchMoment
from pool.jobs.reasons import Hold
from pool.policy.deferral import deferral_of
from pool.policy.queue import IDLE, QueuedJob
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.job_ends import hold_step

#: The clock is looked at at least so often, seconds: it may have been set.
LOOK = 60.0
#: A machine may need so long to begin after a job's moment, seconds, before the job has missed it.
LATE = 1.0


class Deferrals:
    """The deferred jobs of a schedd.

    Args:
        due: called with a job whose moment has come so near that it may be started.
    """

    def __init__(self, context: ScheddContext, due: Callable[[QueuedJob], None]) -> None:
        self._context = context
        self._due = due
        self._coming: list[tuple[float, int, QueuedJob]] = []
        self._numbers = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def waits(self, job: QueuedJob) -> bool:
        """Whether an idle job may not be started now; looked at again when that changes."""
        now = self._context.outside.wall()
        deferral = deferral_of(job)
        if deferral is None:
            return False
        if deferral.time + deferral.window + LATE <= now and job.cluster.cron:
            job.update({"DeferralTime": int(next_of(job.get, now))})
            deferral = deferral_of(job)
            assert deferral is not None
        begins = deferral.time - deferral.preparation
        if now < begins:
            self._check_at(begins, job)
            return True
        missed = deferral.time + deferral.window + LATE
        self._check_at(missed, job)
        return now >= missed

    def delay(self, job: QueuedJob) -> float:
        """Seconds until the program of a job that is started now may begin."""
        deferral = deferral_of(job)
        return max(0.0, deferral.time - self._context.outside.wall()) if deferral is not None else 0.0

    def _check_at(self, when: float, job: QueuedJob) -> None:
        heapq.heappush(self._coming, (when, next(self._numbers), job))
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._coming:
            pause = min(max(self._coming[0][0] - self._context.outside.wall(), 0.0), LOOK)
            self._timer = asyncio.get_running_loop().call_later(pause, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now, due = self._context.outside.wall(), list[QueuedJob]()
        while self._coming and self._coming[0][0] <= now:
            due.append(heapq.heappop(self._coming)[2])
        self._arm()
        missed = []
        for job in dict.fromkeys(due):
            if job.status != IDLE or job.cluster.jobs.get(job.proc) is not job:
                continue
            deferral = deferral_of(job)
            if deferral is not None and now >= deferral.time + deferral.window + LATE and not job.cluster.cron:
                missed.append((job, deferral.time))
            else:
                self._due(job)
        if missed:
            self._context.spawn(self._hold(missed), "deferral")

    async def _hold(self, missed: list[tuple[QueuedJob, float]]) -> None:
        steps = []
        for job, moment in missed:
            if job.status == IDLE:
                when = datetime.fromtimestamp(moment).strftime("%Y-%m-%d %H:%M:%S")
                reason = f"it was to start at {when}, and that has passed"
                steps.append(hold_step(job, reason, Hold.MISSED_DEFERRED_TIME))
        if steps:
            await self._context.ledger.commit(*steps)

    def close(self) -> None:
        """Look at nothing any more."""
        if self._timer is not None:
            self._timer.cancel()


def next_of(get: Callable[[str], Any], now: float) -> float:
    """The next moment of a crontab.

    Raises:
        NoSuchMoment: there is none.
    """
    crontab = Crontab.read(get)
    if crontab is None:
        raise NoSuchMoment("the job has no crontab")
    return crontab.next(now)


def defer(ad: dict[str, Any], now: float) -> None:
    """Give a cluster with a crontab its first moment.

    Raises:
        NoSuchMoment: the crontab cannot be read.
    """
    if any(attribute in ad for attribute in CRONTAB):
        ad["DeferralTime"] = int(next_of(ad.get, now))
