"""The last work on a job's run when its end is durable: the user's notice; records that nobody needs go."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from pool.policy.queue import HELD, QueuedJob, Wire
from pool.roles.base import Spawn
from pool.roles.schedd.core.submit_side_costs import SubmitSideCosts


class EndedJobs:
    """The ended runs of one schedd.

    Args:
        finished: called with the job's last ad if its user may want a notice.
        forget_images: drops the checkpoints of a job that has left the queue.
    """

    def __init__(
        self,
        costs: SubmitSideCosts,
        spawn: Spawn,
        *,
        finished: Callable[[Wire], None],
        forget_images: Callable[[QueuedJob], Coroutine[Any, Any, None]],
    ) -> None:
        self._costs = costs
        self._spawn = spawn
        self._finished = finished
        self._forget_images = forget_images

    def settle(self, job: QueuedJob) -> None:
        """The end of a run is durable."""
        if (job.status.final or job.status is HELD) and job.get("JobNotification"):
            self._finished(job.wire())
        if job.status.final:
            self._costs.forget(job)
        if job.status.final and job.get("NumCkpts"):
            self._spawn(self._forget_images(job), "forget", alone=True)
