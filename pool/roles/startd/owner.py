"""Watching for the owner: every few seconds the policy is evaluated against fresh facts, and acted upon (A4).

The decisions are `pool.policy.owner`'s; this reads the sensors, keeps slots' states by the table of
`pool.policy.slots`, and passes on what has to happen to the jobs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pool import __version__
from pool.classad import ClassAd
from pool.policy.owner import NAMES, Policy, decide, wire
from pool.policy.slots import Activity, Condition, SlotEvent, SlotState, next_condition
from pool.roles.startd.slots import Slot, Wire

if TYPE_CHECKING:
    from pool.roles.startd.role import Startd

#: The version of the job description language's home that default requirements ask machines for.
LANGUAGE = f"$CondorVersion: 25.14.1 2026-01-01 poolnode-{__version__} $"
#: Facts that change all the time: a change of these alone is advertised with the next regular update.
RESTLESS = frozenset(
    {"LoadAvg", "TotalLoadAvg", "TotalCondorLoadAvg", "CondorLoadAvg", "KeyboardIdle", "ConsoleIdle", "Disk"}
)


class OwnerWatch:
    """The owner's side of one startd."""

    def __init__(self, startd: Startd) -> None:
        self._startd = startd
        self._told: set[str] = set()
        self._facts: Wire = {}
        self.reload()

    def reload(self) -> None:
        """Take the policy from the settings.

        Raises:
            PolicyError: it cannot be read; the policy before stays in force.
        """
        settings = self._startd.settings
        self.policy = Policy.of(settings.text("POLICY"), {name: settings.text(name) for name in NAMES})
        self.policy_wire: Wire = wire(self.policy)

    def facts(self) -> Wire:
        """What the machine is and how busy it is now."""
        startd = self._startd
        facts = startd.sensors.read(startd.outside.wall())
        facts["FileSystemDomain"] = startd.settings.text("FILESYSTEM_DOMAIN")
        facts["UidDomain"] = startd.settings.text("UID_DOMAIN")
        facts["HasFileTransfer"] = True
        facts["CondorVersion"] = LANGUAGE
        return facts

    async def run(self) -> None:
        """Evaluate until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._startd.settings.number("EVALUATE_INTERVAL")
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            due = loop.time() + self._startd.settings.number("EVALUATE_INTERVAL")
            await self.look()

    async def look(self) -> None:
        """One evaluation, with what follows from it for the jobs."""
        startd = self._startd
        startd.machine = self.facts()
        for slot in list(startd.slots.values()):
            event = self._decide(slot)
            if event is not None:
                await self._act(slot, event)
        steady = {name: value for name, value in startd.machine.items() if name not in RESTLESS}
        if steady != self._facts:
            self._facts = steady
            startd.publish_all()

    def evaluate(self) -> None:
        """Settle the slots that no job is in, at once."""
        for slot in list(self._startd.slots.values()):
            self.settle(slot)

    def settle(self, slot: Slot) -> None:
        """Owner or unclaimed, as START has it, for a slot without a claim."""
        if slot.claim is not None:
            return
        wall = self._startd.outside.wall()
        if slot.state not in (SlotState.OWNER, SlotState.UNCLAIMED, SlotState.MATCHED):
            slot.moved(SlotState.UNCLAIMED, Activity.IDLE, wall)
        event = self._decide(slot)
        if event is not None:
            self._move(slot, event)
            self._startd.touch(slot, now=True)

    def claim_idle(self, slot: Slot) -> None:
        """A job has ended and the claim stays."""
        slot.moved(SlotState.CLAIMED, Activity.IDLE, self._startd.outside.wall())

    def _decide(self, slot: Slot) -> SlotEvent | None:
        startd = self._startd
        ad = ClassAd.from_wire(startd.wire_of(slot))
        job = slot.claim.ad if slot.claim is not None else None
        now = startd.outside.wall()
        if slot.claim is not None:
            for name in self.policy.faults(ad, job, now):
                if name not in self._told:
                    self._told.add(name)
                    startd.log.warning("a policy expression is neither true nor false", extra={"name": name})
        return decide(self.policy, ad, job, Condition(slot.state, slot.activity), now)

    def _move(self, slot: Slot, event: SlotEvent) -> None:
        state, activity = next_condition(Condition(slot.state, slot.activity), event)
        slot.moved(state, activity, self._startd.outside.wall())

    async def _act(self, slot: Slot, event: SlotEvent) -> None:
        startd = self._startd
        running: Any = slot.claim.running if slot.claim is not None else None
        self._move(slot, event)
        startd.touch(slot, now=True)
        if event is SlotEvent.OWNER_RETURNS:
            slot.grants.clear()
        if running is None:
            return
        startd.log.info("the owner's policy", extra={"slot": slot.name, "does": str(event), "job": running.name})
        if event is SlotEvent.SUSPEND:
            await running.suspend()
        elif event is SlotEvent.CONTINUE:
            await running.resume()
        elif event in (SlotEvent.VACATE, SlotEvent.KILL):
            assert slot.claim is not None
            slot.claim.retiring = True
            await running.stop(event is SlotEvent.VACATE, "the machine's owner is back")
