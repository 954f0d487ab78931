"""The data that the dedicated scheduler decides about: gangs, machines, reservations. Plain frozen data.

Alike things are one record with a count. Machines that every waiting job sees in the same way are of one *kind*; a
gang's parts that ask for the same are one `PartClass`. One machine here is one slot that holds one part: a role
that carves partitionable slots gives each slot that it is ready to carve a name of its own. All times are seconds of
one clock (wall time); all durations are seconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

#: A kind of machine: any text; equal for machines that match the same requests.
Kind = str


class MachineState(StrEnum):
    """Where a machine stands for this dedicated scheduler. Machines of its running gangs are in `DedicatedRun` only."""

    CLAIMED_IDLE = "claimed idle"
    """The scheduler holds the claim and nothing runs: a gang can start there now."""
    UNCLAIMED = "unclaimed"
    """Nobody's: a request claims it within one negotiation. Also a machine whose opportunistic job already leaves."""
    OCCUPIED = "occupied"
    """An opportunistic job, or the gang of a lower scheduler, runs there. It is saved and leaves when asked."""
    AWAY = "away"
    """Configured for this scheduler, but not usable: drained, or not heard of, or an upper scheduler uses it."""


@dataclass(frozen=True, slots=True)
class PartClass:
    """Parts of a gang that are alike.

    Attributes:
        count: how many; at least 1.
        fits: the kinds of machines that can hold such a part, the preferred kinds first.
        name: for messages: "master", "worker".
    """

    count: int
    fits: tuple[Kind, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class DedicatedJob:
    """One job of the dedicated scheduler: a gang, or a serial job with one part.

    Attributes:
        id: "12.0".
        user: the user's name in the pool: usage is charged to this user.
        parts: its parts by class.
        submitted: when it came into the queue. It orders the queue, and ages.
        priority: the user's own order of jobs (JobPrio); higher first.
        duration: how long it will run, as its user said (`expected_duration`), and no longer than it may run
            (`allowed_job_duration`). It only plans: no job is ended for it here. It is the whole duration, work of
            earlier runs included.
        predicted: how long it will probably run, from the user's earlier jobs (`predictions.Predictor`).
        saveable: the whole gang can be saved and restored, so that it can leave its machines and lose nothing.
        attained: wall seconds of work that are saved from earlier runs.
        save_seconds, restore_seconds: the measured cost of saving it and of restoring it.
        reservation: the reservation in whose machines it wants to run; "" for none.
        group: the accounting group; reservations may be for a group.
        last_ran: when it last left its machines by being saved; None if it has not run.
    """

    id: str
    user: str
    parts: tuple[PartClass, ...]
    submitted: float
    priority: int = 0
    duration: float | None = None
    predicted: float | None = None
    saveable: bool = False
    attained: float = 0.0
    save_seconds: float = 0.0
    restore_seconds: float = 0.0
    reservation: str = ""
    group: str = ""
    last_ran: float | None = None

    @property
    def size(self) -> int:
        """How many machines it needs."""
        return self.parts[0].count if len(self.parts) == 1 else sum(part.count for part in self.parts)

    @property
    def whole(self) -> float | None:
        """The expected duration of the whole job, said or else predicted; None when nothing is known."""
        return self.duration if self.duration is not None else self.predicted

    @property
    def remaining(self) -> float | None:
        """The time that it will probably need, while it is idle; None when nothing is known."""
        whole = self.whole
        if whole is None:
            return None
        return max(1.0, whole - self.attained) + (self.restore_seconds if self.attained else 0.0)


@dataclass(frozen=True, slots=True)
class Share:
    """Machines of one kind that one class of a job's parts gets.

    Attributes:
        part: index into `DedicatedJob.parts`.
        kind: their kind.
        machines: their names.
    """

    part: int
    kind: Kind
    machines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DedicatedRun:
    """A dedicated job that runs, or is about to leave.

    Attributes:
        job: the job; `attained` is without the present run.
        started: when the present run began.
        shares: its machines.
        backfilled: it was started behind a waiting head (`StartGang.backfilled`). If it can be saved, it leaves when
            the head can start.
        leaving: it is being saved already: its machines come free without a further decision.
        until: as of `DedicatedMachine`, the first of its machines'.
        lent: it is no job of this scheduler's: its machines are lent to another, and cannot be called back.
    """

    job: DedicatedJob
    started: float
    shares: tuple[Share, ...]
    backfilled: bool = False
    leaving: bool = False
    until: float = math.inf
    lent: bool = False

    def attained(self, now: float) -> float:
        """Wall seconds of work, the present run included."""
        return self.job.attained + max(0.0, now - self.started)


@dataclass(frozen=True, slots=True)
class DedicatedMachine:
    """One machine (slot), as the role knows it.

    Attributes:
        name: "slot1@donder".
        kind: see the module.
        state: where it stands.
        idle_since: since when the claim has been idle; only for CLAIMED_IDLE.
        until: when it is no longer this scheduler's: an upper scheduler lends it until then, or its owner drains it;
            now or earlier where an upper scheduler may call it back at any time. A job starts there only if it can be
            saved or is expected to end by then.
    """

    name: str
    kind: Kind
    state: MachineState
    idle_since: float = 0.0
    until: float = math.inf


@dataclass(frozen=True, slots=True)
class MachineClass:
    """Machines that are alike: of one kind, in one state.

    Attributes:
        kind, state, until: as in `DedicatedMachine`.
        names: the machines. The order is kept: equal input gives equal decisions.
        unused: their claims have been idle for longer than `unused_claim_timeout`.
    """

    kind: Kind
    state: MachineState
    names: tuple[str, ...]
    until: float = math.inf
    unused: bool = False

    @property
    def count(self) -> int:
        """How many."""
        return len(self.names)


@dataclass(frozen=True, slots=True)
class UserQueue:
    """One user's logical queue (WR 6.1).

    Attributes:
        user: whose.
        jobs: idle jobs, by submission (the order of the queue's file). Their `priority` is looked at here.
        used: what the pool's accounts charge the user with now: machine-seconds, decayed and weighted as the pool's
            priorities are; lower comes first. Only differences and ratios matter.
        last_start: when a gang of this user was last started; -inf if none was.
    """

    user: str
    jobs: tuple[DedicatedJob, ...]
    used: float = 0.0
    last_start: float = -math.inf


@dataclass(frozen=True, slots=True)
class Reservation:
    """N machines for a user or a group at a time (WR 6.9).

    Attributes:
        id: "r7".
        user: for whom; or group: for whose members. One of the two is "".
        parts: how many machines of which kinds.
        start, duration: from when, for how long.
        machines: the machines' names, since the reservation began (`Decisions.reserved`); empty before.
        asked_by: the user who made it and whose quota it uses; "" for an administrator's.
    """

    id: str
    user: str
    parts: tuple[PartClass, ...]
    start: float
    duration: float
    machines: tuple[str, ...] = ()
    group: str = ""
    asked_by: str = ""

    @property
    def end(self) -> float:
        """When it is over."""
        return self.start + self.duration

    @property
    def size(self) -> int:
        """How many machines."""
        return sum(part.count for part in self.parts)

    def serves(self, job: DedicatedJob) -> bool:
        """Whether this job may run in it."""
        if job.reservation != self.id:
            return False
        return job.user == self.user if self.user else bool(self.group) and job.group == self.group


class Backfill(StrEnum):
    """The jobs that may start behind a head that waits."""

    NONE = "none"
    """Nothing by dedicated means: WR 3.3 to the letter. Holes are lent to opportunistic jobs."""
    EASY = "easy"
    """A job that does not delay the planned start of the head."""
    CONSERVATIVE = "conservative"
    """A job that does not delay the planned start of any job before it."""


class QueueOrder(StrEnum):
    """In which order jobs are considered."""

    FIFO = "fifo"
    """By submission, one queue for all users (WR 3.3)."""
    USERS = "users"
    """A logical queue for each user, by what each has used (WR 6.1)."""


@dataclass(frozen=True, slots=True)
class DedicatedSettings:
    """How the dedicated scheduler is configured. The defaults are the shipped ones; `WRIGHT` is section 3.3 alone.

    Attributes:
        order: of the queue.
        patience: a user's first job that has waited for so long since the user's last start goes before users with
            less usage. It keeps every head from starvation.
        strict: false considers, behind a head that does not fit, every later job that does (best fit, HTCondor's
            DEDICATED_SCHEDULER_USE_FIFO = false). It starves large gangs.
        backfill: behind a waiting head.
        depth: how many waiting jobs a schedule into the future is made for.
        lend: holes are lent to opportunistic jobs.
        reclaim_seconds: the measured time to get an opportunistic job off a machine, saved (a high percentile).
        negotiation_seconds: the measured time from a request for an unclaimed machine to its claim.
        unused_claim_timeout: a claim that no idle job can use is released after so many idle seconds.
        time_sharing: running gangs that can be saved give way to gangs that have had less time (`time_sharing`).
        first_quantum: the time that a gang runs before it is compared with others; each further level is
            `level_factor` times longer.
        least_gain: a running gang is saved for another only after it has run for this many times the cost of its own
            save and restore.
        reservation_lead: machines of a reservation are cleared so many seconds before it begins, beside the time
            that saving takes.
    """

    order: QueueOrder = QueueOrder.USERS
    patience: float = 86400.0
    strict: bool = True
    backfill: Backfill = Backfill.EASY
    depth: int = 300
    lend: bool = True
    reclaim_seconds: float = 5.0
    negotiation_seconds: float = 1.0
    unused_claim_timeout: float = 300.0
    time_sharing: bool = False
    first_quantum: float = 60.0
    level_factor: float = 4.0
    least_gain: float = 5.0
    reservation_lead: float = 5.0


#: Section 3.3 to the letter: one queue, no backfill, unused claims released at once.
WRIGHT = DedicatedSettings(
    order=QueueOrder.FIFO, backfill=Backfill.NONE, lend=False, unused_claim_timeout=0.0, time_sharing=False
)


def group_machines(
    machines: Iterable[DedicatedMachine], now: float, unused_claim_timeout: float
) -> tuple[MachineClass, ...]:
    """Alike machines as one record each, in the order in which the first of each class comes."""
    classes: dict[tuple[Kind, MachineState, float, bool], list[str]] = {}
    for machine in machines:
        idle = machine.state is MachineState.CLAIMED_IDLE
        unused = idle and now - machine.idle_since >= unused_claim_timeout
        classes.setdefault((machine.kind, machine.state, machine.until, unused), []).append(machine.name)
    return tuple(
        MachineClass(kind, state, tuple(names), until, unused)
        for (kind, state, until, unused), names in classes.items()
    )
