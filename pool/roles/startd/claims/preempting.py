"""Preempts the job in a slot for a better one, whose schedd waits meanwhile (D5; RL 4.3).

The negotiator grants a claimed slot to another submitter, for whose job the machine's RANK is higher or whose user
priority is better. The grant's bearer calls `startd.preempt` and waits. Machine and job are matched again, and RANK is
compared again if the grant is for that. The present job then has its retirement time, and is stopped, softly first.
Then the bearer gets the slot if machine and job still accept each other. Nobody else is promised the slot meanwhile.

    the bearer gives up, or dies     a job that only retires runs on; one that is being stopped leaves
    the job ends by itself           the bearer has the slot at once
    the owner comes back             the job leaves at once, and the bearer is refused if START is false by then
    the present schedd is gone       its lease ends, the job is killed, the bearer has the slot
    this node dies                   the bearer's connection ends; the present job is found again after a restart

A dynamic slot is taken over as it is: the job must ask for no more than it has. A job that replaces guests on a divided
machine gets a part of its own size (`guest_room`). For an urgent job, the present one is mostly only suspended
(`pool.roles.startd.claims.urgent`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from pool.classad import ClassAd
from pool.jobs.reasons import Evict, Reason
from pool.policy.flock.guests import is_guest
from pool.policy.flock.shown import GUEST_LEAVES
from pool.policy.owner import OwnerVerdict
from pool.policy.slots import RETIRING, UNCLAIMED, SlotEvent
from pool.roles.startd.claims.claiming import AT_A_CLAIM, ClaimGrants
from pool.roles.startd.claims.guest_room import GuestRoom
from pool.roles.startd.claims.urgent import Urgent
from pool.roles.startd.owner.facts import MachineFacts
from pool.roles.startd.owner.judge import OwnerJudge
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotClaim, SlotRefused, Wire
from pool.roles.startd.slots.table import SlotTable
from pool.wire import Call

#: The reason told to a job of another pool. It does not say whose job takes its place, which does not concern that
#: pool.
OWN_POOL_FIRST = "a job of the machine's own pool needs it: jobs of other pools leave then"


@dataclass(slots=True, eq=False)
class Waiting:
    """A schedd that waits for a slot.

    Attributes:
        reason: the reason given to the job that makes room for it.
        answer: what the schedd gets; done when the slot is its own, or cannot be.
        claim_it: claims the slot for it once it is free; see `claim_instead`.
        got: the claim it was given.
    """

    grant: MatchGrant
    job: ClassAd
    call: Call
    params: Wire
    reason: Reason
    answer: asyncio.Future[Wire]
    claim_it: Callable[[Waiting, Slot], bool]
    got: SlotClaim | None = None

    def claim_instead(self, slot: Slot) -> bool:
        """The slot has lost its claim: claim it; False if it cannot be claimed, and the schedd is refused."""
        return self.claim_it(self, slot)


class LenderPromises(Protocol):
    """Loans between dedicated schedulers (`pool.roles.startd.claims.loans`)."""

    def refusal(self, slot: Slot, submitter: str) -> str | None: ...


class GivesUp(Protocol):
    """The leases of claims (`pool.roles.startd.claims.leases`)."""

    async def abandon_claim(self, slot: Slot) -> None: ...


class Preempting:
    """The schedds that wait for slots of one startd.

    Args:
        act: moves a slot as the policy asks, and does what follows to its job.
        revoke: ends a claim that no job is on.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        machine: MachineFacts,
        judge: OwnerJudge,
        offers: SlotOffers,
        claiming: ClaimGrants,
        urgent: Urgent,
        leases: GivesUp,
        loans: LenderPromises,
        act: Callable[[Slot, OwnerVerdict], Awaitable[None]],
        revoke: Callable[[Slot, Reason], None],
        wall: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._ads = ads
        self._machine = machine
        self._judge = judge
        self._offers = offers
        self._claiming = claiming
        self._urgent = urgent
        self._leases = leases
        self._loans = loans
        self._act = act
        self._revoke = revoke
        self._wall = wall
        self._log = log

    async def claim(self, call: Call, params: Wire) -> Wire:
        """`startd.preempt`: as `startd.claim`, answered when the slot is free."""
        slot, grant = self._claiming.grant_of(call, params)
        slot.grants.remove(grant)
        if grant.leaving:
            return await self._claim_of_guests(call, params, slot, grant)
        params = dedicated.request_of(params, grant.submitter)
        self._machine.freshen(AT_A_CLAIM)
        job = ClassAd.from_wire(params["ad"])
        claim = slot.claim
        assert claim is not None
        try:
            reason = self._reason(slot, claim, grant, job, params)
            if grant.preempts == "urgent" and (
                made := self._urgent.suspend_and_claim(slot, job, call, grant.submitter, params)
            ):
                return made
        except SlotRefused:
            self._offers.new_key(slot)
            raise
        answer: asyncio.Future[Wire] = asyncio.get_running_loop().create_future()
        waiting = slot.waiting = Waiting(grant, job, call, params, reason, answer, self._claim_instead)
        self._log.info("a better job", extra={"slot": slot.name, "for": grant.submitter, "what": reason.text})
        try:
            await self._make_room(slot, claim, reason)
            self._ads.touch(slot, now=True)
            return await answer
        except asyncio.CancelledError:
            if waiting.got is not None and slot.claim is waiting.got:
                await self._leases.abandon_claim(slot)  # nobody will learn that it was given
            raise
        finally:
            if slot.waiting is waiting:
                self._forget(slot)

    async def _claim_of_guests(self, call: Call, params: Wire, slot: Slot, grant: MatchGrant) -> Wire:
        """Claim a part of a partitionable slot that jobs of other pools leave."""
        self._machine.freshen(AT_A_CLAIM)
        job = ClassAd.from_wire(params["ad"])
        parts = [part for part in grant.leaving if self._table.has(part)]
        grant = replace(grant, leaving=tuple(parts))
        for part in parts:
            part.grants.clear()
        room = GuestRoom(slot, grant, Reason(Evict.USER_PRIORITY, OWN_POOL_FIRST), self._table, self._ads.withdraw)
        try:
            for part in parts:
                self._check_leaves(part, self._judge.preference(slot, self._ads.wire_of(slot), job), params)
            room.keep_rest(self._ads.ad_of(slot), job, self._wall())
            self._log.info("a job of this pool", extra={"slot": slot.name, "for": grant.submitter, "leave": len(parts)})
            for part in parts:
                part.waiting = room
            for part in parts:
                if part.claim is not None and part.waiting is room:
                    await self._make_room(part, part.claim, room.reason)
                    self._ads.touch(part, now=True)
            self._ads.touch(slot, now=True)
            if room.leaving:
                await room.all_left.wait()
            room.release_kept()
            self._offers.update_state(slot)
            return self._claiming.claim_now(slot, job, call, grant.submitter, params)
        finally:
            room.release_kept()
            for part in parts:
                if part.waiting is room:
                    self._forget(part)
                elif self._table.has(part):
                    self._offers.new_key(part)
            if not slot.grants:
                self._offers.new_key(slot)
            self._ads.touch(slot, now=True)

    def _check_leaves(self, part: Slot, likes: float, params: Wire) -> None:
        """
        Raises:
            SlotRefused: the job in the part does not leave for this one.
        """
        ad = self._ads.wire_of(part)
        leaves = part.preemptible and ad.get(GUEST_LEAVES) is True and likes >= ad["CurrentRank"]
        if not leaves or is_guest(params["ad"]):
            raise SlotRefused(f"slot {part.name} is not given up by a job of another pool", retry=True)

    def _reason(self, slot: Slot, claim: SlotClaim, grant: MatchGrant, job: ClassAd, params: Wire) -> Reason:
        """Why the present job has to make room.

        Raises:
            SlotRefused: it does not.
        """
        if claim.retiring or not slot.preemptible:
            raise SlotRefused(f"slot {slot.name} is {slot.condition} and cannot be preempted", retry=True)
        refused = self._claiming.why_not(slot, job) or self._loans.refusal(slot, grant.submitter)
        if refused is not None:
            raise SlotRefused(refused, retry=True)
        ad = self._ads.wire_of(slot)
        if grant.preempts == "urgent":
            return self._urgent.reason(slot, grant, job, ClassAd.from_wire(ad))
        now, then = ad["CurrentRank"], self._judge.preference(slot, ad, job)
        if grant.preempts == "guest":
            self._check_leaves(slot, then, params)
            return Reason(Evict.USER_PRIORITY, OWN_POOL_FIRST)
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

    async def _make_room(self, slot: Slot, claim: SlotClaim, reason: Reason) -> None:
        running = claim.running
        if running is None:
            self._revoke(slot, reason)
            return
        claim.retiring = True
        if running.ended:
            return  # by itself; the slot is free when its end is told
        await self._act(slot, self._judge.verdict_if_replaced(slot, claim))

    def _claim_instead(self, waiting: Waiting, slot: Slot) -> bool:
        """A slot has lost its claim: whether the schedd that waited for it claims it."""
        if waiting.answer.done():
            return False
        refused = self._claiming.why_not(slot, waiting.job)
        if slot.condition != UNCLAIMED:
            refused = f"slot {slot.name} is {slot.condition}: its owner wants it"
        if refused is not None:
            waiting.answer.set_exception(SlotRefused(refused, retry=True))
            return False
        self._claiming.grant_slot(slot, waiting.call, waiting.grant.submitter, waiting.params)
        waiting.got = slot.claim
        if slot.claim is not None:
            slot.claim.once = waiting.grant.preempts == "urgent"
        waiting.answer.set_result(self._claiming.answer([slot]))
        self._ads.touch(slot, now=True)
        return True

    def _forget(self, slot: Slot) -> None:
        """The schedd that waited for a slot waits no more."""
        claim = slot.claim
        slot.waiting = None
        if claim is not None and slot.condition == RETIRING:
            assert claim.running is not None
            if not claim.running.ended:
                claim.retiring = False
                self._table.apply_event(slot, SlotEvent.STAY)
        self._offers.new_key(slot)
