"""Computing on demand on the machine's side (D7): an urgent claim on top of another, and handing the slot back.

The slot gets a second one on top of it (`slot1_urgent`) for as long as the urgent claim lives, with the same share of
the machine, a scratch directory and a claim of its own. The job below is stopped and its claim kept: the slot is
Claimed Yielding. When the urgent claim is over, whatever ended it, the job below goes on.

    the job below ends or has to leave      its claim is over; the slot stays taken until the urgent claim is over too
    the owner comes back                    his policy is asked for both; the urgent job is suspended, or leaves
    the node dies                           both jobs are found by their keepers, the one below stopped as before
    the urgent schedd is gone               its lease ends, its job is killed, the slot is handed back

Whether it may be is asked of the owner (START_URGENT) here once more, whatever the negotiator said.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from pool.classad import ClassAd
from pool.jobs.reasons import Evict, Reason
from pool.policy.owner import OwnerVerdict, is_condition
from pool.policy.slots import BUSY, YIELDING, SlotEvent
from pool.policy.urgent import is_urgent, must_leave
from pool.roles.base import Spawn
from pool.roles.startd.claims.claiming import ClaimGrants
from pool.roles.startd.owner.draining import DrainState
from pool.roles.startd.owner.judge import OwnerJudge
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.present_job import PresentJob
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotClaim, SlotRefused, Wire
from pool.roles.startd.slots.table import SlotTable
from pool.wire import Call

#: The end of the name of a slot on top of another.
ON_TOP = "_urgent"


class Urgent:
    """The urgent claims of one startd.

    Args:
        act: moves a slot as the policy asks, and does what follows to its job.
        vacant: nobody is in a slot any more.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        judge: OwnerJudge,
        offers: SlotOffers,
        claiming: ClaimGrants,
        drain: DrainState,
        act: Callable[[Slot, OwnerVerdict], Awaitable[None]],
        vacant: Callable[[Slot], None],
        wall: Callable[[], float],
        spawn: Spawn,
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._ads = ads
        self._judge = judge
        self._offers = offers
        self._claiming = claiming
        self._drain = drain
        self._act = act
        self._vacant = vacant
        self._wall = wall
        self._spawn = spawn
        self._log = log

    def reason(self, slot: Slot, grant: MatchGrant, job: ClassAd, ad: ClassAd) -> Reason:
        """Why the job in a slot gives way to an urgent one.

        Raises:
            SlotRefused: it does not.
        """
        said = self._judge.says_urgent(ad, job)
        if not is_urgent(job) or not is_condition(said) or not said:
            raise SlotRefused(f"slot {slot.name} lets no urgent job of {grant.submitter} in")
        why = must_leave(ad, job, self._wall())
        return Reason(Evict.URGENT_JOB, f"an urgent job of {grant.submitter} takes the slot{why and f': {why}'}")

    def suspend_and_claim(self, slot: Slot, job: ClassAd, call: Call, submitter: str, params: Wire) -> Wire | None:
        """Stop the job in a slot and claim a slot on top of it; None where the job has to leave instead."""
        claim = slot.claim
        ad = ClassAd.from_wire(self._ads.wire_of(slot))
        if claim is None or claim.running is None or claim.running.ended or slot.condition != BUSY:
            return None
        if must_leave(ad, job, self._wall()):
            return None
        guest = self.add_guest(slot)
        self._claiming.grant_slot(guest, call, submitter, params)
        self.stop(slot, claim, f"an urgent job of {submitter} takes the slot for a while")
        self._offers.new_key(slot)
        self._ads.touch(guest, now=True)
        self._log.info("an urgent job", extra={"slot": slot.name, "for": submitter, "stops": claim.running.name})
        return self._claiming.answer([guest])

    def add_guest(self, slot: Slot) -> Slot:
        """A slot on top of another."""
        guest = slot.stack_slot(f"{slot.name}{ON_TOP}", self._wall(), self._end_guest)
        self._table.add(guest)
        return guest

    def stop(self, slot: Slot, claim: SlotClaim, why: str) -> None:
        """Have the job below stand still; no other follows it meanwhile."""
        running = claim.running
        assert running is not None
        self._table.apply_event(slot, SlotEvent.YIELD)
        claim.retiring = True
        self._ads.touch(slot, now=True)
        self._spawn(running.suspend(why), f"yield {running.name}", alone=True)

    def _end_guest(self, guest: Slot) -> None:
        """The urgent claim is over, and nothing of its job is left."""
        slot = guest.parent
        assert slot is not None
        slot.guest = None
        self._table.slots.pop(guest.name, None)
        self._ads.withdraw(guest)
        claim = slot.claim
        if claim is None:
            self._vacant(slot)
            return
        if slot.condition != YIELDING:
            return  # it leaves already
        self._table.apply_event(slot, SlotEvent.HAND_BACK)
        claim.retiring, running = self._drain.on, claim.running
        assert running is not None
        self._log.info("handed back", extra={"slot": slot.name, "job": running.name})
        self._spawn(self._go_on(slot, running), f"hand back {running.name}", alone=True)

    async def _go_on(self, slot: Slot, running: PresentJob) -> None:
        """Let the job below go on, unless the owner is there: then it stays as it is, for his sake."""
        verdict = self._judge.verdict(slot)
        if verdict.event is SlotEvent.SUSPEND:
            self._table.apply_event(slot, SlotEvent.SUSPEND)
        else:
            await running.resume()
            if verdict.event is not None:
                await self._act(slot, verdict)
        self._ads.touch(slot, now=True)
