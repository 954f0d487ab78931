"""Processor time that jobs cost at home, counted for each job until its run's end is written (A11, EV 2.8).

Leverage is remote processor time for each second of this. Counted are the turns in which the schedd works for a job
(its start, its files, its checkpoints, its end), the threads and the file servers that work for it meanwhile. Not
counted is work for many at once: negotiation, and the writing of the queue to disk.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pool.metering import Meter
from pool.policy.queue import Job
from pool.roles.schedd.claims import Claim

T = TypeVar("T")


class HomeCosts:
    """The meters of one schedd's jobs.

    Args:
        claims: by their ids.
        clock: processor seconds of the thread that asks.
    """

    def __init__(self, claims: Mapping[str, Claim], clock: Callable[[], float]) -> None:
        self._claims = claims
        self._clock = clock
        self._meters: dict[tuple[int, int], Meter] = {}

    async def measured(self, claim: str, work: Coroutine[Any, Any, T]) -> T:
        """Do this for the job on a claim, if there is one, and count what it takes."""
        found = self._claims.get(claim)
        if found is None or found.job is None:
            return await work
        return await self._of(found.job).measured(work)

    def take(self, job: Job, now: float) -> float:
        """Seconds that the job has cost since the last call.

        Args:
            now: processor seconds of this thread since the turn began in which this is asked; counted now, and not
                again when the turn ends.
        """
        meter = self._of(job)
        seconds = meter.seconds + now
        meter.seconds = -now
        return max(0.0, seconds)

    def forget(self, job: Job) -> None:
        """The job is in the queue no more."""
        self._meters.pop(job.id, None)

    def _of(self, job: Job) -> Meter:
        meter = self._meters.get(job.id)
        if meter is None:
            meter = self._meters[job.id] = Meter(self._clock)
        return meter
