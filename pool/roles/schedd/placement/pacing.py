"""Times that jobs wait for: the end of a pause between two starts of a cluster, and of a run's allowed time.

`periodic_*` expressions are looked at every PERIODIC_INTERVAL. The moment at which a run has taken as long as it may
is known beforehand, and the job is looked at then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pool.jobs.events import EventKind, JobEvent
from pool.policy.exits import DURATIONS, run_ends_at
from pool.policy.queue import ACTIVE, QueuedCluster, QueuedJob
from pool.roles.schedd.core.context import ScheddContext
from pool.roles.schedd.core.ledger import ignore_alike

#: A run is looked at this long after it has taken as long as it may, seconds.
AFTER = 0.01
#: A moment that lies further ahead is waited for in steps: the clock may be set meanwhile.
LONGEST = 60.0


class Pacing:
    """The moments of one schedd's jobs.

    Args:
        offer: called with an owner whose idle jobs may be asked for now.
        judge: looks at a job's periodic expressions and durations.
    """

    def __init__(
        self,
        context: ScheddContext,
        *,
        offer: Callable[[str], None],
        judge: Callable[[QueuedJob], Coroutine[Any, Any, None]],
    ) -> None:
        self._context = context
        self._offer = offer
        self._judge = judge
        self._timers: dict[object, asyncio.TimerHandle] = {}
        context.ledger.listen(self._on_events, ignore_alike)
        context.queue.listen_turns(self)

    def restore(self, running: Sequence[QueuedJob]) -> None:
        """The queue has been loaded: count on from where an earlier run of the node had come to.

        Args:
            running: the jobs that ran then.
        """
        active = [job for job in running if job.status in ACTIVE]
        last_starts: dict[QueuedCluster, float] = {}
        for job in active:
            last_starts[job.cluster] = max(_start_of(job), last_starts.get(job.cluster, 0.0))
        for cluster, last in last_starts.items():
            turns = cluster.turns
            if turns is not None and turns.bounds.delay:
                left = last + turns.bounds.delay - self._context.outside.wall()
                if left > 0:
                    self._context.queue.pause(cluster)
                    self._call_later(cluster, min(left, turns.bounds.delay), self._resume, cluster)
        for job in active:
            self._watch(job)

    def close(self) -> None:
        """Nothing is waited for any more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _call_later(self, key: object, seconds: float, function: Callable[..., None], subject: object) -> None:
        if (before := self._timers.pop(key, None)) is not None:
            before.cancel()
        self._timers[key] = asyncio.get_running_loop().call_later(max(0.0, seconds), function, subject)

    # -- starts of one cluster ---------------------------------------------------------------------------

    def pause(self, cluster: QueuedCluster) -> None:
        """A job of a cluster has started that wants a pause before the next one starts."""
        assert cluster.turns is not None
        self._call_later(cluster, cluster.turns.bounds.delay, self._resume, cluster)

    def _resume(self, cluster: QueuedCluster) -> None:
        self._timers.pop(cluster, None)
        if self._context.queue.clusters.get(cluster.id) is cluster:
            self._context.queue.resume(cluster)

    def gave_turns(self, cluster: QueuedCluster) -> None:
        """Other jobs of a cluster may be asked for. The queue is being changed now, so they are offered afterwards."""
        asyncio.get_running_loop().call_soon(self._offer, cluster.owner)

    # -- allowed durations -------------------------------------------------------------------------------

    def _on_events(self, events: Sequence[JobEvent]) -> None:
        for event in events:
            if event.kind is EventKind.EXECUTE:
                job = self._context.queue.find(event.cluster, event.proc)
                if job is not None:
                    self._watch(job)

    def _watch(self, job: QueuedJob) -> None:
        """Look at a running job when it has taken as long as it may."""
        wire, delta = job.cluster.wire, job.delta or {}
        if not any(name in wire or name in delta for name in DURATIONS):
            return
        ends = run_ends_at(job.ad(), self._context.outside.wall())
        if ends is not None:
            left = ends + AFTER - self._context.outside.wall()
            self._call_later(job, min(left, LONGEST), self._check_duration, job)

    def _check_duration(self, job: QueuedJob) -> None:
        self._timers.pop(job, None)
        if job.status not in ACTIVE or job.cluster.jobs.get(job.proc) is not job:
            return
        ends = run_ends_at(job.ad(), self._context.outside.wall())
        if ends is not None and ends < self._context.outside.wall():
            self._context.spawn(self._judge(job), "durations", alone=True)
        else:
            self._watch(job)


def _start_of(job: QueuedJob) -> float:
    began = job.get("JobCurrentStartDate")
    return float(began) if isinstance(began, (int, float)) else 0.0
