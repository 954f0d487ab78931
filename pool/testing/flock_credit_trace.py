"""A trace of many sites under agreements with credit between all of them (EV 4.2), by the rules alone.

As `FlockDesign.IDEAL`, and besides: the machine time that one site's machines served another is owed, up to a bound.
When a machine of the debtor is free, waiting jobs of its creditors come ahead of its own, as many as `slots_ahead`
says; they leave when nothing is owed any more and own jobs wait.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pool.policy.flock.payback import lasts, slots_ahead
from pool.testing.flock_trace import DUE, TRIFLE, FlockDesign, FlockFigures, SiteJob, SiteRun, Sites


@dataclass(frozen=True, slots=True)
class CreditFigures:
    """One run's figures, seconds.

    Attributes:
        waits: as of any design.
        largest: the largest balance of two sites at the end, and at any time.
        lent: machine time that sites served others. paid_back: of that, what paid a debt back.
        beyond: of that, what was lent while the debt was at its bound, and was not counted.
        ahead: jobs that began ahead of a debtor's own.
    """

    waits: FlockFigures
    largest_end: float
    largest: float
    lent: float
    paid_back: float
    beyond: float
    ahead: int


def run_with_credit(
    jobs: Sequence[SiteJob], machines: Mapping[int, int], bound: float, *, guarded: bool = False
) -> CreditFigures:
    """Run all jobs with credit between all sites, each of which may owe each other so many machine-seconds.

    Args:
        guarded: a creditor's jobs come ahead of those own jobs only that would wait without a flock, too.
    """
    sites = _CreditSites(jobs, machines, bound, guarded)
    waits = sites.run()
    return CreditFigures(
        waits, max(sites.owed.values(), default=0.0), sites.largest, sites.lent, sites.paid, sites.beyond, sites.firsts
    )


class _CreditSites(Sites):
    def __init__(self, jobs: Sequence[SiteJob], machines: Mapping[int, int], bound: float, guarded: bool) -> None:
        super().__init__(jobs, machines, FlockDesign.IDEAL, {job.number: job.site for job in jobs}, guarded=guarded)
        self.bound = bound
        self.owed: dict[tuple[int, int], float] = {}  # (debtor, creditor)
        self.creditors: dict[int, set[int]] = {}
        self.served: dict[tuple[int, int], dict[int, float]] = {}  # (place, home): jobs, each counted until when
        self.ahead: set[int] = set()
        self.largest = self.lent = self.paid = self.beyond = 0.0
        self.firsts = 0

    def _count(self, place: int, home: int) -> float:
        """Put all use until now into the ledger; seconds that the place owes the home."""
        runs = self.served.get((place, home), {})
        time = sum(self.now - since for since in runs.values())
        for number in runs:
            runs[number] = self.now
        owed = self.owed.get((place, home), 0.0)
        paid = min(time, owed)
        self.owed[place, home] = owed - paid
        if time > paid:
            before = self.owed.get((home, place), 0.0)
            after = min(self.bound, before + time - paid)
            self.owed[home, place] = after
            self.creditors.setdefault(home, set()).add(place)
            self.beyond += before + time - paid - after
            self.largest = max(self.largest, after)
        self.lent += time
        self.paid += paid
        return owed - paid

    def _start(self, number: int, place: int) -> None:
        super()._start(number, place)
        home = self.jobs[number].site
        if home != place:
            self.served.setdefault((place, home), {})[number] = self.now

    def _stop(self, run: SiteRun) -> None:
        place, number, home = run.place, run.job.number, run.job.site
        if home != place:
            self._count(place, home)
            del self.served[place, home][number]
            self.ahead.discard(number)
        super()._stop(run)

    def _evictable(self, place: int) -> int | None:
        return next((guest for guest in reversed(self.pools[place].guests) if guest not in self.ahead), None)

    def _give_machine(self, place: int) -> None:
        if self.pools[place].waiting:
            waiting = [home for home in self.creditors.get(place, ()) if self.pools[home].waiting]
            for home in sorted(waiting, key=lambda one: self.pools[one].waiting[0]):
                rate = float(len(self.served.get((place, home), ())))
                if slots_ahead(self._count(place, home), rate):
                    number = heapq.heappop(self.pools[home].waiting)[1]
                    self._start(number, place)
                    self.ahead.add(number)
                    self.firsts += 1
                    self._pay_due(number)
                    return
        super()._give_machine(place)

    def _pay_due(self, number: int) -> None:
        """Take a machine back that was given ahead, if nothing is owed any more; else look again when that may be."""
        if number not in self.ahead:
            return
        run = self.runs[number]
        place, home = run.place, run.job.site
        left = lasts(self._count(place, home), float(len(self.served[place, home])))
        if left > TRIFLE:
            heapq.heappush(self.events, (self.now + left, DUE, number, 0))
            return
        self.ahead.discard(number)
        if self.pools[place].waiting:
            self._stop(run)
            self._queue(number)
            self.evictions += 1
            self._start(heapq.heappop(self.pools[place].waiting)[1], place)
            if self.idle:
                self._place_oldest(home)
