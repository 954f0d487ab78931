"""First come first served, EASY and conservative backfill, for themselves: the peers of the dedicated scheduler.

They know nothing but numbers of alike machines, share no code with `pool.policy.dedicated`, and take their rules from
the literature: EASY from Lifka 1995 and Feitelson and Weil 1998, conservative backfill from Mu'alem and Feitelson 2001
with the schedule made anew at each event. Queues are in the order of submission; of jobs of one second the shorter goes
first.
"""

from __future__ import annotations

import heapq
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pool.testing.dedicated import TraceJob

#: How many waiting jobs conservative backfill plans.
DEPTH = 300


@dataclass(frozen=True)
class PeerFigures:
    """Mean wait in seconds, mean bounded slowdown, utilisation."""

    wait: float
    slowdown: float
    utilisation: float


@dataclass
class _Pool:
    now: float
    free: int
    #: (expected end, machines) of each running job.
    ends: dict[int, tuple[float, int]]


#: From the pool and the waiting jobs to the places in the queue that start now, in order.
Rule = Callable[[_Pool, Sequence[TraceJob]], list[int]]


def expected(job: TraceJob) -> float:
    return max(1.0, job.estimate if job.estimate is not None else job.runtime)


def fcfs(pool: _Pool, queue: Sequence[TraceJob]) -> list[int]:
    starts, free = [], pool.free
    for place, job in enumerate(queue):
        if job.size > free:
            break
        free -= job.size
        starts.append(place)
    return starts


def easy(pool: _Pool, queue: Sequence[TraceJob]) -> list[int]:
    starts = fcfs(pool, queue)
    if len(starts) == len(queue):
        return starts
    free = pool.free - sum(queue[place].size for place in starts)
    head = queue[len(starts)]
    ends = list(pool.ends.values()) + [(pool.now + expected(queue[p]), queue[p].size) for p in starts]
    there, shadow = free, pool.now
    for end, size in sorted((max(end, pool.now), size) for end, size in ends):
        there += size
        if there >= head.size:
            shadow = end
            break
    spare = there - head.size
    for place in range(len(starts) + 1, len(queue)):
        job = queue[place]
        ends_before = pool.now + expected(job) <= shadow
        if job.size <= free and (ends_before or job.size <= spare):
            spare -= 0 if ends_before else job.size
            free -= job.size
            starts.append(place)
    return starts


def conservative(pool: _Pool, queue: Sequence[TraceJob]) -> list[int]:
    starts = fcfs(pool, queue)
    free = pool.free - sum(queue[place].size for place in starts)
    if len(starts) == len(queue) or not free:
        return starts
    # Changes of the number of free machines by time, kept in order.
    changes: dict[float, int] = {pool.now: free}
    for end, size in pool.ends.values():
        changes[max(end, pool.now)] = changes.get(max(end, pool.now), 0) + size
    for place in starts:
        end = pool.now + expected(queue[place])
        changes[end] = changes.get(end, 0) + queue[place].size
    for place in range(len(starts), min(len(queue), len(starts) + DEPTH)):
        job = queue[place]
        start = _first_hole(changes, job.size, expected(job))
        changes[start] = changes.get(start, 0) - job.size
        changes[start + expected(job)] = changes.get(start + expected(job), 0) + job.size
        if start <= pool.now and job.size <= free:
            free -= job.size
            starts.append(place)
    return starts


def _first_hole(changes: dict[float, int], size: int, duration: float) -> float:
    there, since = 0, None
    for at in sorted(changes):
        if since is not None and at >= since + duration:
            return since
        there += changes[at]
        if there < size:
            since = None
        elif since is None:
            since = at
    assert since is not None, "everything is free in the end"
    return since


def peer(jobs: Sequence[TraceJob], machines: int, rule: Rule) -> PeerFigures:
    """A rule's figures on a workload."""
    order = sorted(jobs, key=lambda job: (job.submitted, job.runtime, job.size))
    pool = _Pool(0.0, machines, {})
    running: list[tuple[float, int, int]] = []
    queue: list[TraceJob] = []
    waits: list[tuple[float, TraceJob]] = []
    coming, last = 0, 0.0
    while coming < len(order) or running:
        nexts = [order[coming].submitted] if coming < len(order) else []
        pool.now = min([*nexts, *(end for end, _, _ in running[:1])])
        while running and running[0][0] <= pool.now:
            _, number, size = heapq.heappop(running)
            pool.free += size
            del pool.ends[number]
        while coming < len(order) and order[coming].submitted <= pool.now:
            queue.append(order[coming])
            coming += 1
        started = rule(pool, queue)
        for place in started:
            job = queue[place]
            pool.free -= job.size
            pool.ends[job.number] = (pool.now + expected(job), job.size)
            heapq.heappush(running, (pool.now + job.runtime, job.number, job.size))
            waits.append((pool.now - job.submitted, job))
            last = max(last, pool.now + job.runtime)
        gone = set(started)
        queue = [job for place, job in enumerate(queue) if place not in gone]
    slowdowns = [max(1.0, (wait + job.runtime) / max(job.runtime, 10.0)) for wait, job in waits]
    work = sum(job.runtime * job.size for job in jobs)
    return PeerFigures(
        statistics.fmean(wait for wait, _ in waits), statistics.fmean(slowdowns), work / (machines * last)
    )
