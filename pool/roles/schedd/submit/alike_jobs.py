"""Which of the jobs that an action is done to are changed together: those that follow each other and are alike."""

from __future__ import annotations

from pool.policy.packed import Repeats
from pool.policy.queue import HELD, IDLE, QueuedJob
from pool.roles.schedd.core.history_records import RECORDED_BY
from pool.store import MOST_ALIKE

#: The actions that are done to many jobs together.
ACTIONS = frozenset(("hold", "release", "remove"))
#: Attributes that say how a job is changed by them: jobs with such differences of their own are changed one by one.
CHANGED_BY = RECORDED_BY | {"NumSystemHolds", "HoldReason", "NumCkpts"}
#: Fewer jobs are changed one by one.
FEW = 20


class AlikeJobsGathering:
    """Jobs of one cluster that follow each other, wait, and have the same status and state, as they come.

    Attributes:
        jobs: those that are together by now.
    """

    def __init__(self) -> None:
        self.jobs: list[QueuedJob] = []
        self._states = Repeats()

    def add(self, job: QueuedJob) -> bool:
        """Take the next job; False where it cannot be changed together with those that are here."""
        if job.notes or (job.delta and not CHANGED_BY.isdisjoint(job.delta)):
            return False
        jobs, state = self.jobs, job.state
        if not jobs:
            if job.status is not IDLE and job.status is not HELD:
                return False
            self._states.is_again(state or {})
        else:
            last = jobs[-1]
            follows = job.proc == last.proc + 1 and job.cluster is last.cluster and job.status is last.status
            if not follows or len(jobs) >= MOST_ALIKE:
                return False
            if state is not last.state and not self._states.is_again(state or {}):
                return False
        jobs.append(job)
        return True

    def pop_all(self) -> list[QueuedJob]:
        """The jobs that are together; none is afterwards."""
        jobs, self.jobs = self.jobs, []
        return jobs
