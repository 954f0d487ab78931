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

from typing import TYPE_CHECKING, Any

from pool.classad import ClassAd
from pool.jobs.reasons import Evict, Reason
from pool.policy.owner import is_condition
from pool.policy.slots import BUSY, YIELDING, SlotEvent
from pool.policy.urgent import is_urgent, must_leave
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotClaim, SlotRefused, Wire
from pool.wire import Call

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: What the name of a slot on top of another ends with.
ON_TOP = "_urgent"


class Urgent:
    """The urgent claims of one startd."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd

    def reason(self, slot: Slot, grant: MatchGrant, job: ClassAd, ad: ClassAd) -> Reason:
        """Why the job in a slot gives way to an urgent one.

        Raises:
            SlotRefused: it does not.
        """
        startd = self._startd
        now = startd.outside.wall()
        said = startd.owner.policy.value("START_URGENT", ad, job, now)
        if not is_urgent(job) or not is_condition(said) or not said:
            raise SlotRefused(f"slot {slot.name} lets no urgent job of {grant.submitter} in")
        why = must_leave(ad, job, now)
        return Reason(Evict.URGENT_JOB, f"an urgent job of {grant.submitter} takes the slot{why and f': {why}'}")

    def take(self, slot: Slot, job: ClassAd, call: Call, submitter: str, params: Wire) -> Wire | None:
        """Stop the job in a slot and claim a slot on top of it; None where the job has to leave instead."""
        startd, claim = self._startd, slot.claim
        ad = ClassAd.from_wire(startd.ads.wire_of(slot))
        if claim is None or claim.running is None or claim.running.ended or slot.condition != BUSY:
            return None
        if must_leave(ad, job, startd.outside.wall()):
            return None
        guest = self.put(slot)
        startd.claiming.make(guest, call, submitter, params)
        self.stop(slot, claim, f"an urgent job of {submitter} takes the slot for a while")
        startd.claiming.new_key(slot)
        startd.ads.touch(guest, now=True)
        startd.log.info("an urgent job", extra={"slot": slot.name, "for": submitter, "stops": claim.running.name})
        return startd.claiming.answer([guest])

    def put(self, slot: Slot) -> Slot:
        """A slot on top of another."""
        guest = slot.topped(f"{slot.name}{ON_TOP}", self._startd.outside.wall())
        self._startd.slots[guest.name] = guest
        return guest

    def stop(self, slot: Slot, claim: SlotClaim, why: str) -> None:
        """Have the job below stand still; no other follows it meanwhile."""
        startd, running = self._startd, claim.running
        startd.owner.happen(slot, SlotEvent.YIELD)
        claim.retiring = True
        startd.ads.touch(slot, now=True)
        startd.spawn(running.suspend(why), f"yield {running.name}", alone=True)

    def over(self, guest: Slot) -> None:
        """The urgent claim is over, and nothing of its job is left."""
        startd, slot = self._startd, guest.parent
        assert slot is not None
        slot.guest = None
        startd.slots.pop(guest.name, None)
        startd.ads.withdraw(guest)
        claim = slot.claim
        if claim is None:
            startd.vacant(slot)
            return
        if slot.condition != YIELDING:
            return  # it leaves already
        startd.owner.happen(slot, SlotEvent.HAND_BACK)
        claim.retiring = startd.draining.on
        startd.log.info("handed back", extra={"slot": slot.name, "job": claim.running.name})
        startd.spawn(self._go_on(slot, claim.running), f"hand back {claim.running.name}", alone=True)

    async def _go_on(self, slot: Slot, running: Any) -> None:
        """Let the job below go on, unless the owner is there: then it stays as it is, for his sake."""
        owner = self._startd.owner
        verdict = owner.verdict(slot)
        if verdict.event is SlotEvent.SUSPEND:
            owner.happen(slot, SlotEvent.SUSPEND)
        else:
            await running.resume()
            if verdict.event is not None:
                await owner.act(slot, verdict)
        self._startd.ads.touch(slot, now=True)
