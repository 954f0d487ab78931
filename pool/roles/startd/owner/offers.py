"""Slots without a claim: whether they are the owner's, offered to the pool, or drained; and their matches' secrets."""

from __future__ import annotations

from collections.abc import Callable

from pool.policy.slots import MATCHED, TABLE, SlotAction, SlotEvent
from pool.roles.startd.owner.draining import DrainState
from pool.roles.startd.owner.judge import OwnerJudge
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot
from pool.roles.startd.slots.table import SlotTable


class SlotOffers:
    """The free slots of one machine.

    Args:
        secret: draws that many random bytes as text.
    """

    def __init__(
        self, table: SlotTable, ads: SlotAds, judge: OwnerJudge, drain: DrainState, secret: Callable[[int], str]
    ) -> None:
        self._table = table
        self._ads = ads
        self._judge = judge
        self._drain = drain
        self._secret = secret

    def update_state(self, slot: Slot) -> None:
        """Make a slot without a claim the owner's or unclaimed, as START has it; drained if the machine is."""
        if slot.claim is not None or slot.guest is not None:
            return
        if self._drain.on:
            if (slot.condition, SlotEvent.DRAIN) in TABLE:
                self.after_transition(slot, self._table.apply_event(slot, SlotEvent.DRAIN))
            return
        event = self._judge.verdict(slot).event
        if event is not None:
            self.after_transition(slot, self._table.apply_event(slot, event))

    def settle_all(self) -> None:
        """Settle all slots without a claim, at once."""
        for slot in list(self._table.slots.values()):
            self.update_state(slot)

    def after_transition(self, slot: Slot, action: SlotAction) -> None:
        """Do what follows from a move of a slot without a claim."""
        if action in (SlotAction.WITHDRAW, SlotAction.OFFER):
            slot.grants.clear()
            slot.key = self._secret(16)
        self._ads.touch(slot, now=True)

    def new_key(self, slot: Slot) -> None:
        """End all matches that were made with this slot."""
        slot.key = self._secret(16)
        if slot.condition == MATCHED:
            self._table.apply_event(slot, SlotEvent.LAPSE)
        self._ads.touch(slot, now=True)

    def back_to_owner(self, slot: Slot) -> None:
        """Nobody holds the slot any more: it is the owner's, or offered."""
        slot.grants.clear()
        self.new_key(slot)
        self.update_state(slot)
        self._ads.touch(slot, now=True)
