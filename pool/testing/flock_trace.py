"""A trace of many sites, each a pool: how long jobs wait while a machine is idle anywhere (EV 1), by design.

    jobs = read_site_jobs(Path("lcg-2005.swf.gz"))
    machines = machines_for(jobs, load=0.7)
    print(run_sites(jobs, machines, FlockDesign.IDEAL))

The designs are the thesis' rules by themselves, without roles and messages: each job takes one machine, all machines
are alike, and but for the classic design's intervals a match, a message and a checkpoint take no time. So it tells what
a design can give. The real roles, which are slower, run in `pool.testing.flock`.
"""

from __future__ import annotations

import gzip
import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

#: The central manager's negotiation interval, and the W-startd's, in the thesis' Condor, seconds (EV 5, 3.5).
CLASSIC_INTERVAL = 300.0
#: Less than this many seconds is nothing.
TRIFLE = 1e-6
_END, _SUBMIT, _CYCLE, DUE, _OWN_DUE = range(5)


class FlockDesign(StrEnum):
    """The way in which pools share machines."""

    NONE = "none"
    """Each pool by itself, matched at once."""
    CLASSIC = "classic"
    """The World Machine as it was built (EV 5): every interval a pool's world shows one machine of one other pool to
    its own central manager. A job that gets it is requested there, and given a machine in that pool's next cycle, or
    none. A guest stays until it ends."""
    IDEAL = "ideal"
    """EV 4.3 and 8: each negotiator sees all idle machines, takes its own first, and serves other pools' jobs last; a
    job of another pool leaves with a checkpoint when a job of the machine's pool needs the machine."""
    ONE_POOL = "one pool"
    """All machines in one pool; the least that can be had."""


@dataclass(frozen=True, slots=True)
class SiteJob:
    """A job of one machine. Times in seconds."""

    number: int
    site: int
    submitted: float
    runtime: float


@dataclass(frozen=True, slots=True)
class FlockFigures:
    """One run's figures, seconds.

    Attributes:
        idle_wait: the sum over time of min(jobs that wait, machines that are idle anywhere): EV chapter 1's measure.
        total_wait: of all jobs together. longest_wait: of one job.
        by_site: the total wait of each site's own jobs.
        away: jobs that began in another pool. evictions: guests that left for a job of the machine's pool.
    """

    idle_wait: float
    total_wait: float
    longest_wait: float
    by_site: Mapping[int, float]
    away: int
    evictions: int


def read_site_jobs(path: Path, most: int | None = None) -> list[SiteJob]:
    """The jobs of a trace in the Standard Workload Format that ran, with the partition (field 16) as the site.

    Args:
        path: `.gz` is unpacked.
        most: of the first so many jobs.
    """
    content = path.read_bytes()
    text = (gzip.decompress(content) if path.suffix == ".gz" else content).decode(errors="replace")
    found = []
    for line in text.splitlines():
        if line.startswith(";") or not line.strip():
            continue
        fields = line.split()
        if float(fields[3]) > 0:
            found.append((float(fields[1]), int(fields[15]), float(fields[3])))
        if most is not None and len(found) >= most:
            break
    found.sort()
    return [SiteJob(number, site, at, runtime) for number, (at, site, runtime) in enumerate(found)]


def machines_for(jobs: Sequence[SiteJob], load: float) -> dict[int, int]:
    """Machines for each site, so that its own jobs offer them this load until the last submission; one at least."""
    span = max(job.submitted for job in jobs)
    work: dict[int, float] = {}
    for job in jobs:
        work[job.site] = work.get(job.site, 0.0) + job.runtime
    return {site: max(1, math.ceil(seconds / (span * load))) for site, seconds in work.items()}


def starts_alone(jobs: Sequence[SiteJob], machines: Mapping[int, int]) -> dict[int, float]:
    """For each job when it would start if its site were by itself: first come, first served."""
    free = {site: [0.0] * count for site, count in machines.items()}
    found = {}
    for job in jobs:
        at = max(job.submitted, free[job.site][0])
        heapq.heapreplace(free[job.site], at + job.runtime)
        found[job.number] = at
    return found


def run_sites(
    jobs: Sequence[SiteJob], machines: Mapping[int, int], design: FlockDesign, *, guarded: bool = False
) -> FlockFigures:
    """Run all jobs by a design.

    Args:
        guarded: a job runs at its own site at the latest when it would without a flock (`Sites`).
    """
    if design is FlockDesign.ONE_POOL:
        home = {job.number: job.site for job in jobs}
        merged = [SiteJob(job.number, 0, job.submitted, job.runtime) for job in jobs]
        return Sites(merged, {0: sum(machines.values())}, FlockDesign.NONE, home).run()
    return Sites(jobs, machines, design, {job.number: job.site for job in jobs}, guarded=guarded).run()


