"""Simulates this pool without a flock: which of its own jobs would run by now (EV 4.2).

A pool that pays a debt back must not be worse off than without a flock. So own jobs that would run without a flock come
first, and a creditor's jobs come ahead of the other own jobs only.

The simulated pool takes its jobs in the order of their submits, each when a processor is free. It needs no estimates. A
job that has ended had the same length there, wherever it really ran. A job that has not ended here has not ended there
either, since it began here no later. So the real end of a job says when its simulated processor becomes free, sometimes
afterwards.

Where this is not exact, it errs in favour of the pool's own jobs. A job that asks for several processors begins as soon
as one is free, with the processors that are free then. Users' priorities do not count: they change which jobs wait,
and hardly how many.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

#: A job: its schedd, cluster and process.
JobKey = tuple[str, int, int]


@dataclass(slots=True)
class JobRange:
    """Equal jobs of one cluster: `count` processes, from `first` on.

    Attributes:
        units: processors of each job.
        done: seconds that each job had run when it was first counted.
    """

    schedd: str
    cluster: int
    first: int
    count: int = 1
    units: int = 1
    done: float = 0.0


@dataclass(slots=True)
class _SimulatedRun:
    """A job that would run now: its begin, its processors, and the seconds that it had run before."""

    began: float
    units: int
    done: float


class PoolWithoutFlock:
    """The pool without a flock, from the first call on. All times are of one clock that never goes back, seconds."""

    def __init__(self) -> None:
        self.units = 0
        self._free: list[float] = []  # when each processor that no job of `_running` has was, or will be, free
        self._missing = 0  # processors that are gone while their jobs would still run
        self._waiting: deque[tuple[float, JobRange]] = deque()
        self._ended: dict[JobKey, list[float]] = {}  # ended jobs that would still wait: the seconds that they ran
        self._running: dict[JobKey, _SimulatedRun] = {}

    def set_units(self, units: int, now: float) -> None:
        """Set how many processors the pool has from now on."""
        self.would_run(now)
        for _ in range(units - self.units):
            self._release(now)
        for _ in range(self.units - units):
            if self._free:
                heapq.heappop(self._free)
            else:
                self._missing += 1
        self.units = units

    def submitted(self, jobs: JobRange, now: float) -> None:
        """Add jobs that wait for a machine: submitted, released, or counted for the first time."""
        if jobs.count > 0:
            self._waiting.append((now, jobs))

    def ended(self, job: JobKey, ran: float, now: float) -> None:
        """A job has left the queue or is held. It ran for `ran` seconds, here or elsewhere."""
        self.would_run(now)
        known = self._running.pop(job, None)
        if known is None:
            self._ended.setdefault(job, []).append(ran)
        else:
            self._over(known, ran)

    def forget(self, schedd: str, now: float) -> None:
        """Drop a schedd's jobs, of which nothing is known any more, and free their processors."""
        self.would_run(now)
        self._waiting = deque(one for one in self._waiting if one[1].schedd != schedd)
        for key in [key for key in self._ended if key[0] == schedd]:
            del self._ended[key]
        for key in [key for key in self._running if key[0] == schedd]:
            self._over(self._running.pop(key), 0.0)

    def would_run(self, now: float) -> int:
        """The number of processors on which own jobs would run now that have not ended yet."""
        while self._waiting and self._free:
            arrived, jobs = self._waiting[0]
            at = max(arrived, self._free[0])
            if at > now:
                break
            units = 0
            while units < jobs.units and self._free and self._free[0] <= at:
                heapq.heappop(self._free)
                units += 1
            self._begin((jobs.schedd, jobs.cluster, jobs.first), _SimulatedRun(at, units, jobs.done))
            jobs.first += 1
            jobs.count -= 1
            if not jobs.count:
                self._waiting.popleft()
        return sum(one.units for one in self._running.values())

    def next_change(self) -> float:
        """The next time at which `would_run` may grow if nothing else happens; infinity if it will not."""
        return self._free[0] if self._waiting and self._free else math.inf

    def _begin(self, key: JobKey, run: _SimulatedRun) -> None:
        ends = self._ended.get(key)
        if ends is None:
            self._running[key] = run
            return
        ran = ends.pop(0)  # a job that was held and released has more than one
        if not ends:
            del self._ended[key]
        self._over(run, ran)

    def _over(self, run: _SimulatedRun, ran: float) -> None:
        for _ in range(run.units):
            self._release(run.began + max(0.0, ran - run.done))

    def _release(self, at: float) -> None:
        if self._missing:
            self._missing -= 1
        else:
            heapq.heappush(self._free, at)
