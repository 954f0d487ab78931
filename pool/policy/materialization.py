"""How many jobs of a cluster are asked for at once: `max_idle`, `max_materialize` and `next_job_start_delay`.

A cluster is in the queue as a whole from its submit on. HTCondor's late materialisation bounds how many of its jobs
are; here it bounds how many of them machines are looked for. The others are idle and kept back, and take their turns
by their numbers. Plain state, no clock: the schedd counts the pause between two starts.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.jobs.states import JobStatus

#: The bounds of a cluster: the most jobs that are idle at a time, the most that have begun their turns and have not
#: left the queue, and the seconds between two starts. Each may be an expression, which is evaluated once.
MAX_IDLE, MAX_MATERIALIZE, START_DELAY = "JobMaterializeMaxIdle", "JobMaterializeLimit", "NextJobStartDelay"
NAMES = (MAX_IDLE, MAX_MATERIALIZE, START_DELAY)


@dataclass(frozen=True, slots=True)
class MaterializationLimits:
    """The bounds of one cluster; None where there is none."""

    idle: int | None = None
    whole: int | None = None
    delay: float = 0.0

    @classmethod
    def from_ad(cls, value: Mapping[str, Any]) -> MaterializationLimits | None:
        """Those that values of NAMES say; None for a cluster without any."""
        idle, whole, delay = (_number(value.get(name)) for name in NAMES)
        bounds = cls(
            int(idle) if idle is not None and idle >= 1 else None,
            int(whole) if whole is not None and whole >= 1 else None,
            delay if delay is not None and delay > 0 else 0.0,
        )
        return bounds if bounds != cls() else None


class Materialization:
    """The order of the jobs of one cluster, by their numbers.

    Attributes:
        paused: a job has started, and the pause after it is not over.
    """

    def __init__(self, bounds: MaterializationLimits) -> None:
        self.bounds = bounds
        self.paused = False
        #: Jobs that have had their turns and are in the queue yet; those of them that machines are looked for.
        self._begun: set[int] = set()
        self._admitted: set[int] = set()
        self._waiting: list[int] = []
        self._idle: set[int] = set()
        # Of a cluster whose starts are spaced one job is asked for at a time.
        self._most_idle = 1 if bounds.delay else bounds.idle

    def is_out_of_turn(self, proc: int) -> bool:
        """Whether it is not the turn of an idle job."""
        return proc not in self._admitted

    def job_changed(self, proc: int, before: JobStatus | None, after: JobStatus | None, *, begun: bool = False) -> bool:
        """Take in that a job has come (`before` None), moved or left (`after` None); whether a start was made.

        Args:
            begun: it has been started before.
        """
        if begun or after in _UNDER_WAY:
            self._begun.add(proc)
        if after is JobStatus.IDLE:
            self._idle.add(proc)
            heapq.heappush(self._waiting, proc)
        else:
            self._idle.discard(proc)
            self._admitted.discard(proc)
        if after is None:
            self._begun.discard(proc)
        started = before is JobStatus.IDLE and after is JobStatus.RUNNING
        if started and self.bounds.delay:
            self.paused = True
        return started

    def withdrawn(self) -> list[int]:
        """While starts pause nobody is asked for: the jobs that lose their turns for that."""
        if not self.paused:
            return []
        back = sorted(self._admitted)
        for proc in back:
            heapq.heappush(self._waiting, proc)
        self._admitted.clear()
        return back

    def admit(self) -> list[int]:
        """The jobs whose turn it is now, in addition to those whose turn it was."""
        found: list[int] = []
        whole = self.bounds.whole
        while not self.paused and self._waiting and (self._most_idle is None or len(self._admitted) < self._most_idle):
            proc = self._waiting[0]
            if proc in self._idle and proc not in self._admitted:
                if whole is not None and proc not in self._begun and len(self._begun) >= whole:
                    break
                self._begun.add(proc)
                self._admitted.add(proc)
                found.append(proc)
            heapq.heappop(self._waiting)
        return found


_UNDER_WAY = frozenset(status for status in JobStatus if status.has_machine)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None
