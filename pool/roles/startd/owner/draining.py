"""Taking a machine out of use, and back: what runs ends or leaves, nothing new comes (`poolnode drain`, `undrain`).

    finish   what runs may end in its own time, however long that takes
    vacate   what runs is asked to leave now, and goes back to its queue
    fast     what runs is killed

A slot that nothing is in is Drained at once, the others as soon as they are empty. The node's state says that a
machine is out of use, so that a restart does not bring it back in the middle of somebody's work on it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from pool.errors import PoolError
from pool.jobs.reasons import Evict, Reason
from pool.policy.slots import BUSY, DRAINED, SlotEvent
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotRefused, Wire
from pool.roles.startd.slots.table import SlotTable

HOW = ("finish", "vacate", "fast")


class DrainState:
    """Whether one machine is out of use, and why; kept in a file through restarts.

    Args:
        directory: of the node's state; None keeps nothing.
    """

    def __init__(self, directory: Path | None) -> None:
        self._kept = Path(directory) / "drained" if directory is not None else None
        self.on = False
        self.why = ""
        if self._kept is not None and self._kept.exists():
            self.on, self.why = True, self._kept.read_text(encoding="utf-8", errors="replace")

    def wire(self) -> Wire:
        """The attributes about draining in the slots' ads."""
        return {"Draining": True, "DrainReason": self.why} if self.on else {}

    def set(self, on: bool, why: str = "") -> None:
        """Change it, and keep it.

        Raises:
            PoolError: it cannot be kept.
        """
        self.on, self.why = on, why
        if self._kept is None:
            return
        try:
            if on:
                self._kept.write_text(why, encoding="utf-8")
            else:
                self._kept.unlink(missing_ok=True)
        except OSError as error:
            raise PoolError(
                f"cannot keep it that this machine is {'out of' if on else 'in'} use: {error}",
                hint=f"make {self._kept.parent} writable",
            ) from error


class Settling(Protocol):
    """Settles slots without a claim (`pool.roles.startd.owner.offers`)."""

    def update_state(self, slot: Slot) -> None: ...


class Draining:
    """Takes one machine out of use, and back.

    Args:
        evict: ends the claim on a slot: (slot, softly, reason).
    """

    def __init__(
        self,
        state: DrainState,
        table: SlotTable,
        ads: SlotAds,
        offers: Settling,
        evict: Callable[[Slot, bool, Reason], Awaitable[None]],
        log: logging.Logger,
    ) -> None:
        self.state = state
        self._table = table
        self._ads = ads
        self._offers = offers
        self._evict = evict
        self._log = log

    async def begin(self, how: str, why: str) -> list[str]:
        """Take the machine out of use; returns the slots that something is still in.

        Raises:
            SlotRefused: there is no such way of doing it.
        """
        if how not in HOW:
            raise SlotRefused(f"cannot drain by '{how}'", hint=f"one of {', '.join(HOW)}")
        self.state.set(True, why)
        self._log.info("out of use", extra={"how": how, "why": why})
        reason = Reason(Evict.DRAINED, "the machine is taken out of use" + (f": {why}" if why else ""))
        for slot in list(self._table.slots.values()):
            claim = slot.claim
            if claim is None:
                self._offers.update_state(slot)
            elif claim.running is None or how != "finish":
                await self._evict(slot, how != "fast", reason)
            else:
                claim.retiring = True
        self._ads.publish_all()
        return [slot.name for slot in self._table.slots.values() if slot.claim is not None]

    def end(self) -> None:
        """The machine is in use again; jobs that have not been asked to leave may be followed by others."""
        self.state.set(False)
        for slot in list(self._table.slots.values()):
            if slot.condition == DRAINED:
                self._table.apply_event(slot, SlotEvent.UNDRAIN)
                self._offers.update_state(slot)
            elif slot.claim is not None and slot.condition == BUSY:
                assert slot.claim.running is not None
                if not slot.claim.running.ended:
                    slot.claim.retiring = False
        self._log.info("in use again")
        self._ads.publish_all()
