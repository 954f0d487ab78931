"""A better job for a slot that is taken: the claim that waits, and making room for it (D5; RL 4.3).

The negotiator grants a claimed slot to another submitter, for whose job the machine's RANK is higher or whose user
priority is better. The grant's bearer calls `startd.preempt` and waits: machine and job are matched again (and RANK
compared again, where the grant is for that), then the job in the slot has its retirement, then it leaves, softly and
then not, and then the slot is the bearer's if both still accept each other. Meanwhile the slot is promised to nobody
else.

    the bearer gives up, or dies     a job that only retires goes on as if nothing had been; one that leaves, leaves
    the job ends by itself           the bearer has the slot at once
    the owner comes back             the job leaves at once, and the bearer is refused if START is false by then
    the present schedd is gone       its lease ends, the job is killed, the bearer has the slot
    this node dies                   the bearer learns it as its connection ends; the present job is found again

A dynamic slot is taken over as it is: the job must ask for no more than it has. Where an urgent job is to have the
slot, the present one is mostly only stopped (`pool.roles.startd.claims.urgent`).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pool.classad import ClassAd
from pool.jobs.reasons import Evict, Reason
from pool.policy.owner import judge_replaced
from pool.policy.slots import RETIRING, UNCLAIMED, SlotEvent
from pool.roles.startd.claims.claiming import AT_A_CLAIM
from pool.roles.startd.running.running_job import RunningJob
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotClaim, SlotRefused, Wire
from pool.wire import Call

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd


@dataclass(slots=True, eq=False)
class Waiting:
    """A schedd that waits for a slot.

    Attributes:
        reason: what the job that makes room for it is told.
        answer: what the schedd gets; done when the slot is its own, or cannot be.
        got: the claim it was given.
    """

    grant: MatchGrant
    job: ClassAd
    call: Call
    params: Wire
    reason: Reason
    answer: asyncio.Future[Wire]
    got: SlotClaim | None = None


class Preempting:
    """Who waits for which slot of one startd."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd

    async def claim(self, call: Call, params: Wire) -> Wire:
        """`startd.preempt`: as `startd.claim`, answered when the slot is free."""
        startd = self._startd
        slot, grant = startd.claiming.grant_of(call, params)
        slot.grants.remove(grant)
        params = dedicated.request_of(params, grant.submitter)
        startd.owner.freshen(AT_A_CLAIM)
        job = ClassAd.from_wire(params["ad"])
        claim = slot.claim
        assert claim is not None
        try:
            reason = self._reason(slot, claim, grant, job)
            if grant.preempts == "urgent" and (made := startd.urgent.take(slot, job, call, grant.submitter, params)):
                return made
        except SlotRefused:
            startd.claiming.new_key(slot)
            raise
        answer: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        waiting = slot.waiting = Waiting(grant, job, call, params, reason, answer)
        startd.log.info("a better job", extra={"slot": slot.name, "for": grant.submitter, "what": reason.text})
        try:
            await self._make_room(slot, claim)
            startd.ads.touch(slot, now=True)
            return await answer
        except asyncio.CancelledError:
            if waiting.got is not None and slot.claim is waiting.got:
                await startd.leases.give_up(slot)  # nobody will learn that it was given
            raise
        finally:
            if slot.waiting is waiting:
                self._forget(slot)

    def _reason(self, slot: Slot, claim: SlotClaim, grant: MatchGrant, job: ClassAd) -> Reason:
        """Why the present job has to make room.

        Raises:
            SlotRefused: it does not.
        """
        startd = self._startd
        if claim.retiring or not slot.preemptible:
            raise SlotRefused(f"slot {slot.name} is {slot.condition} and cannot be preempted", retry=True)
        refused = startd.claiming.why_not(slot, job)
        if refused is not None:
            raise SlotRefused(refused, retry=True)
        ad = startd.ads.wire_of(slot)
        if grant.preempts == "urgent":
            return startd.urgent.reason(slot, grant, job, ClassAd.from_wire(ad))
        now, then = ad["CurrentRank"], startd.owner.preference(slot, ad, job)
        if then > now:
            return Reason(
                Evict.BETTER_JOB,
                f"preempted by rank: the machine prefers a job of {grant.submitter} ({then:g} over {now:g})",
            )
        if grant.preempts == "rank":
            raise SlotRefused(
                f"slot {slot.name} does not prefer the job to the one it has ({then:g}, {now:g})", retry=True
            )
        return Reason(Evict.USER_PRIORITY, f"preempted by the user priority of {grant.submitter}")

    async def _make_room(self, slot: Slot, claim: SlotClaim) -> None:
        startd, waiting = self._startd, slot.waiting
        assert waiting is not None
        running: RunningJob | None = claim.running
        if running is None:
            startd.revoke(slot, waiting.reason)
            return
        claim.retiring = True
        if running.ended:
            return  # by itself; the slot is free when its end is told
        ad = ClassAd.from_wire(startd.ads.wire_of(slot))
        verdict = judge_replaced(startd.owner.policy, ad, claim.ad, startd.outside.wall())
        await startd.owner.act(slot, verdict)

    def take_over(self, slot: Slot) -> bool:
        """A slot has lost its claim: whether it is claimed again, by the schedd that waited for it."""
        waiting, slot.waiting = slot.waiting, None
        if waiting is None or waiting.answer.done():
            return False
        startd = self._startd
        refused = startd.claiming.why_not(slot, waiting.job)
        if slot.condition != UNCLAIMED:
            refused = f"slot {slot.name} is {slot.condition}: its owner wants it"
        if refused is not None:
            waiting.answer.set_exception(SlotRefused(refused, retry=True))
            return False
        startd.claiming.make(slot, waiting.call, waiting.grant.submitter, waiting.params)
        waiting.got = slot.claim
        if slot.claim is not None:
            slot.claim.once = waiting.grant.preempts == "urgent"
        waiting.answer.set_result(startd.claiming.answer([slot]))
        startd.ads.touch(slot, now=True)
        return True

    def _forget(self, slot: Slot) -> None:
        """Whoever waited for a slot waits no more."""
        startd, claim = self._startd, slot.claim
        slot.waiting = None
        if claim is not None and slot.condition == RETIRING and not claim.running.ended:
            claim.retiring = False
            startd.owner.happen(slot, SlotEvent.STAY)
        startd.claiming.new_key(slot)
