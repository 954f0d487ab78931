"""A claim as the schedd keeps it, and the table of all claims.

The room `pool.roles.schedd.placement` acts on them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd
from pool.jobs.activation import Activation
from pool.jobs.gangs import wants_dedicated
from pool.jobs.network_use import PartsUse
from pool.policy.charges import Charge
from pool.policy.managed import ACCOUNT, LENT_FOR
from pool.policy.queue import QueuedJob
from pool.wire import Connection, ConnectionLost, DeadlineExceeded

if TYPE_CHECKING:
    from pool.roles.schedd.core.gang import RunningGang

#: The errors of a call to a machine that cannot be reached.
TROUBLE = (ConnectionLost, DeadlineExceeded, OSError, TimeoutError)
#: Added to our side of a lease, for clocks that do not tick alike: seconds, and a part of the lease.
MARGIN, DRIFT = 2.0, 0.01
#: JobLeaseDuration where a description does not say one, as in HTCondor; and the shortest that is taken. Seconds.
UNASKED, SHORTEST = 2400, 20.0


def patience(lease: float) -> float:
    """Seconds after our last answer when a startd's lease must have ended."""
    return lease * (1 + DRIFT) + MARGIN


def lease_for(asked: Any, usual: float, longest: float) -> float:
    """Seconds that a job's claim lives without being renewed.

    Args:
        asked: its JobLeaseDuration. Descriptions that say nothing of it give UNASKED, which asks for nothing.
        usual: CLAIM_LEASE.
        longest: CLAIM_LEASE_MAX: for as long a job may stay lost when its machine is.
    """
    if isinstance(asked, bool) or not isinstance(asked, (int, float)) or asked == UNASKED:
        return usual
    return min(max(float(asked), SHORTEST), longest)


@dataclass(slots=True, eq=False)
class HandedOn:
    """A job that a claim's startd has been given before the job that it follows has ended.

    Attributes:
        run, start: its start; the latter is not known of a job that an earlier run of this schedd handed on.
    """

    job: QueuedJob
    run: int
    start: Activation | None = None

    def is_run(self, job: tuple[int, int], run: int) -> bool:
        """Whether it is this run of this job."""
        return self.job.id == job and self.run == run


