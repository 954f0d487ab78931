"""This pool as it would be by itself: which of its own jobs would run by now, had there been no flock (EV 4.2).

A pool that pays a debt back may not be worse off than without a flock. So the own jobs that would run alone come first,
and a creditor's jobs come ahead of the others only: there, the flock has given the pool more than it pays.

The pool alone takes its jobs in the order of their submits, each when a processor is free. Nothing has to be
guessed: a job that has ended was as long as it was, wherever it ran; one that has not ended here has not ended there,
since it has begun here no later. So an end tells, maybe after the fact, when a processor would have become free.

Where this is not exact, it errs in favour of the pool's own jobs. A job that asks for several processors begins when
one is free, with those that are. Users' priorities do not count: they change who waits, hardly how many.
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
    """Jobs of one cluster that are alike: processes `first` and so many after it.

    Attributes:
        units: processors that each asks for.
        done: seconds that each had run when it was first counted.
    """

    schedd: str
    cluster: int
    first: int
    count: int = 1
    units: int = 1
    done: float = 0.0


@dataclass(slots=True)
class _Alone:
    """A job that would run now: since when, on how many processors, and what it had done before."""

    began: float
    units: int
    done: float


class PoolAlone:
    """The pool by itself, from the first call on. All times are of one clock, which never goes back."""

    def __init__(self) -> None:
        self.units = 0
        self._free: list[float] = []  # when each processor that no job of `_running` has was, or will be, free
        self._missing = 0  # processors that are gone, and whose jobs would still run
        self._waiting: deque[tuple[float, JobRange]] = deque()
        self._ended: dict[JobKey, list[float]] = {}  # jobs that have ended, and would still wait: seconds that they ran
        self._running: dict[JobKey, _Alone] = {}

    def set_units(self, units: int, now: float) -> None:
        """The pool has so many processors from now on."""
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
        """Jobs wait for a machine: they were submitted, released, or are counted for the first time."""
        if jobs.count > 0:
            self._waiting.append((now, jobs))

    def ended(self, job: JobKey, ran: float, now: float) -> None:
        """A job has left the queue, or is held; it ran for so many seconds, wherever that was."""
        self.would_run(now)
        known = self._running.pop(job, None)
        if known is None:
            self._ended.setdefault(job, []).append(ran)
        else:
            self._over(known, ran)

    def forget(self, schedd: str, now: float) -> None:
        """Nothing is known of a schedd's jobs any more: its processors are free, as if none had ever run."""
        self.would_run(now)
        self._waiting = deque(one for one in self._waiting if one[1].schedd != schedd)
        for key in [key for key in self._ended if key[0] == schedd]:
            del self._ended[key]
        for key in [key for key in self._running if key[0] == schedd]:
            self._over(self._running.pop(key), 0.0)

    def would_run(self, now: float) -> int:
        """The processors on which own jobs would run now that have not ended yet."""
        while self._waiting and self._free:
            arrived, jobs = self._waiting[0]
            at = max(arrived, self._free[0])
            if at > now:
                break
            units = 0
            while units < jobs.units and self._free and self._free[0] <= at:
                heapq.heappop(self._free)
                units += 1
            self._begin((jobs.schedd, jobs.cluster, jobs.first), _Alone(at, units, jobs.done))
            jobs.first += 1
            jobs.count -= 1
            if not jobs.count:
                self._waiting.popleft()
        return sum(one.units for one in self._running.values())

    def next_change(self) -> float:
        """When `would_run` may be more than now, if nothing happens until then; never: infinity."""
        return self._free[0] if self._waiting and self._free else math.inf

    def _begin(self, key: JobKey, run: _Alone) -> None:
        ends = self._ended.get(key)
        if ends is None:
            self._running[key] = run
            return
        ran = ends.pop(0)  # a job that was held and released has more than one
        if not ends:
            del self._ended[key]
        self._over(run, ran)

    def _over(self, run: _Alone, ran: float) -> None:
        for _ in range(run.units):
            self._release(run.began + max(0.0, ran - run.done))

    def _release(self, at: float) -> None:
        if self._missing:
            self._missing -= 1
        else:
            heapq.heappush(self._free, at)
