"""The start orders of claims: an order is read, matched once more with the slot, and its job begun (RL 3.2.2).

The answer to a job's end may carry the order for the claim's next job, which then begins at once, and that for the one
after it, which is handed on: it begins as soon as the other has ended, before the schedd has acknowledged that end.
The schedd is told of the ends in the order in which the jobs began. A job that was handed on, and does not begin in
time or is not wanted any more, is given back.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from pool.classad import ClassAd, requirements_accept
from pool.errors import PoolError
from pool.jobs import activation_fields
from pool.jobs.activation import Activation
from pool.jobs.activation_fields import WrongStart
from pool.policy.autoclusters import looked_at
from pool.policy.slots import CLAIMED_IDLE, SlotEvent
from pool.roles.startd.running.reports import JobReports
from pool.roles.startd.running.running_job import JobContext, RunningJob
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.present_job import PresentJob
from pool.roles.startd.slots.records import NextJob, Slot, SlotClaim, SlotRefused, Wire
from pool.roles.startd.slots.table import SlotTable
from pool.starter.keeper import Keeper

#: The longest that a job waits that was handed on, seconds.
MOST_WAIT = 60.0
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
        self._begin(slot, claim, start, ad, order["own"])

    def _begin(self, slot: Slot, claim: SlotClaim, start: Activation, ad: Wire, own: Wire) -> None:
        if claim.retiring or slot.condition != CLAIMED_IDLE:
            raise SlotRefused(f"slot {slot.name} takes no more jobs: its owner wants the machine", retry=True)
        before = claim.ad_wire
        claim.take_ad(ad, own)
        if not self._still_accepts(slot, claim, own):
            claim.ad_wire = before
            raise SlotRefused(f"slot {slot.name} does not accept job {start.name} now", retry=True)
        claim.last = start
        dedicated.starts(claim, start)
        running = claim.running = RunningJob(self._context, slot, claim, start, self._acknowledged, self._is_over)
        claim.retiring = claim.once
        self._table.apply_event(slot, SlotEvent.ACTIVATE)
        self._ads.publish_later(slot)
        self._context.spawn(running.supervise(running.run()), f"job {start.name}", alone=True)

    def found(self, slot: Slot, claim: SlotClaim, keeper: Keeper) -> RunningJob:
        """Look after a job whose keeper outlived an earlier run of this node."""
        running = claim.running = RunningJob.found(
            self._context, slot, claim, keeper, self._acknowledged, self._is_over
        )
        self._context.spawn(running.supervise(running.adopt()), f"job {running.name}", alone=True)
        return running

    def overtaken(self, claim: SlotClaim) -> bool:
        """After a restart: another job was begun on a claim whose job has ended; False if that is not so."""
        earlier = claim.running
        keeper = earlier.starter.keeper if earlier is not None and earlier.starter is not None else None
        if earlier is None or keeper is None or not keeper.ended.done():
            return False
        earlier.forgot = False  # only a job of which nothing but its end is to be told is overtaken
        earlier.give_way(clean=False)
        claim.overtaken.append(earlier)
        return True

    # -- jobs that are handed on -------------------------------------------------------------------------

    def hand_on(self, slot: Slot, claim: SlotClaim, order: dict[str, Any]) -> None:
        """Take the job that follows the present one.

        Args:
            order: as for `begin`; `within`: seconds after which it is given back, if it has not begun.

        Raises:
            SlotRefused, WrongStart: as `begin`.
        """
        start, ad = self.read_order(claim, order)
        claim.last = start
        if start.mark == claim.lapsed or self.has_start(claim, start.mark):
            return
        if claim.handed_on is not None:
            raise WrongStart("another job was handed on to the claim")
        within = order.get("within")
        seconds = float(within) if isinstance(within, (int, float)) and 0 <= within < MOST_WAIT else MOST_WAIT
        waiting = claim.handed_on = NextJob(start, ad, order["own"])
        waiting.returns = asyncio.get_running_loop().call_later(seconds, self.return_unbegun, slot, claim, waiting)
        present = claim.running
        if present is None:
            self._begin_next(slot, claim)
        elif present.ended and present.may_be_overtaken:
            self._overtake(slot, claim, present)

    @staticmethod
    def has_start(claim: SlotClaim, mark: tuple[int, ...]) -> bool:
        """Whether a start is here: it runs, waits for the present job's end, or its end is not acknowledged."""
        waiting, running = claim.handed_on, claim.running
        starts = [job.start for job in (*claim.overtaken, *(() if running is None else (running,)))]
        return any(start.mark == mark for start in (*starts, *(() if waiting is None else (waiting.start,))))

    def return_unbegun(self, slot: Slot, claim: SlotClaim, waiting: NextJob) -> None:
        """Do not begin a job that was handed on: its schedd is told so, before it hears more of the present one."""
        if claim.handed_on is not waiting or slot.claim is not claim:
            return
        present = claim.running
        if present is None or present.ended:
            waiting.unwanted = True  # the schedd may have it as the claim's present job by now: it ends as that
            return
        claim.handed_on, told = None, asyncio.Event()
        if waiting.returns is not None:
            waiting.returns.cancel()
        reports = JobReports(slot, claim, waiting.start, self._context.spawn, self._context.log)
        present.tell_after(told)

        async def report_return() -> None:
            try:
                await reports.acknowledged({"cause": "not_begun"})
            finally:
                told.set()

        self._context.spawn(report_return(), "give back", alone=True)

    def _is_over(self, ended: RunningJob) -> None:
        self._overtake(ended.slot, ended.claim, ended)

    def _overtake(self, slot: Slot, claim: SlotClaim, ended: PresentJob) -> None:
        """A job has ended, and only the acknowledgement is missing: the one that was handed on begins."""
        if slot.claim is not claim or claim.running is not ended or claim.handed_on is None:
            return
        claim.running = None
        claim.overtaken.append(ended)
        ended.give_way()
        self._table.job_ended(slot)
        self._begin_next(slot, claim)

    def _begin_next(self, slot: Slot, claim: SlotClaim) -> None:
        waiting, claim.handed_on = claim.handed_on, None
        assert waiting is not None
        if waiting.returns is not None:
            waiting.returns.cancel()
        try:
            if waiting.unwanted:
                raise SlotRefused("the job is not wanted any more", retry=True)
            self._begin(slot, claim, waiting.start, waiting.ad, waiting.own)
        except PoolError as error:
            self._refuse(slot, claim, waiting.start, error)

    def _refuse(self, slot: Slot, claim: SlotClaim, start: Activation, error: PoolError) -> None:
        running = claim.running = RunningJob(self._context, slot, claim, start, self._acknowledged)
        self._context.spawn(running.supervise(running.refuse(error)), "refuse", alone=True)

    def _take_handed_on(self, slot: Slot, claim: SlotClaim, answer: dict[str, Any]) -> None:
        order = answer.get("handed_on")
        if not isinstance(order, dict):
            return
        try:
            self.hand_on(slot, claim, order)
        except PoolError as error:
            said = {"node": claim.node, "why": str(error)}
            self._context.log.error("a job that the schedd hands on is refused", extra=said)
            claim.retiring = True  # the claim ends with the present job, and its schedd finds out about the other

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
        if ended in claim.overtaken:
            claim.overtaken.remove(ended)
            if slot.claim is claim and answer is not None:
                self._take_handed_on(slot, claim, answer)
            return
        if slot.claim is not claim:
            return
        following = answer.get("next") if answer else None
        self._table.job_ended(slot)
        if answer is not None and answer.get("keep") and claim.handed_on is not None:
            self._begin_next(slot, claim)
            self._take_handed_on(slot, claim, answer)
            return
        if answer is None or not answer.get("keep") or (claim.retiring and following is None):
            context.drop(slot)
            return
        if following is None:
            self._ads.publish_later(slot)
            return
        try:
            self.begin(slot, claim, following)
            self._take_handed_on(slot, claim, answer)
        except WrongStart as error:
            context.log.error("the schedd's next job is refused", extra={"node": claim.node, "why": str(error)})
            context.drop(slot)
        except PoolError as error:
            start = Activation.from_wire(following["start"], claim.last if following.get("base") else None)
            self._refuse(slot, claim, start, error)
            claim.last = start
            self._take_handed_on(slot, claim, answer)
