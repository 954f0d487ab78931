"""The decisions of the dedicated scheduler in one cycle, and its plans. Plain frozen data.

A role acts on `Decisions` in the order of its fields and forgets it: the next cycle computes everything anew from the
state of then (W21). Only `DedicatedRun.backfilled`, `Reservation.machines` and `UserQueue.last_start` carry something
from one cycle to the next.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pool.policy.dedicated.model import Kind, Share


@dataclass(frozen=True, slots=True)
class SaveGang:
    """Save a running gang as a set, so that its machines come free; it goes back to the queue and goes on later.

    Attributes:
        job: its id.
        because: "job 14.0 has had less time", "reservation r7 begins at ...": a whole clause for the event log.
        beneficiary: the job or the reservation that it leaves for.
    """

    job: str
    because: str
    beneficiary: str


@dataclass(frozen=True, slots=True)
class StartGang:
    """Start a job on claims that are held and idle (3.3 a).

    Attributes:
        job: its id.
        shares: its machines, all CLAIMED_IDLE.
        backfilled: it starts before a head that waits: the role keeps this in `DedicatedRun.backfilled`.
    """

    job: str
    shares: tuple[Share, ...]
    backfilled: bool = False


@dataclass(frozen=True, slots=True)
class RequestMachines:
    """Ask for claims for a job (3.3 b). The job starts in a later cycle, when all are there.

    Attributes:
        job: its id.
        shares: the machines to claim. Those that it also needs and that are claimed already are in `KeepClaims`.
        reclaim: those of them where an opportunistic job, or a lower scheduler's gang, has to be saved and to leave.
    """

    job: str
    shares: tuple[Share, ...]
    reclaim: tuple[str, ...] = ()


class KeepReason(StrEnum):
    """Why an idle claim is kept."""

    REQUESTED = "the job's other machines are being claimed"
    SOON = "the head starts sooner than an opportunistic job would be gone again"
    HEAD = "the head of the queue needs it, and holes are not lent"
    RESERVED = "a reservation holds it"
    RECENT = "it was used a short time ago"


@dataclass(frozen=True, slots=True)
class KeepClaims:
    """Hold idle claims and start nothing there now.

    Attributes:
        machines: their names.
        job: for which job, or reservation; "" for none.
        reason: why.
    """

    machines: tuple[str, ...]
    job: str
    reason: KeepReason


@dataclass(frozen=True, slots=True)
class LendClaims:
    """Release idle claims to opportunistic jobs, and to lower schedulers, while a head waits (WR 4.1, W23).

    Attributes:
        machines: their names.
        job: the head that waits and will have them reclaimed; "" when a reservation will.
        until: when they are expected to be needed; inf when it is not known. A lower scheduler sees it (W55).
    """

    machines: tuple[str, ...]
    job: str
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class ReleaseClaims:
    """Give claims back that no idle job can use (W14).

    Attributes:
        machines: their names.
        until: when this scheduler is expected to need them again (a reservation); inf when that is not known.
    """

    machines: tuple[str, ...]
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class WaitForMachines:
    """A job that could run on what is configured, and cannot now (3.3 c).

    Attributes:
        job: its id.
        missing: how many more machines it needs now, and of which kinds any would do: `(count, kinds)` by part class.
        available: how many of the machines that fit it it could have now.
        configured: how many fit it in all.
        expected: when it can start, if the expected durations hold; None when that is not known.
        holders: the running jobs whose machines it waits for, the first to end first; at most ten.
        blocks: it is the head that later jobs wait behind.
    """

    job: str
    missing: tuple[tuple[int, tuple[Kind, ...]], ...]
    available: int
    configured: int
    expected: float | None = None
    holders: tuple[str, ...] = ()
    blocks: bool = True


class SkipReason(StrEnum):
    """Why a job is passed over."""

    TOO_BIG = "too big"
    """It needs more machines than are configured (3.3 d)."""
    AWAY = "machines are away"
    """It needs machines that are configured and not usable now, and nobody knows until when."""
    NO_KIND = "no machine fits"
    """No configured machine fits some of its parts."""
    LENT = "machines are lent"
    """Other schedulers lend some of the machines that it needs, for a shorter time or until they call them back, and
    it cannot be saved."""
    NO_RESERVATION = "its reservation"
    """Its reservation has not begun, is over, is another's, or is too small."""


@dataclass(frozen=True, slots=True)
class SkipGang:
    """A job that does not block others and does not run until something is configured (3.3 d).

    Attributes:
        job: its id.
        reason: which case.
        words: "too big: 12 machines fit it, it needs 16": a whole clause for `why`.
    """

    job: str
    reason: SkipReason
    words: str


@dataclass(frozen=True, slots=True)
class Decisions:
    """All decisions of one cycle; a role acts on them in this order.

    Attributes:
        saves: running gangs to save.
        starts: jobs to start now.
        requests: claims to ask for. Requests of the last cycle that are not among them are withdrawn (W20).
        keeps, lends, releases: idle claims. Each idle claim is in exactly one of these or in `starts`.
        waits: the head, and, with conservative backfill, the jobs behind it that have a planned start.
        skips: jobs that are passed over.
        reserved: the machines of reservations that begin in this cycle: `Reservation.machines` from now on.
        wake: when to decide again though nothing happened; None for no such time.
    """

    saves: tuple[SaveGang, ...] = ()
    starts: tuple[StartGang, ...] = ()
    requests: tuple[RequestMachines, ...] = ()
    keeps: tuple[KeepClaims, ...] = ()
    lends: tuple[LendClaims, ...] = ()
    releases: tuple[ReleaseClaims, ...] = ()
    waits: tuple[WaitForMachines, ...] = ()
    skips: tuple[SkipGang, ...] = ()
    reserved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    wake: float | None = None


class PlanBasis(StrEnum):
    """How sure an expected start is."""

    SAID = "the durations that users gave"
    PREDICTED = "the users' earlier jobs"
    GUESSED = "the mean of all jobs, since of some nothing is known"


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """When a waiting job is expected to start.

    Attributes:
        job, user, size: which, whose, how many machines.
        start, end: expected; `end` is None when its duration is not known. `start` is None beyond the plan's depth.
        earliest, latest: the start lies between them in 8 of 10 cases, by the errors of past predictions.
        waits_for: the jobs, or the reservation, whose end lets it start; the last one first; at most ten.
        behind: how many jobs are before it in the queue.
        basis: what the expectation rests on.
        words: a whole sentence for `why`.
    """

    job: str
    user: str
    size: int
    start: float | None
    end: float | None
    earliest: float | None
    latest: float | None
    waits_for: tuple[str, ...]
    behind: int
    basis: PlanBasis
    words: str


@dataclass(frozen=True, slots=True)
class PlanBar:
    """One bar of the chart of machines over time: so many machines for something, from a time to a time.

    Attributes:
        label: the job's or reservation's id.
        user: whose.
        what: "running", "planned", "reserved" or "lent" (to another scheduler).
        machines: how many of each kind.
        names: the machines, where they are known: those of running gangs and of reservations that have begun.
        start, end: inf where the end is not known.
    """

    label: str
    user: str
    what: str
    machines: Mapping[Kind, int]
    start: float
    end: float
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule into the future (W52): what is expected, if nothing else comes.

    Attributes:
        made: when.
        machines: how many machines of each kind are usable.
        bars: everything that runs, is reserved or is planned, by start.
        starts: of every waiting job, in the order of the queue.
    """

    made: float
    machines: Mapping[Kind, int]
    bars: tuple[PlanBar, ...]
    starts: tuple[PlannedStart, ...]