@dataclass(slots=True, eq=False)
class HeldClaim:
    """A slot that is ours for a while.

    Attributes:
        id: the secret that the startd made for this claim.
        until: monotonic time at which the startd's lease has ended for sure.
        charge: what it was granted for; it serves jobs of no other.
        fits: whether it may serve a group of jobs, by the group's number.
        job, run, start: the last start that was sent to it and has not ended.
        handed_on: the job that its startd begins as soon as that one has ended.
        took: seconds that the job before ran, where it ended by itself; inf else.
        turn: how many starts there were on it; the number of a job's is in the job's `_run`.
        template: the start of the last job, where others may start alike; template_key: what it goes by;
            template_of: the cluster of which all jobs start so that have nothing of their own.
        writing: its start is not durable yet; the task that writes it sends it, and no other.
        link: the connection whose end is watched for it.
        lost: its startd is being reached for; over: it has ended, and the schedd has it no more.
        watched: `lease_watch` looks at it when its time comes.
        left_by: the job that was made to leave it just now: another machine has it first.
        spent: no other job follows the present one.
        keep: seconds that its last job would have it kept for its owner's next (keep_claim_idle).
        idle_until: when it is given back, unless there is a job for it before that.
        gathers: the job for which it is held until there is one for each of its parts.
        gang, part: where it has a part of a job.
        lent_until: wall time at which an upper dedicated scheduler's loan of the slot is over; inf for no loan.
        network: what the own network of its job has carried in the present run, where the job has one slot.
        sent: the order before, which the startd has: the next one says only what is different.
    """

    id: str
    slot: str
    ad: ClassAd
    startd: str
    owner: str
    charge: Charge
    lease: float
    born: float
    until: float
    fits: dict[int, bool] = field(default_factory=dict)
    job: QueuedJob | None = None
    run: int = 0
    start: Activation | None = None
    handed_on: HandedOn | None = None
    took: float = math.inf
    turn: int = 0
    going: bool = False
    writing: bool = False
    idle_timer: asyncio.TimerHandle | None = None
    idle_until: float | None = None
    keep: float = 0.0
    lost: bool = False
    over: bool = False
    watched: bool = False
    spent: bool = False
    left_by: QueuedJob | None = None
    template: Activation | None = None
    template_key: bytes | None = None
    template_of: int | None = None
    gathers: QueuedJob | None = None
    gang: RunningGang | None = None
    part: int = 0
    lent_until: float = math.inf
    sent: Activation | None = None
    link: Connection | None = None
    network: PartsUse | None = None
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def dedicated(self) -> bool:
        """Whether it is the dedicated scheduler's own, and serves any user's job (WR 3.2)."""
        return self.owner == ACCOUNT

    def take_network(self, report: dict[str, Any]) -> PartsUse | None:
        """The counts of its job's own network, after a report about the job; they are taken out of it."""
        said = report.pop("network", None)
        use = self.gang.network if self.gang is not None else self.network
        if said is not None:
            if use is None:
                use = self.network = PartsUse()
            use.add_report(self.part, said)
        return use

    def promote(self) -> None:
        """The job before has ended: the one that was handed on is the claim's job."""
        handed, self.handed_on = self.handed_on, None
        assert handed is not None
        self.job, self.run, self.start, self.going = handed.job, handed.run, handed.start, True

    def learn_loan(self, now: float) -> None:
        """Take in from the slot's ad, which came just now, for how long it is lent.

        Args:
            now: wall time.
        """
        left = self.ad.value(LENT_FOR, None)
        known = isinstance(left, (int, float)) and not isinstance(left, bool) and math.isfinite(left)
        self.lent_until = now + max(0.0, float(left)) if known else math.inf

    def runs_own(self, job: QueuedJob) -> bool:
        """Whether a job on it is the dedicated scheduler's, not one that the machine is lent to."""
        return self.dedicated and (self.gang is not None or wants_dedicated(job.ad()))

    @property
    def node_outputs(self) -> dict[str, int] | None:
        """Of a parallel job: the places of its nodes' outputs that it does not name, and the node of each."""
        return self.gang.brought if self.gang is not None else None


class ClaimTable(dict[str, HeldClaim]):
    """All claims of one schedd, by their ids.

    The table decides nothing. Rooms above it register the work that a dropped or a lost claim gives them.
    """

    def __init__(self) -> None:
        super().__init__()
        self._dropped: list[Callable[[HeldClaim], None]] = []
        self._lost: list[Callable[[HeldClaim], None]] = []
        self._emptied: list[Callable[[HeldClaim], None]] = []

    def when_dropped(self, act: Callable[[HeldClaim], None]) -> None:
        """Call this with each claim that is dropped, at once."""
        self._dropped.append(act)

    def when_lost(self, act: Callable[[HeldClaim], None]) -> None:
        """Call this with each claim whose startd could not be reached, or does not know it."""
        self._lost.append(act)

    def when_emptied(self, act: Callable[[HeldClaim], None]) -> None:
        """Call this with each claim of the dedicated scheduler's that has no job any more."""
        self._emptied.append(act)

    def empty(self, claim: HeldClaim) -> None:
        """A claim of the dedicated scheduler's has no job any more, and is for its next one."""
        for act in self._emptied:
            act(claim)

    def add(self, claim: HeldClaim) -> None:
        """Enter a claim that the startd has granted."""
        self[claim.id] = claim

    def drop(self, claim: HeldClaim) -> None:
        """Forget a claim: it is over, or it is about to be given back."""
        self.pop(claim.id, None)
        for act in self._dropped:
            act(claim)

    def mark_unreachable(self, claim: HeldClaim) -> None:
        """The startd of a claim could not be reached just now, or says that it has no such claim."""
        for act in self._lost:
            act(claim)
