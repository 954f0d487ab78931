"""The end of a claim: its slot is the next claimant's, its owner's or the pool's, and its schedd learns of it."""

from __future__ import annotations

from collections.abc import Callable

from pool.errors import PoolError
from pool.jobs.reasons import Reason
from pool.policy.slots import CLAIMED_IDLE, TABLE, SlotEvent
from pool.roles.base import Spawn
from pool.roles.startd.claims.vacated_scratch import VacatedScratch
from pool.roles.startd.images.image_prefetch import forget_prepared
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.roles.startd.slots.table import SlotTable


class ClaimEnds:
    """Ends the claims of one machine.

    Args:
        scratch: removes what is left of a claim's jobs.
        is_over: the role has ended: the slots, their directories among them, belong to the role that follows it.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        offers: SlotOffers,
        scratch: VacatedScratch,
        spawn: Spawn,
        is_over: Callable[[], bool],
    ) -> None:
        self._table = table
        self._ads = ads
        self._offers = offers
        self._scratch = scratch
        self._spawn = spawn
        self._is_over = is_over

    def drop(self, slot: Slot) -> None:
        """The claim on a slot is over, and nothing of a job is left."""
        claim = slot.claim
        if claim is None or self._is_over():
            return
        self._table.job_ended(slot)
        if slot.condition == CLAIMED_IDLE:
            self._table.apply_event(slot, SlotEvent.RELEASE)
        self._table.claims.pop(claim.id, None)
        slot.claim = None
        forget_prepared(claim, self._spawn)
        self._scratch.leave(slot.name)
        claim.reconnected.set()
        if slot.guest_is_over is not None:
            slot.guest_is_over(slot)
            return
        if slot.guest is not None:
            self._ads.touch(slot, now=True)  # taken for as long as the urgent job is there
            return
        self.vacant(slot)

    def vacant(self, slot: Slot) -> None:
        """Nobody is in a slot any more: it goes to the schedd that waits for it, to its parent, or to its owner."""
        if slot.waiting is not None:
            self._offers.update_state(slot)
            waiting, slot.waiting = slot.waiting, None
            if waiting.claim_instead(slot):
                return
        if slot.kind == "dynamic" and slot.parent is not None:
            parent = slot.parent
            del self._table.slots[slot.name]
            self._ads.withdraw(slot)
            parent.rejoin(slot)
            if parent.grants:
                self._offers.update_state(parent)  # the schedds that were matched with it find it as it was
                self._ads.touch(parent, now=True)
            else:
                self._offers.back_to_owner(parent)
        else:
            self._offers.back_to_owner(slot)

    def revoke(self, slot: Slot, reason: Reason) -> None:
        """End a claim that no job is on, and tell its schedd."""
        if slot.claim is not None:
            self._spawn(self.report_revoked(slot.claim, reason), "revoke", alone=True)
            self.drop(slot)

    async def evict(self, slot: Slot, graceful: bool, reason: Reason) -> None:
        """End the claim on a slot: its job is stopped (softly or at once) and reported as evicted."""
        claim = slot.claim
        if claim is None:
            return
        claim.retiring = True
        running = claim.running
        if running is None:
            self.revoke(slot, reason)
            return
        event = SlotEvent.VACATE if graceful else SlotEvent.KILL
        if running.ended or (slot.condition, event) not in TABLE:
            return  # it is on its way already
        self._table.apply_event(slot, event)
        self._ads.touch(slot, now=True)
        await running.stop(graceful, reason)

    @staticmethod
    async def report_revoked(claim: SlotClaim, reason: Reason) -> None:
        """Tell the schedd, if it can be reached, that a claim has ended."""
        if claim.link is None or claim.link.closed.done():
            return
        try:
            await claim.link.call("schedd.revoked", {"claim": claim.id, "reason": reason.to_wire()}, timeout=10.0)
        except (PoolError, OSError, TimeoutError):
            return  # it learns it when it uses the claim
