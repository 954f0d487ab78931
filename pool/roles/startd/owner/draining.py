"""Taking a machine out of use, and back: what runs ends or leaves, nothing new comes (`poolnode drain`, `undrain`).

    finish   what runs may end in its own time, however long that takes
    vacate   what runs is asked to leave now, and goes back to its queue
    fast     what runs is killed

A slot that nothing is in is Drained at once, the others as soon as they are empty. It is kept in the node's state that
a machine is out of use, so that a restart does not bring it back in the middle of somebody's work on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pool.errors import PoolError
from pool.jobs.reasons import Evict, Reason
from pool.policy.slots import BUSY, DRAINED, SlotEvent
from pool.roles.startd.slots.records import Slot, SlotRefused, Wire

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

HOW = ("finish", "vacate", "fast")


class Draining:
    """Whether one startd's machine is in use, or on its way out of it."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd
        state = startd.given.state
        self._kept = Path(state) / "drained" if state is not None else None
        self.on = False
        self.why = ""
        if self._kept is not None and self._kept.exists():
            self.on, self.why = True, self._kept.read_text(encoding="utf-8", errors="replace")

    def said(self) -> Wire:
        """What the slots' ads say of it."""
        return {"Draining": True, "DrainReason": self.why} if self.on else {}

    async def begin(self, how: str, why: str) -> list[str]:
        """Take the machine out of use; returns the slots that something is still in.

        Raises:
            SlotRefused: there is no such way of doing it.
        """
        if how not in HOW:
            raise SlotRefused(f"cannot drain by '{how}'", hint=f"one of {', '.join(HOW)}")
        startd = self._startd
        self.on, self.why = True, why
        self._keep()
        startd.log.info("out of use", extra={"how": how, "why": why})
        reason = Reason(Evict.DRAINED, "the machine is taken out of use" + (f": {why}" if why else ""))
        for slot in list(startd.slots.values()):
            claim = slot.claim
            if claim is None:
                startd.owner.settle(slot)
            elif claim.running is None or how != "finish":
                await startd.evict(slot, how != "fast", reason)
            else:
                claim.retiring = True
        startd.ads.tell_all()
        return [slot.name for slot in startd.slots.values() if slot.claim is not None]

    def end(self) -> None:
        """The machine is in use again; jobs that have not been asked to leave may be followed by others."""
        startd = self._startd
        self.on, self.why = False, ""
        self._keep()
        for slot in list(startd.slots.values()):
            if slot.condition == DRAINED:
                startd.owner.happen(slot, SlotEvent.UNDRAIN)
                startd.owner.settle(slot)
            elif slot.claim is not None and slot.condition == BUSY and not slot.claim.running.ended:
                slot.claim.retiring = False
        startd.log.info("in use again")
        startd.ads.tell_all()

    def found(self, slot: Slot) -> None:
        """A job of an earlier run of the node is in this slot."""
        if self.on and slot.claim is not None:
            slot.claim.retiring = True

    def _keep(self) -> None:
        if self._kept is None:
            return
        try:
            if self.on:
                self._kept.write_text(self.why, encoding="utf-8")
            else:
                self._kept.unlink(missing_ok=True)
        except OSError as error:
            raise PoolError(
                f"cannot keep it that this machine is {'out of' if self.on else 'in'} use: {error}",
                hint=f"make {self._kept.parent} writable",
            ) from error
