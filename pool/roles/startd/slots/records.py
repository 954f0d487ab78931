"""The slots of one machine as the startd keeps them: resources, state, grants and claims.

Records and the ads made of them; no timers and no calls. A *grant* is the negotiator's word that a submitter may
claim the slot, as often as its count says; a *claim* is a lease held by a schedd. A partitionable slot stays
unclaimed and is carved: each claim on it makes a dynamic slot with the resources that were asked for.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from pool.classad import ClassAd
from pool.decimals import whole_number
from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.jobs.reasons import Reason
from pool.policy import carve, urgent
from pool.policy.managed import HOLDER, SCHEDULER, is_dedicated, said_loans
from pool.policy.owner import Fault
from pool.policy.slots import OCCUPIED, OWNER, PREEMPTIBLE, UNCLAIMED, SlotAction, SlotCondition, SlotEvent, step
from pool.roles.startd.slots.present_job import PreparedCheckpoint, PresentJob
from pool.starter.place import ExecutionSite
from pool.wire import ConnectionLost
from pool.wire.connection import Connection

Wire = dict[str, Any]
Resources = dict[str, float | int]
#: A job as a machine knows it: the node of its schedd, and its id there; each schedd counts from 1.
JobKey = tuple[str, str]


class SlotRefused(PoolError):
    """The startd does not do what was asked, for a reason that it says."""


@dataclass(slots=True, eq=False)
class MatchGrant:
    """A match as the startd heard of it: who may claim, how often, and until when (monotonic).

    Attributes:
        preempts: for a slot that is taken, why: `urgent`, `rank`, `guest`, `priority`, or `unsaid`; empty for a free
            one.
        leaving: parts of the slot that jobs of other pools leave for it.
    """

    submitter: str
    node: str
    count: int
    expires: float
    preempts: str = ""
    leaving: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class SlotLoan:
    """A dedicated scheduler's promise not to need a slot.

    Attributes:
        until: monotonic time at which it is over; wall: the same by the wall clock, for people and for a restart.
    """

    until: float
    wall: float


class WaitingClaimant(Protocol):
    """A schedd that waits for a slot while it is taken.

    Attributes:
        reason: for which the present job has to make room.
    """

    @property
    def grant(self) -> MatchGrant: ...
    @property
    def reason(self) -> Reason: ...

    def claim_instead(self, slot: Slot) -> bool:
        """The slot has lost its claim: claim it; False if it cannot be claimed, and the schedd is refused."""


@dataclass(slots=True, eq=False)
class NextJob:
    """A job that its schedd has handed on: it begins as soon as the present one has ended.

    Attributes:
        ad, own: its ad, and what of that is its own.
        returns: gives it back when it has waited for too long.
        unwanted: it is not to begin.
    """

    start: Activation
    ad: Wire
    own: Wire
    returns: asyncio.TimerHandle | None = None
    unwanted: bool = False


@dataclass(slots=True, eq=False)
class SlotClaim:
    """A slot in the hands of a schedd.

    Attributes:
        id: secret; the bearer, calling from `node`, may use the slot.
        asked: monotonic time at which the renewal now in force was asked for; the lease counts from there.
        link: the connection over which the schedd spoke last; None from a restart of the node until it speaks again.
        ad_wire: the ad of the job that runs, or of the one the claim was made for.
        last, shared: the start that was ordered last, and what its job's ad shares with its cluster: the
            next order may say only what is different.
        verified, ranked: what the slot accepted last, and how much it likes it, so that the same is not asked twice.
        since: wall time at which the claim was made.
        running: the job that is here, from its activation until its end is acknowledged.
        handed_on: the job that follows the one that is here.
        overtaken: the jobs before it, oldest first, that have ended and whose ends are not acknowledged.
        lapsed: the start of a job that was handed on and did not come in time: it is not to begin any more.
        prepared: the checkpoint of the job that comes next, as far as it has come.
        place: of the claim's jobs on this machine, from the first one on.
        retiring: no other job follows the present one.
        once: it was taken from another for an urgent job, and is for that alone.
        over: it has ended for everybody else, and is kept until its job is dead.
        owner: whose job is here, or was last; of an ordinary claim the same user's always.
        loans: of a dedicated scheduler's claim: the promises of those above it in the machine's list.
    """

    id: str
    owner: str
    submitter: str
    node: str
    lease: float
    asked: float
    born: float
    since: float
    link: Connection | None
    ad_wire: Wire
    running: PresentJob | None = None
    handed_on: NextJob | None = None
    overtaken: list[PresentJob] = field(default_factory=list)
    lapsed: tuple[int, ...] | None = None
    prepared: PreparedCheckpoint | None = None
    last: Activation | None = None
    shared: Wire = field(default_factory=dict)
    verified: tuple[Any, Any, Any] = (None, None, None)
    ranked: tuple[Any, Any, float] = (None, None, 0.0)
    place: ExecutionSite | None = None
    reconnected: asyncio.Event = field(default_factory=asyncio.Event)
    retiring: bool = False
    once: bool = False
    over: bool = False
    loans: dict[str, SlotLoan] = field(default_factory=dict)

    _ad: tuple[Wire, ClassAd] | None = None
    _own: tuple[Wire, Wire] | None = None
    _cluster: tuple[Wire, ClassAd] | None = None

    def take_ad(self, wire: Wire, own: Wire) -> None:
        """The ad of the job that comes: `shared` with the job's own attributes, and the `Scheduler` that is true."""
        self.ad_wire, self._own = wire, (wire, own)

    @property
    def ad(self) -> ClassAd:
        """The job's ad, made when it is needed; what its cluster's jobs share is read once for all of them."""
        if self._ad is None or self._ad[0] is not self.ad_wire:
            self._ad = (self.ad_wire, self._chained() or ClassAd.from_wire(self.ad_wire))
        return self._ad[1]

    def _chained(self) -> ClassAd | None:
        """The ad over its cluster's; None where the job's own part is not known."""
        if self._own is None or self._own[0] is not self.ad_wire:
            return None
        if self._cluster is None or self._cluster[0] is not self.shared:
            self._cluster = (self.shared, ClassAd.from_wire(self.shared))
        ad = ClassAd.from_wire(self._own[1], self._cluster[1])
        if SCHEDULER in self.ad_wire:
            ad[SCHEDULER] = self.ad_wire[SCHEDULER]
        else:
            ad.discard(SCHEDULER)
        return ad

    @property
    def user(self) -> str:
        """To whom the slot counts: the submitter; on a dedicated scheduler's claim the user whose job runs (WR 3.2)."""
        if self.running is None or not is_dedicated(self.submitter):
            return self.submitter
        return f"{self.owner}@{self.node}"

    @property
    def schedd(self) -> Connection:
        """The connection to the claim's schedd.

        Raises:
            ConnectionLost: there is none.
        """
        if self.link is None or self.link.closed.done():
            raise ConnectionLost("the submit side is not connected")
        return self.link

    @property
    def lease_end(self) -> float:
        """Monotonic time at which the lease ends."""
        return self.asked + self.lease


