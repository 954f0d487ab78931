"""The input and the output of a negotiation cycle, as plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from pool.classad import ClassAd

Preempts = Literal["guest", "urgent", "rank", "priority"]


@dataclass(frozen=True, slots=True)
class ResourceRequest:
    """An autocluster that wants to run: its representative ad, and how many jobs stand behind it.

    Attributes:
        number: names it among its submitter's requests.
        oldest: wall time at which the first of its jobs was submitted.
        moving: the jobs run already and look for a better machine (RL 4.1). Only slots without a claim are considered,
            and only where the job's Rank exceeds the ad's CurrentRank by the gain in the terms.
        runs: the jobs' own priorities, as (priority, how many), the highest first; what they do not cover has the last
            one's, or 0.
    """

    number: int
    ad: ClassAd
    count: int
    oldest: float
    moving: bool = False
    runs: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Match:
    """`count` jobs of a submitter's request may claim the slot.

    Attributes:
        preempts: on what ground the slot's present claim gives way; None when it has none.
        leaving: the parts of a partitionable slot whose claims give way, by name.
    """

    submitter: str
    request: int
    slot: str
    count: int
    preempts: Preempts | None = None
    leaving: tuple[str, ...] = ()


class UnmatchedReason(StrEnum):
    """The reason why jobs were not matched in a cycle; the first of these that applies."""

    MALFORMED = "the request cannot be read"
    LIMIT = "a concurrency limit is used up"
    SHARE = "the submitter has its share"
    NO_MACHINE = "no machine matches"
    TAKEN = "every machine that matches was given to somebody in this cycle"
    CLAIMED = "every machine that matches has another job, which may not be preempted"
    NO_GAIN = "no machine that is free is better than the present one"


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why jobs of a request are left over.

    Attributes:
        left: how many jobs.
        matching: slots that match, whoever has them; None when it was not looked at, because the submitter had its
            share or a limit bound before.
        free: those of them that had no claim when the cycle began.
        claimed: those of them that had one.
        limit: the name of the concurrency limit that binds.
    """

    why: UnmatchedReason
    left: int
    matching: int | None = None
    free: int = 0
    claimed: int = 0
    limit: str = ""


@dataclass(slots=True)
class Outcome:
    """The outcome of a cycle.

    Attributes:
        matches: in the order they were made.
        unmatched: for each submitter the jobs left over, by request number.
        rejections: for the same requests why.
        machines: how many slots were known.
        guests_leave_at: wall time at which a machine may be had for jobs left over, once a job of another pool has had
            its minimum time; None where there is none.
    """

    matches: list[Match] = field(default_factory=list)
    unmatched: dict[str, dict[int, int]] = field(default_factory=dict)
    rejections: dict[str, dict[int, Rejection]] = field(default_factory=dict)
    machines: int = 0
    guests_leave_at: float | None = None
