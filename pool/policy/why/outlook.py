"""Roughly how long a job will wait, said honestly: "about", with what that rests on, or "cannot tell".

Nobody says how long jobs take (WR 4.2 has why), so that all there is to go by is how long those lasted that ended here
lately. While `busy` machines run jobs that mostly take T, one of them comes free every T / busy; a job is served when
so many have come free as stand before it, and every user who waits is served in turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

from pool.classad import ClassAd
from pool.policy.why import crowd
from pool.policy.why.findings import Busy, Finding, Free, Limit, Machines, Outlook, Quota, Refused, Unmet, Unusable
from pool.policy.why.words import ago, plural

#: Lengths of jobs that are remembered, and fewer than which nothing is said.
KEPT, FEWEST = 500, 3


class Lengths:
    """How long the jobs lasted whose ends were seen lately, as the slots' ads tell it, in seconds.

    A job is missed that came and went between two ads of its slot; what is seen leans towards longer ones.
    """

    def __init__(self) -> None:
        self._lengths: deque[float] = deque(maxlen=KEPT)

    def saw(self, before: ClassAd | None, after: ClassAd | None, now: float) -> None:
        """A slot's ad was another before; None where there was or is none."""
        began = crowd.number(before, "JobStart") if before is not None else None
        if began is None or (after is not None and crowd.number(after, "JobStart") == began):
            return
        stood = crowd.number(before, "TotalJobSuspendTime") if before is not None else 0
        self._lengths.append(max(0.0, now - began - (stood or 0)))

    def typical(self) -> tuple[float, int] | None:
        """The median and how many it is of; None while too few are known."""
        if len(self._lengths) < FEWEST:
            return None
        return median(self._lengths), len(self._lengths)


def ages(places: Sequence[crowd.Place], now: float) -> list[float]:
    """For how long the jobs on these machines have run already, seconds."""
    found = []
    for place in places:
        for ad in place.serves():
            began = crowd.number(ad, "JobStart") or crowd.number(ad, "EnteredCurrentActivity")
            if began is not None:
                found.append(max(0.0, now - began))
    return found


def outlook(
    findings: Sequence[Finding],
    running: Sequence[float],
    typical: tuple[float, int] | None,
    ahead: int,
    users: int,
    interval: float,
) -> Outlook:
    """How long it may take.

    Args:
        findings: the census.
        running: ages of the jobs on the machines that match.
        typical: of `Lengths`.
        ahead: jobs of the same user that come first.
        users: users who wait for machines, this one included.
        interval: seconds between two negotiations at most.
    """
    kinds = {type(finding): finding for finding in findings}
    machines = kinds.get(Machines)
    if isinstance(machines, Machines) and not machines.slots:
        return Outlook(None, "there is no machine")
    if not kinds.keys() & {Free, Busy}:
        return _without_machines(kinds)
    limit = next((one for one in findings if isinstance(one, Limit) and one.binds), None)
    if limit is not None and limit.wants > limit.most:
        there = f"there are {limit.most:g} of {limit.name}, and it takes {limit.wants:g}"
        return Outlook(None, there, never=True)
    if limit is not None:
        return Outlook(None, f"it takes the end of a job that counts against {limit.name}")
    quota = next((one for one in findings if isinstance(one, Quota) and one.binds), None)
    if quota is not None:
        return Outlook(None, f"it takes the end of a job of group {quota.group}")
    if Free in kinds:
        return Outlook(interval, "the next negotiation, which is sooner if anything changes", True)
    if typical is None:
        return _by_age(running)
    long, seen = typical
    turns = (ahead + 1) * max(1, users)
    basis = f"jobs here mostly take {ago(long)} (the last {seen:,}), on {plural(max(1, len(running)), 'machine')}"
    if turns > 1:
        basis += f", and {turns - 1:,} may come first"
    return Outlook(max(1.0, long * turns / max(1, len(running))), basis)


def _by_age(running: Sequence[float]) -> Outlook:
    if not running:
        return Outlook(None, "it takes the end of somebody's job")
    shortest, longest = ago(min(running)), ago(max(running))
    run = shortest if shortest == longest else f"{shortest} to {longest}"
    return Outlook(
        None, f"it takes the end of a job; those there have run for {run}, and too few have ended lately to go by"
    )


def _without_machines(kinds: dict[type[Finding], Finding]) -> Outlook:
    if Unusable in kinds:
        return Outlook(None, "it takes a machine that can be had again")
    if Refused in kinds:
        return Outlook(None, "it takes a machine that accepts it: an owner who leaves, or another START")
    if Unmet in kinds:
        return Outlook(None, "no machine of the pool would do; change the job, or add a machine", never=True)
    return Outlook(None, "nothing is known")