@dataclass(slots=True, eq=False)
class Slot:
    """One slot.

    Attributes:
        kind: static, partitionable, dynamic, or urgent: on top of its `parent`.
        resources: what it has by name (Cpus, Memory in MB, Disk in KiB, GPUs); for a partitionable slot what is left.
        key: the secret that a grant carries; made anew when it has been used up. While the slot is claimed a grant
            with it preempts the claim.
        condition: state and activity; changed by `handle_event` alone.
        gpus: the names of its GPUs; for a partitionable slot of those left.
        guest: the slot on top of it, while an urgent job is there (`pool.roles.startd.claims.urgent`).
        guest_is_over: of a slot on top of another: called with it when its claim is over.
        waiting: the schedd that waits for it while it is taken.
        troubles: expressions of the owner's policy that had no usable value when they were last needed, by name.
        read: its ad as it was last evaluated in, and what that was made of.
        loans: the promises of dedicated schedulers not to need it, by their submitters.
        since, since_activity: wall seconds at which it came into its state, and into its activity.
    """

    name: str
    kind: str
    resources: Resources
    key: str
    since: float
    condition: SlotCondition = OWNER
    since_activity: float = 0.0
    parent: Slot | None = None
    grants: list[MatchGrant] = field(default_factory=list)
    claim: SlotClaim | None = None
    children: int = 0
    condor_load: float = 0.0
    troubles: dict[str, Fault] = field(default_factory=dict)
    waiting: WaitingClaimant | None = None
    guest: Slot | None = None
    guest_is_over: Callable[[Slot], None] | None = None
    gpus: tuple[str, ...] = ()
    read: tuple[Wire, ClassAd] | None = None
    loans: dict[str, SlotLoan] = field(default_factory=dict)

    @property
    def occupied(self) -> bool:
        """Whether a job is in it."""
        return self.condition in OCCUPIED

    @property
    def preemptible(self) -> bool:
        """Whether it is taken, by what a better job may take the place of."""
        claim = self.claim
        if claim is None or claim.retiring or self.condition not in PREEMPTIBLE or self.kind == "urgent":
            return False
        return claim.running is None or not claim.running.forgot

    @property
    def is_offered(self) -> bool:
        """Whether it has no claim, and is the pool's."""
        return self.claim is None and self.condition == UNCLAIMED and bool(self.key)

    @property
    def grantable(self) -> bool:
        """Whether the negotiator may grant it to somebody: it is free, or may be preempted (D5)."""
        if self.claim is None:
            return self.is_offered
        return self.preemptible and not self.grants and self.waiting is None

    def split(
        self, name: str, resources: Resources, left: Resources, now: float, gpus: tuple[str, ...] | None = None
    ) -> Slot:
        """A dynamic slot carved out of this one, with these of its GPUs, or else the first of them."""
        given = self.gpus[: int(resources.get("GPUs", 0))] if gpus is None else gpus
        made = Slot(name, "dynamic", resources, "", now, UNCLAIMED, now, self, gpus=given)
        self.resources, self.gpus = left, tuple(name for name in self.gpus if name not in given)
        self.children += 1
        return made

    def stack_slot(self, name: str, now: float, is_over: Callable[[Slot], None]) -> Slot:
        """A slot on top of this one, with the same share of the machine.

        Args:
            is_over: called with it when its claim is over.
        """
        made = Slot(name, "urgent", dict(self.resources), "", now, UNCLAIMED, now, self, gpus=self.gpus)
        made.guest_is_over = is_over
        self.guest = made
        return made

    def rejoin(self, made: Slot) -> None:
        """Take a dynamic slot's resources back."""
        self.resources = carve.add(self.resources, made.resources)
        self.gpus = (*made.gpus, *self.gpus)
        self.children -= 1

    def handle_event(self, event: SlotEvent, now: float) -> SlotAction:
        """Go where the table leads; returns what has to be done about it.

        Args:
            now: wall seconds, for the ad.

        Raises:
            SlotStateError: this cannot happen to a slot in this condition.
        """
        after, action = step(self.condition, event)
        if after.state is not self.condition.state:
            self.since = now
        if after != self.condition:
            self.condition, self.since_activity = after, now
        return action


