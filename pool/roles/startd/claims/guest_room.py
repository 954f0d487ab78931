"""Makes room on a divided machine for a job of this pool, from the parts of guests that leave (EV 4.2).

Each part that a guest leaves is kept until all guests that were asked to have left, so that no other job gets it. What
the job needs of the machine's free rest is kept, too. Then the job gets a part of the size that it asks for, and the
remainder goes back to the machine.

    the schedd gives up, or dies     guests that only retire stay; the parts of the others go back to the machine
    a guest ends by itself           its part is kept like one that a guest left
    the owner comes back             the guests leave at once, and the schedd is refused if START is false by then
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
    """The parts of one machine that a schedd waits for.

    Args:
        whole: the partitionable slot.
        withdraw: tells the collector that a part is gone.

    Attributes:
        reason: told to the guests.
        leaving: the parts that guests have not left yet.
        all_left: set when all guests have left.
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
        """Keep the share of the machine's free rest that the job needs beside the guests' parts.

        Raises:
            SlotRefused: the machine has too little even without these guests.
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
        """A guest has left its part: keep it. False if the part is not one of these."""
        kept = self._kept
        if kept is None or slot not in self.leaving:
            return False
        self.leaving.remove(slot)
        del self._table.slots[slot.name]
        self._withdraw(slot)
        self._whole.children -= 1
        kept.rejoin(slot)
        kept.children += 1  # `rejoin` counts one part less, and this was none of `kept`
        if not self.leaving:
            self.all_left.set()
        return True

    def release_kept(self) -> None:
        """Give all that is kept back to the machine."""
        if self._kept is not None:
            kept, self._kept = self._kept, None
            self._whole.rejoin(kept)