@dataclass(slots=True)
class SiteRun:
    """A job that runs."""

    job: SiteJob
    place: int
    began: float
    turn: int


@dataclass(slots=True)
class _Pool:
    """One site.

    Attributes:
        waiting: its own jobs that wait, oldest first, as (submitted, number).
        guests: numbers of other pools' jobs that run here.
        shown: the pool whose machine the world shows until the next interval (classic).
        requests: other pools' jobs that wait for this pool's next cycle (classic).
    """

    idle: int
    waiting: list[tuple[float, int]] = field(default_factory=list)
    guests: dict[int, None] = field(default_factory=dict)
    shown: int | None = None
    requests: list[int] = field(default_factory=list)


class Sites:
    """One run; `pool.testing.flock_credit_trace` adds agreements with credit.

    With `guarded` no job ends later than it would if its site were by itself. A job that would have begun alone at S,
    and has run for E, is *due* at S + E: from then on it runs, on a machine of its own site. It takes an idle one, a
    guest's (also of one that was let in ahead of own jobs), or that of an own job which is not due yet. There is always
    one of these: jobs that are due and not done are jobs that would run alone, which are no more than the machines. A
    site knows in time what it needs: S follows from the ends of its earlier jobs alone, and each job has
    ended here when it would have ended there.
    """

    def __init__(
        self,
        jobs: Sequence[SiteJob],
        machines: Mapping[int, int],
        design: FlockDesign,
        home: Mapping[int, int],
        *,
        guarded: bool = False,
    ) -> None:
        self.alone = starts_alone(jobs, machines) if guarded else None
        self.at_home: dict[int, dict[int, None]] = {site: {} for site in machines}
        self.design, self.home = design, home
        self.jobs = {job.number: job for job in jobs}
        self.pools = {site: _Pool(count) for site, count in machines.items()}
        self.now = 0.0
        self.idle = sum(machines.values())
        self.waiting = 0
        self.left = {job.number: job.runtime for job in jobs}
        self.waits: dict[int, float] = {}
        self.runs: dict[int, SiteRun] = {}
        self.turn = 0
        self.idle_wait = 0.0
        self.away = self.evictions = self.done = 0
        self.since: dict[int, float] = {}
        self.events: list[tuple[float, int, int, int]] = [(job.submitted, _SUBMIT, job.number, 0) for job in jobs]
        if design is FlockDesign.CLASSIC:
            # The pools' cycles are not at one time.
            step = CLASSIC_INTERVAL / len(machines)
            self.events += [(place * step, _CYCLE, site, 0) for place, site in enumerate(sorted(machines))]
        heapq.heapify(self.events)

    def run(self) -> FlockFigures:
        while self.done < len(self.jobs):
            at, kind, number, turn = heapq.heappop(self.events)
            self.idle_wait += (at - self.now) * min(self.waiting, self.idle)
            self.now = at
            if kind == _SUBMIT:
                self._queue(number)
                if self.design is not FlockDesign.CLASSIC:
                    self._place_oldest(self.jobs[number].site)
            elif kind == _CYCLE:
                self._cycle(number)
                heapq.heappush(self.events, (at + CLASSIC_INTERVAL, _CYCLE, number, 0))
            elif kind == DUE:
                self._pay_due(number)
            elif kind == _OWN_DUE:
                self._own_due(number)
            elif (run := self.runs.get(number)) is not None and run.turn == turn:
                self._stop(run)
                self.done += 1
                if self.design is not FlockDesign.CLASSIC:
                    self._give_machine(run.place)
        by_site: dict[int, float] = {}
        for number, wait in self.waits.items():
            by_site[self.home[number]] = by_site.get(self.home[number], 0.0) + wait
        return FlockFigures(
            self.idle_wait,
            math.fsum(self.waits.values()),
            max(self.waits.values()),
            by_site,
            self.away,
            self.evictions,
        )

    def _queue(self, number: int) -> None:
        job = self.jobs[number]
        heapq.heappush(self.pools[job.site].waiting, (job.submitted, number))
        self.since[number] = self.now
        self.waiting += 1
        if self.alone is not None:
            heapq.heappush(self.events, (max(self.now, self._due(number)), _OWN_DUE, number, 0))

    def _due(self, number: int) -> float:
        """When a job would be as far as it is, without a flock."""
        run = self.runs.get(number)
        left = self.left[number] - (self.now - run.began if run is not None else 0.0)
        return (self.alone or {})[number] + self.jobs[number].runtime - left

    def _own_due(self, number: int) -> None:
        """A job would run by now without a flock: it runs at its own site."""
        site = self.jobs[number].site
        pool = self.pools[site]
        if number not in self.since or self._due(number) > self.now + TRIFLE:
            return
        victim: int | None = None
        if not pool.idle:
            victim = self._evictable(site)
            if victim is None:
                victim = next(reversed(pool.guests), None)
            if victim is None:
                victim = max(self.at_home[site], key=self._due)
                if self._due(victim) <= self.now + TRIFLE:
                    # By a rounding: the next machine of the site is free in this moment.
                    heapq.heappush(self.events, (self.now + TRIFLE, _OWN_DUE, number, 0))
                    return
        entry = (self.jobs[number].submitted, number)
        if pool.waiting[0] == entry:
            heapq.heappop(pool.waiting)
        else:
            pool.waiting.remove(entry)
            heapq.heapify(pool.waiting)
        if victim is not None:
            self._stop(self.runs[victim])
            self._queue(victim)
            self.evictions += 1
        self._start(number, site)
        if victim is not None and self.idle:
            self._place_oldest(self.jobs[victim].site)

    def _start(self, number: int, place: int) -> None:
        """A job that waits begins on an idle machine of a pool; it is out of its queue already."""
        job, pool = self.jobs[number], self.pools[place]
        self.waits[number] = self.waits.get(number, 0.0) + self.now - self.since.pop(number)
        self.waiting -= 1
        pool.idle -= 1
        self.idle -= 1
        self.turn += 1
        self.runs[number] = SiteRun(job, place, self.now, self.turn)
        if place != job.site:
            self.away += 1
            pool.guests[number] = None
        else:
            self.at_home[place][number] = None
        heapq.heappush(self.events, (self.now + self.left[number], _END, number, self.turn))

    def _stop(self, run: SiteRun) -> None:
        pool = self.pools[run.place]
        self.left[run.job.number] -= self.now - run.began
        del self.runs[run.job.number]
        pool.guests.pop(run.job.number, None)
        self.at_home[run.place].pop(run.job.number, None)
        pool.idle += 1
        self.idle += 1

    def _place_oldest(self, site: int) -> None:
        """The oldest job of a pool looks for a machine: an own one, an idle one elsewhere, a guest's (EV 8)."""
        pool = self.pools[site]
        if pool.idle:
            self._start(heapq.heappop(pool.waiting)[1], site)
        elif self.design is FlockDesign.IDEAL:
            if self.idle:
                place = max(self.pools, key=lambda other: self.pools[other].idle)
                self._start(heapq.heappop(pool.waiting)[1], place)
            elif (guest := self._evictable(site)) is not None:
                self._stop(self.runs[guest])
                self._queue(guest)
                self.evictions += 1
                self._start(heapq.heappop(pool.waiting)[1], site)

    def _evictable(self, place: int) -> int | None:
        """The guest that leaves for a job of the machine's pool: the one that came last."""
        return next(reversed(self.pools[place].guests), None)

    def _pay_due(self, number: int) -> None:
        """With credit: a debt may be paid back by now."""

    def _give_machine(self, place: int) -> None:
        """A machine is free: it goes to a job of its own pool, or to the oldest job of another."""
        pool = self.pools[place]
        if pool.waiting:
            self._start(heapq.heappop(pool.waiting)[1], place)
        elif self.design is FlockDesign.IDEAL and self.waiting:
            oldest = min((one for one in self.pools.values() if one.waiting), key=lambda one: one.waiting[0])
            self._start(heapq.heappop(oldest.waiting)[1], place)

    def _cycle(self, site: int) -> None:
        """A cycle of the classic design: the world counts as a machine like others, so it may be given out first."""
        pool = self.pools[site]
        for _ in range(len(pool.requests)):
            number = pool.requests.pop(0)
            if pool.idle > len(pool.waiting):
                self._start(number, site)
            else:  # NOT_FOUND: idle again in its own pool
                heapq.heappush(self.pools[self.jobs[number].site].waiting, (self.jobs[number].submitted, number))
        if pool.waiting and pool.shown is not None:
            self.pools[pool.shown].requests.append(heapq.heappop(pool.waiting)[1])
        while pool.idle and pool.waiting:
            self._start(heapq.heappop(pool.waiting)[1], site)
        # The W-startd's interval: it shows the first pool in its list that has an idle machine.
        pool.shown = next((other for other, one in self.pools.items() if other != site and one.idle), None)