def secrets_equal(secret: str, shown: Any) -> bool:
    """Whether a secret is the one that was shown, in a time that says nothing of it."""
    return bool(secret) and isinstance(shown, str) and hmac.compare_digest(secret.encode(), shown.encode())


def slot_wire(slot: Slot, machine: Wire, node: str, address: str, policy: Wire) -> Wire:
    """A slot's ad: the machine's facts, the slot's share, its state, and the owner's expressions."""
    wire: Wire = {
        **machine,
        "MyType": "Machine",
        "TargetType": "Job",
        "Name": f"{slot.name}@{node}",
        "Machine": node,
        "SlotID": _number(slot.name),
        "StartdAddress": address,
        "State": str(slot.condition.state),
        "Activity": str(slot.condition.activity),
        "EnteredCurrentState": int(slot.since),
        "EnteredCurrentActivity": int(slot.since_activity),
        "SlotType": slot.kind.capitalize(),
        "LoadAvg": round(float(machine.get("LoadAvg", 0.0)) + slot.condor_load, 2),
        "CondorLoadAvg": round(slot.condor_load, 2),
        **slot.resources,
        **policy,
    }
    if slot.gpus:
        wire["AssignedGPUs"] = ",".join(slot.gpus)
        if (available := carve.available(machine, slot.gpus)) is not None:
            wire["AvailableGPUs"] = available
    if slot.kind == "partitionable":
        wire["PartitionableSlot"] = True
        wire["NumDynamicSlots"] = slot.children
    if slot.kind == "dynamic":
        wire["DynamicSlot"] = True
    if loans := slot.loans if slot.claim is None else slot.claim.loans:
        wire |= said_loans({name: loan.wall for name, loan in loans.items()})
    if slot.claim is not None:
        if is_dedicated(slot.claim.submitter):
            wire[HOLDER] = slot.claim.submitter
        wire["RemoteUser"] = user = slot.claim.user
        wire["RemoteOwner"] = user.rpartition("@")[0]
        wire["ClientMachine"] = wire["ScheddName"] = slot.claim.node
        wire["ClaimStart"] = int(slot.claim.since)
        running = slot.claim.running
        if running is not None:
            wire["JobId"] = running.name
            wire["JobStart"] = int(running.started_at)
            wire["LastPeriodicCheckpoint"] = int(running.saving.last or running.started_at)
            wire["JobCanCheckpoint"] = running.saving.resumable
            if running.suspended:
                wire["TotalJobSuspendTime"] = int(running.suspended)
    if slot.guest is not None and slot.guest.claim is not None:
        wire["UrgentUser"] = slot.guest.claim.submitter
    if slot.kind == "urgent" and urgent.START_URGENT in wire:
        (usual,), (start,) = wire["Requirements"], wire.pop(urgent.START_URGENT)
        wire["Requirements"] = [urgent.requirements(usual, start)]
    if slot.waiting is not None:
        wire["PreemptingUser"] = slot.waiting.grant.submitter
    if slot.troubles:
        if "SLOT_WEIGHT" in slot.troubles:
            wire["SlotWeight"] = ["Cpus"]
        wire["PolicyTrouble"] = "; ".join(fault.text for fault in slot.troubles.values())
    return wire


def _number(name: str) -> int:
    digits = name.removeprefix("slot").split("_")[0]
    return whole_number(digits) or 0
