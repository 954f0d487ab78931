"""Counting a cluster's jobs from their events, without asking the queue again and again.

Pure: events go in one by one, states and counts come out. The event stream is the truth about what happened;
what a job's final ad says is asked once, when the tally says that it is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

JobId = tuple[int, int]

IDLE, RUNNING, REMOVED, COMPLETED, HELD, TRANSFERRING, SUSPENDED = 1, 2, 3, 4, 5, 6, 7

# The state of a job after an event. Events that are not here change nothing.
STATE_AFTER: dict[str, int] = {
    "EXECUTE": RUNNING,
    "EVICTED": IDLE,
    "TERMINATED": COMPLETED,
    "SUSPENDED": SUSPENDED,
    "UNSUSPENDED": RUNNING,
    "HELD": HELD,
    "RELEASED": IDLE,
    "ABORTED": REMOVED,
    "SHADOW_EXCEPTION": IDLE,
    "RECONNECTED": RUNNING,
    "RECONNECT_FAILED": IDLE,
}
OVER = (REMOVED, COMPLETED)


class Tally:
    """The state of each followed job, and how many there are of each.

    Args:
        jobs: the ids to follow, with their states where these are known; otherwise all begin idle, as a
            submitted job does. Events about other jobs are ignored.
    """

    def __init__(self, jobs: Iterable[JobId] | Mapping[JobId, int]) -> None:
        self.states: dict[JobId, int] = dict(jobs) if isinstance(jobs, Mapping) else dict.fromkeys(jobs, IDLE)
        self.counts: Counter[int] = Counter(self.states.values())

    def apply(self, job: JobId, kind: str) -> int | None:
        """Takes one event; returns the job's new state when it changed, else None.

        A proc of -1 stands for every job of the cluster (`pool.jobs.events.WHOLE_CLUSTER`).
        """
        new = STATE_AFTER.get(kind)
        if new is None:
            return None
        if job[1] < 0:
            moved = [one for one, state in self.states.items() if one[0] == job[0] and state != new]
            for one in moved:
                self.set(one, new)
            return new if moved else None
        if self.states.get(job, new) == new:
            return None
        self.set(job, new)
        return new

    def set(self, job: JobId, state: int) -> None:
        """Corrects a job's state from its ad."""
        self.counts[self.states[job]] -= 1
        self.counts[state] += 1
        self.states[job] = state

    @property
    def total(self) -> int:
        return len(self.states)

    @property
    def ended(self) -> int:
        """How many jobs have left the queue."""
        return self.counts[COMPLETED] + self.counts[REMOVED]

    @property
    def all_ended(self) -> bool:
        return self.ended == len(self.states)

    @property
    def only_held(self) -> bool:
        """Nothing is left that moves by itself: what is not over is held."""
        return not self.all_ended and self.ended + self.counts[HELD] == len(self.states)

    def unfinished(self) -> list[JobId]:
        return [job for job, state in self.states.items() if state not in OVER]
