"""Idle jobs whose last start failed: kept back until they may be tried again, and looked at when a pause is over.

How long a pause is, and for which machine, is `pool.policy.start_failures`'.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.outside import OutsideWorld
from pool.policy.queue import IDLE, QueuedJob
from pool.policy.start_failures import from_wire, next_change, waits_until
from pool.roles.schedd.core.job_ends import FAILURES

#: A timer is set for at most so long, seconds: the clock may be set.
LONGEST = 60.0
#: It is looked so much after the end of a pause, seconds: a timer may ring a moment early.
AFTER = 0.01


class StartPauses:
    """The pauses of one schedd's jobs.

    Args:
        due: called with a job that may be tried again, anywhere or on one machine more.
    """

    def __init__(self, outside: OutsideWorld, due: Callable[[QueuedJob], None]) -> None:
        self._outside = outside
        self._due = due
        self._timers: dict[QueuedJob, asyncio.TimerHandle] = {}

    def waits(self, job: QueuedJob) -> bool:
        """Whether no machine is to be asked for an idle job now; it is looked at again when that may change. One that
        runs beside the schedd has one machine."""
        kept = job.stored_note(FAILURES)
        if not kept:
            return False
        failures, now = from_wire(kept), self._outside.wall()
        change = next_change(failures, now)
        if change is not None:
            self._check_in(job, change + AFTER - now)
        return waits_until(failures, now) is not None or (job.cluster.is_local and change is not None)

    def close(self) -> None:
        """Look at nothing any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _check_in(self, job: QueuedJob, seconds: float) -> None:
        if (before := self._timers.pop(job, None)) is not None:
            before.cancel()
        loop = asyncio.get_running_loop()
        self._timers[job] = loop.call_later(min(seconds, LONGEST), self._on_timer, job)

    def _on_timer(self, job: QueuedJob) -> None:
        del self._timers[job]
        if job.status != IDLE or job.cluster.jobs.get(job.proc) is not job:
            return
        if not self.waits(job):
            self._due(job)
