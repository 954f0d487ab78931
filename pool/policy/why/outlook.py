"""Roughly how long a job will wait, said honestly: "about", with what that rests on, or "cannot tell".

Nobody says how long jobs take (WR 4.2 has why). A job that runs is expected to last as long as the jobs of its cluster
that ended lately and ran at least as long as it has by now; jobs of other clusters say nothing about it. Machines come
free when such jobs end. A job is served when as many machines have come free as jobs stand before it: every user who
waits is served in turn.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from pool.classad import ClassAd
from pool.policy.why import crowd
from pool.policy.why.findings import (
    Busy,
    Finding,
    Free,
    Limit,
    Machines,
    Outlook,
    QuotaFinding,
    RefusedFinding,
    Unmet,
    Unusable,
)
from pool.policy.why.words import ago, plural

#: Lengths of jobs that are remembered.
KEPT = 500
#: Turns that are gone through one by one; what comes after them is reckoned.
TURNS = 1000

#: The user and the cluster of a job: jobs with equal ones are expected to last alike.
Kind = tuple[str, str]


class JobDurations:
    """How long the jobs lasted whose ends were seen lately, as the slots' ads tell it, in seconds.

    A job is missed that came and went between two ads of its slot; what is seen leans towards longer ones.
    """

    def __init__(self) -> None:
        self._lengths: deque[tuple[Kind, float]] = deque(maxlen=KEPT)

    def record_change(self, before: ClassAd | None, after: ClassAd | None, now: float) -> None:
        """A slot's ad was another before; None where there was or is none."""
        began = crowd.number(before, "JobStart") if before is not None else None
        if before is None or began is None or (after is not None and crowd.number(after, "JobStart") == began):
            return
        stood = crowd.number(before, "TotalJobSuspendTime") or 0
        self._lengths.append((kind_of(before), max(0.0, now - began - stood)))

    def by_kind(self) -> dict[Kind, list[float]]:
        """Lengths of jobs of each kind."""
        found: dict[Kind, list[float]] = defaultdict(list)
        for kind, length in self._lengths:
            found[kind].append(length)
        return dict(found)


def kind_of(ad: ClassAd) -> Kind:
    """The kind of the job on a slot, from the slot's ad."""
    owner = crowd.text(ad, "RemoteOwner") or crowd.text(ad, "RemoteUser")
    return owner, crowd.text(ad, "JobId").partition(".")[0]


def ages(places: Sequence[crowd.MatchableSlot], now: float) -> list[tuple[Kind, float]]:
    """The kinds of the jobs on these machines, and for how long each has run already, seconds."""
    found = []
    for place in places:
        for ad in place.serves():
            began = crowd.number(ad, "JobStart") or crowd.number(ad, "EnteredCurrentActivity")
            if began is not None:
                found.append((kind_of(ad), max(0.0, now - began)))
    return found


def outlook(
    findings: Sequence[Finding],
    running: Sequence[tuple[Kind, float]],
    lengths: Mapping[Kind, Sequence[float]],
    ahead: int,
    users: int,
    interval: float,
) -> Outlook:
    """How long it may take.

    Args:
        findings: the census.
        running: kinds and ages of the jobs on the machines that match.
        lengths: of jobs that ended, by kind.
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
    quota = next((one for one in findings if isinstance(one, QuotaFinding) and one.binds), None)
    if quota is not None:
        return Outlook(None, f"it takes the end of a job of group {quota.group}")
    if Free in kinds:
        return Outlook(interval, "the next negotiation, which is sooner if anything changes", True)
    expected = [found for kind, age in running if (found := _expected(age, lengths.get(kind, ()))) is not None]
    if not expected:
        return _by_age([age for _, age in running])
    turns = (ahead + 1) * max(1, users)
    typical = _median([whole for _, whole in expected])
    basis = f"jobs like those there mostly take {ago(typical)}, on {plural(len(expected), 'machine')}"
    if turns > 1:
        basis += f", and {turns - 1:,} may come first"
    return Outlook(max(1.0, _nth_end(expected, turns)), basis)


def _expected(age: float, lengths: Sequence[float]) -> tuple[float, float] | None:
    """(seconds left, whole length) of a job of this age; None where none of its kind lasted longer."""
    longer = [length for length in lengths if length > age]
    if not longer:
        return None
    whole = _median(longer)
    return whole - age, whole


def _median(lengths: Sequence[float]) -> float:
    from statistics import median  # with the modules that it imports, 0.4 MB of a node that nobody asks

    return median(lengths)


def _nth_end(expected: Sequence[tuple[float, float]], turns: int) -> float:
    """When the nth machine comes free, where each is given another job as long as the one before."""
    ends = list(expected)
    heapq.heapify(ends)
    for _ in range(min(turns, TURNS) - 1):
        end, length = ends[0]
        heapq.heapreplace(ends, (end + max(length, 1.0), length))
    rate = sum(1.0 / max(length, 1.0) for _, length in expected)
    return ends[0][0] + max(0, turns - TURNS) / rate


def _by_age(running: Sequence[float]) -> Outlook:
    if not running:
        return Outlook(None, "it takes the end of somebody's job")
    shortest, longest = ago(min(running)), ago(max(running))
    run = shortest if shortest == longest else f"{shortest} to {longest}"
    return Outlook(None, f"it takes the end of a job; those there have run for {run}, and none like them has ended yet")


def _without_machines(kinds: dict[type[Finding], Finding]) -> Outlook:
    if Unusable in kinds:
        return Outlook(None, "it takes a machine that can be had again")
    if RefusedFinding in kinds:
        return Outlook(None, "it takes a machine that accepts it: an owner who leaves, or another START")
    if Unmet in kinds:
        return Outlook(None, "no machine of the pool would do; change the job, or add a machine", never=True)
    return Outlook(None, "nothing is known")
