"""The last work on a job's run when its end is durable: the user's notice; records that nobody needs go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pool.jobs.events import AlikeEvents, EventKind, JobEvent
from pool.policy.queue import HELD, JobId, QueuedJob, Wire
from pool.roles.base import Spawn
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts


class EndedJobs:
    """The ended runs of one schedd.

    Args:
        gone: the jobs that leave the queue with the events that listeners hear.
        forget_images: drops the checkpoints of a job that has left the queue.
    """

    def __init__(
        self,
        costs: SubmitSideCosts,
        spawn: Spawn,
        *,
        gone: Callable[[], Mapping[JobId, QueuedJob]],
        forget_images: Callable[[QueuedJob], Coroutine[Any, Any, None]],
    ) -> None:
        self._costs = costs
        self._spawn = spawn
        self._gone = gone
        self._listeners: list[Callable[[Wire], None]] = []
        self._forget_images = forget_images

    def listen(self, finished: Callable[[Wire], None]) -> None:
        """Call this with the last ad of each job that ends and whose user may want a notice."""
        self._listeners.append(finished)

    def end_recorded(self, job: QueuedJob) -> None:
        """The end of a run is durable."""
        if (job.status.final or job.status is HELD) and job.get("JobNotification"):
            ad = job.wire()
            for finished in self._listeners:
                finished(ad)
        if job.status.final:
            self._forget(job)

    def on_events(self, events: Sequence[JobEvent]) -> None:
        """Jobs were removed: one that did not run has no run whose end is settled."""
        for event in events:
            if event.kind is EventKind.ABORTED and (job := self._gone().get((event.cluster, event.proc))) is not None:
                self._forget(job)

    def on_alike_events(self, events: AlikeEvents, jobs: Sequence[QueuedJob]) -> None:
        """Jobs were removed together."""
        if events.kind is EventKind.ABORTED:
            for job in jobs:
                self._forget(job)

    def _forget(self, job: QueuedJob) -> None:
        """A job has left the queue: drop what is kept for its next start."""
        self._costs.forget(job)
        if job.get("NumCkpts"):
            self._spawn(self._forget_images(job), "forget", alone=True)
