"""The start orders of claims: an order is read, matched once more with the slot, and its job begun (RL 3.2.2).

The answer to a job's end may carry the order for the claim's next job, which then begins at once.
"""

from __future__ import annotations

from typing import Any, Protocol

from pool.classad import ClassAd, requirements_accept
from pool.errors import PoolError
from pool.jobs import activation_fields
from pool.jobs.activation import Activation
from pool.jobs.activation_fields import WrongStart
from pool.policy.autoclusters import looked_at
from pool.policy.slots import CLAIMED_IDLE, SlotEvent
from pool.roles.startd.running.running_job import JobContext, RunningJob
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim, SlotRefused, Wire
from pool.roles.startd.slots.table import SlotTable
from pool.starter.keeper import Keeper

#: Attributes that are never the same in two starts; hardly any expression uses them.
ALWAYS_DIFFERENT = frozenset(
    {
        "ClusterId",
        "ProcId",
        "NumJobStarts",
        "JobCurrentStartDate",
        "JobStartDate",
        "EnteredCurrentStatus",
        "RemoteHost",
        "LastRemoteHost",
    }
)


class FreshFacts(Protocol):
    """The machine's facts: `freshen` reads them again if they are old, into another `wire`."""

    @property
    def wire(self) -> Wire: ...

    def freshen(self) -> None: ...


class Activations:
    """Begins the jobs of one machine."""

    def __init__(self, table: SlotTable, ads: SlotAds, machine: FreshFacts, context: JobContext) -> None:
        self._table = table
        self._ads = ads
        self._machine = machine
        self._context = context

    def begin(self, slot: Slot, claim: SlotClaim, order: dict[str, Any]) -> None:
        """Start a job on a claim.

        Args:
            order: the start and the job's ad, or with a `base` only what differs from the order before.

        Raises:
            SlotRefused: another job runs there, or job and slot do not match any more.
            WrongStart: the order makes no sense.
        """
        start, ad = self.read_order(claim, order)
        present = claim.running
        if present is not None:
            if present.start.mark == start.mark:
                return
            raise SlotRefused(f"slot {slot.name} is busy with job {present.name}", retry=True)
        if claim.retiring or slot.condition != CLAIMED_IDLE:
            raise SlotRefused(f"slot {slot.name} takes no more jobs: its owner wants the machine", retry=True)
        before = claim.ad_wire
        claim.take_ad(ad, order["own"])
        if not self._still_accepts(slot, claim, order["own"]):
            claim.ad_wire = before
            raise SlotRefused(f"slot {slot.name} does not accept job {start.name} now", retry=True)
        claim.last = start
        dedicated.starts(claim, start)
        running = claim.running = RunningJob(self._context, slot, claim, start, self._acknowledged)
        claim.retiring = claim.once
        self._table.apply_event(slot, SlotEvent.ACTIVATE)
        self._ads.publish_later(slot)
        self._context.spawn(running.supervise(running.run()), f"job {start.name}", alone=True)

    def found(self, slot: Slot, claim: SlotClaim, keeper: Keeper) -> RunningJob:
        """Look after a job whose keeper outlived an earlier run of this node."""
        running = claim.running = RunningJob.found(self._context, slot, claim, keeper, self._acknowledged)
        self._context.spawn(running.supervise(running.adopt()), f"job {running.name}", alone=True)
        return running

    def read_order(self, claim: SlotClaim, order: dict[str, Any]) -> tuple[Activation, Wire]:
        """The start of an order, and the job's ad.

        Raises:
            SlotRefused: it builds on an order that is not known here.
            WrongStart: it makes no sense.
        """
        base = order.get("base")
        before = claim.last if base is not None else None
        if base is not None and (before is None or before.mark != tuple(base)):
            raise SlotRefused("the order builds on one that is not known here", retry=True)
        if order.get("shared") is not None:
            claim.shared = order["shared"]
        if not isinstance(claim.shared, dict) or not isinstance(order.get("own"), dict):
            raise WrongStart("the order to start a job has no ad")
        try:
            start = Activation.from_wire(activation_fields.check(order.get("start")), before)
        except (TypeError, ValueError, KeyError) as error:
            raise WrongStart(f"the start of a job makes no sense: {error}") from error
        return start, dedicated.job_ad(claim, {**claim.shared, **order["own"]})

    def _still_accepts(self, slot: Slot, claim: SlotClaim, own: Wire) -> bool:
        """Whether the slot accepts the job; not evaluated again for jobs that no expression can tell apart."""
        self._machine.freshen()
        rest = {name: value for name, value in own.items() if name not in ALWAYS_DIFFERENT}
        machine, shared, before = claim.verified
        if machine is self._machine.wire and shared is claim.shared and before == rest:
            return True
        ad = self._ads.wire_of(slot)
        if not requirements_accept(ClassAd.from_wire(ad), claim.ad, self._context.wall()):
            return False
        if looked_at(("requirements",), ad, claim.ad_wire).isdisjoint(map(str.lower, ALWAYS_DIFFERENT)):
            claim.verified = (self._machine.wire, claim.shared, rest)
        return True

    def _acknowledged(self, ended: RunningJob, answer: dict[str, Any] | None) -> None:
        """The end of a job is acknowledged: begin the next, keep the claim, or drop it."""
        slot, claim, context = ended.slot, ended.claim, self._context
        if slot.claim is not claim:
            return
        following = answer.get("next") if answer else None
        self._table.job_ended(slot)
        if answer is None or not answer.get("keep") or (claim.retiring and following is None):
            context.drop(slot)
            return
        if following is None:
            self._ads.publish_later(slot)
            return
        try:
            self.begin(slot, claim, following)
        except WrongStart as error:
            context.log.error("the schedd's next job is refused", extra={"node": claim.node, "why": str(error)})
            context.drop(slot)
        except PoolError as error:
            start = Activation.from_wire(following["start"], claim.last if following.get("base") else None)
            running = claim.running = RunningJob(context, slot, claim, start, self._acknowledged)
            context.spawn(running.supervise(running.refuse(error)), "refuse", alone=True)
