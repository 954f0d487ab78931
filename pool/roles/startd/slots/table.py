"""All slots and claims of one machine, and the moves of a slot between its states."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.policy.slots import SlotAction, SlotEvent
from pool.roles.startd.slots.records import Slot


class SlotTable:
    """The slots of one machine.

    Args:
        wall: the wall clock, for the times at which slots came into their states.

    Attributes:
        slots: by name. claims: the claimed slots, by the id of the claim.
        news: set when a slot's state, claim or job changed, so that the next evaluation may decide otherwise.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self.slots: dict[str, Slot] = {}
        self.claims: dict[str, Slot] = {}
        self.news = asyncio.Event()
        self._wall = wall

    def add(self, slot: Slot) -> None:
        """Take in a new slot."""
        self.slots[slot.name] = slot

    def slot_of(self, name: str) -> Slot | None:
        """The slot of a name, with or without the node's behind it."""
        return self.slots.get(name.split("@")[0])

    def has(self, slot: Slot) -> bool:
        """Whether this slot still exists: another one may have its name."""
        return self.slots.get(slot.name) is slot

    def apply_event(self, slot: Slot, event: SlotEvent) -> SlotAction:
        """Move a slot by the table of `pool.policy.slots`; returns what has to be done about it.

        Raises:
            SlotStateError: this cannot happen to a slot in its present state.
        """
        self.news.set()
        return slot.handle_event(event, self._wall())

    def reload(self) -> None:
        """The settings have changed: faults of the policy before are none any more."""
        self.news.set()
        for slot in self.slots.values():
            slot.troubles.clear()

    def job_ended(self, slot: Slot) -> None:
        """No process of the job in this slot is left."""
        if slot.occupied:
            self.apply_event(slot, SlotEvent.JOB_ENDS)
