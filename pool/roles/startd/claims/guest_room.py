"""Room for a job of this pool on a divided machine, of parts that jobs of other pools leave (EV 4.2).

What a guest leaves is kept until all have left that were asked to, so that nobody else is given it; so is what the job
needs of the machine's free rest. Then a part is made of it that is as large as the job asks for, and what is over goes
back to the machine.

    the bearer gives up, or dies     guests that only retire stay; what others have left goes back to the machine
    a guest ends by itself           its part counts like one that was left
    the owner comes back             the guests leave at once, and the bearer is refused if START is false by then
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pool.classad import ClassAd
from pool.jobs.reasons import Reason
from pool.policy import carve
from pool.roles.startd.slots.records import MatchGrant, Slot, SlotRefused
from pool.roles.startd.slots.table import SlotTable


class GuestRoom:
    """A schedd that waits for parts of one machine.

    Args:
        whole: the partitionable slot.
        withdraw: tells the collector that a part is no more.

    Attributes:
        reason: the reason that the guests are given.
        leaving: the parts that guests have not left yet.
        all_left: set when they have.
    """

    def __init__(
        self, whole: Slot, grant: MatchGrant, reason: Reason, table: SlotTable, withdraw: Callable[[Slot], None]
    ) -> None:
        self.grant = grant
        self.reason = reason
        self.leaving = list(grant.leaving)
        self.all_left = asyncio.Event()
        self._whole = whole
        self._table = table
        self._withdraw = withdraw
        self._kept: Slot | None = None

    def keep_rest(self, machine: ClassAd, job: ClassAd, now: float) -> None:
        """Keep what the job needs of the machine's free rest.

        Raises:
            SlotRefused: the machine has too little, also without these guests.
        """
        whole, wanted = self._whole, carve.demand(machine, job)
        if isinstance(wanted, carve.CarveRefusal):
            raise SlotRefused(wanted.text, retry=True)
        left = {name: sum(part.resources.get(name, 0) for part in self.leaving) for name in wanted}
        missing: carve.Resources = {name: max(0, amount - left[name]) for name, amount in wanted.items()}
        carved = carve.carve(whole.resources, missing)
        if isinstance(carved, carve.CarveRefusal):
            raise SlotRefused(carved.text, retry=True)
        self._kept = whole.split(f"{whole.name}_kept", *carved, now)

    def claim_instead(self, slot: Slot) -> bool:
        """A guest has left its part: keep it with the rest."""
        kept = self._kept
        if kept is None or slot not in self.leaving:
            return False
        self.leaving.remove(slot)
        del self._table.slots[slot.name]
        self._withdraw(slot)
        self._whole.children -= 1
        kept.rejoin(slot)
        kept.children += 1  # it was no part of this one
        if not self.leaving:
            self.all_left.set()
        return True

    def release_kept(self) -> None:
        """All that is kept is the machine's again."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._whole.rejoin(kept)
