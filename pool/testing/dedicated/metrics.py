"""The metrics of job scheduling, and those of holes and of saving."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

#: A job shorter than this counts as so long in the bounded slowdown (Feitelson et al. 1997), seconds.
BOUND = 10.0


@dataclass(frozen=True, slots=True)
class FinishedJob:
    """A job that has ended; times in seconds.

    Attributes:
        submitted, started, ended: when; `started` for the first time.
        runtime: its own computing time. size: its machines.
        saves: how often it was saved.
        reclaimed: how long it waited at its start only because machines had to be claimed or reclaimed.
        overtaken: it was delayed by a job that came later: it did not start though it would have fit without those.
    """

    number: int
    user: str
    submitted: float
    started: float
    ended: float
    runtime: float
    size: int
    saves: int
    reclaimed: float

    @property
    def wait(self) -> float:
        """All the time in which it did not compute, saves and restores included."""
        return self.ended - self.submitted - self.runtime

    @property
    def slowdown(self) -> float:
        """Bounded slowdown."""
        return max(1.0, (self.ended - self.submitted) / max(self.runtime, BOUND))


@dataclass(frozen=True, slots=True)
class Metrics:
    """One simulation's figures.

    Attributes:
        wait: mean seconds in which a job did not compute. median_wait: the middle.
        slowdown: mean bounded slowdown.
        utilisation: gangs' computing time times machines, over machines times span.
        loss: loss of capacity: what was free while as much was asked for, over machines times span.
        busy: machines that ran anything, gangs or opportunistic jobs, over machines times span.
        goodput: the opportunistic jobs' own computing time, over machines times span.
        overhead: machine time for gangs' saves and restores, over machines times span.
        lost: computing time that was done and lost, machine-seconds.
        saves: of gangs. reclaims: of machines from opportunistic jobs. hours: the span.
        head_delay: the longest time that a job waited only for machines to be claimed or reclaimed.
        fairness: Jain's index of the users' mean bounded slowdowns.
    """

    jobs: int
    wait: float
    median_wait: float
    slowdown: float
    utilisation: float
    loss: float
    busy: float
    goodput: float
    overhead: float
    lost: float
    saves: int
    reclaims: int
    hours: float
    head_delay: float
    fairness: float

    def words(self) -> str:
        """One line for people."""
        return (
            f"wait {self.wait:,.0f} s, bounded slowdown {self.slowdown:.1f}, utilisation {self.utilisation:.3f}, "
            f"loss of capacity {self.loss:.3f}, busy {self.busy:.3f}, goodput {self.goodput:.3f}, "
            f"overhead {self.overhead:.4f}, lost {self.lost:.0f}, saves {self.saves}, reclaims {self.reclaims}, "
            f"head later by {self.head_delay:.0f} s, fairness {self.fairness:.2f}"
        )


def jain(values: Sequence[float]) -> float:
    """Jain's index of fairness: 1 where all are equal, 1/n where one has everything."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 1.0


def user_slowdowns(jobs: Sequence[FinishedJob]) -> dict[str, float]:
    """Each user's mean bounded slowdown."""
    by_user: dict[str, list[float]] = {}
    for job in jobs:
        by_user.setdefault(job.user, []).append(job.slowdown)
    return {user: statistics.fmean(values) for user, values in by_user.items()}
