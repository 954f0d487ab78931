"""Watching for the owner: every few seconds the policy is evaluated against fresh facts, and acted upon (A4).

The decisions are `pool.policy.owner`'s, applied by `pool.roles.startd.owner.judge`; this moves the slots as they say,
and passes on what has to happen to the jobs.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping

from pool.config import Settings
from pool.jobs.reasons import Evict, Reason
from pool.machine import Sensors
from pool.outside import OutsideWorld
from pool.policy.owner import OwnerVerdict
from pool.policy.slots import SlotAction, SlotEvent
from pool.roles.startd.owner.facts import MachineFacts
from pool.roles.startd.owner.judge import OwnerJudge
from pool.roles.startd.owner.offers import SlotOffers
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, Wire
from pool.roles.startd.slots.table import SlotTable

#: Seconds by which wall clock and monotonic clock may part before that counts as a clock that was set.
CLOCK_SLACK = 1.0
OWNER_IS_BACK = Reason(Evict.OWNER_RETURNED, "the machine's owner is back")
#: Slots that are looked at before others get their turn on the loop.
MANY = 100
#: Facts that change all the time: a change of these alone is advertised with the next regular update.
RESTLESS = frozenset(
    {
        "LoadAvg",
        "TotalLoadAvg",
        "TotalCondorLoadAvg",
        "CondorLoadAvg",
        "ClockDay",
        "ClockMin",
        "KeyboardIdle",
        "ConsoleIdle",
        "Disk",
        "AvailableMemory",
    }
)


class OwnerWatch:
    """Evaluates the policy for all slots of one machine again and again.

    Args:
        revoke: ends a claim that no job is on: (slot, reason).
        settings: those in force.
    """

    def __init__(
        self,
        table: SlotTable,
        ads: SlotAds,
        machine: MachineFacts,
        sensors: Sensors,
        judge: OwnerJudge,
        offers: SlotOffers,
        revoke: Callable[[Slot, Reason], None],
        settings: Callable[[], Settings],
        outside: OutsideWorld,
        log: logging.Logger,
    ) -> None:
        self._table = table
        self._ads = ads
        self._machine = machine
        self._sensors = sensors
        self._judge = judge
        self._offers = offers
        self._revoke = revoke
        self._settings = settings
        self._wall = outside.wall
        self._log = log
        self._facts: Wire = {}
        self._ahead = self._wall() - asyncio.get_running_loop().time()
        sensors.watch(self._roots)
        self._sensors_tell = sensors.subscribe(table.news.set)

    async def run(self) -> None:
        """Evaluate until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._settings().number("EVALUATE_INTERVAL")
        while True:
            await asyncio.sleep(max(0.0, due - loop.time()))
            apart = self._settings().number("EVALUATE_INTERVAL")
            if self._nothing_changes():
                await self._table.news.wait()
                due += math.ceil(max(loop.time() - due, 0.0) / apart) * apart
                await asyncio.sleep(max(0.0, due - loop.time()))
            due = loop.time() + apart
            await self.evaluate()

    def _nothing_changes(self) -> bool:
        """Whether evaluations find what the last one found, until something reports a change."""
        if not self._sensors_tell or self._table.news.is_set():
            return False
        return all(self._judge.is_settled(slot) for slot in self._table.slots.values())

    async def evaluate(self) -> None:
        """One evaluation, with what follows from it for the jobs."""
        self._table.news.clear()
        self._mind_the_clock()
        self._machine.read()
        loads = self._sensors.loads()
        for count, slot in enumerate(list(self._table.slots.values()), 1):
            if not count % MANY:
                await asyncio.sleep(0)
            if not self._table.has(slot):
                continue
            slot.condor_load = _load_of(slot, loads)
            verdict = self._judge.verdict(slot)
            if verdict.event is not None:
                await self.act(slot, verdict)
        steady = {name: value for name, value in self._machine.wire.items() if name not in RESTLESS}
        if steady != self._facts:
            self._facts = steady
            self._ads.publish_all()

    def _mind_the_clock(self) -> None:
        """Where the wall clock was set, slots have been in their conditions for as long as before."""
        ahead = self._wall() - asyncio.get_running_loop().time()
        jumped = ahead - self._ahead
        if abs(jumped) > CLOCK_SLACK:
            self._ahead = ahead
            self._log.warning("the clock was set", extra={"seconds": round(jumped)})
            for slot in self._table.slots.values():
                slot.since += jumped
                slot.since_activity += jumped
                if slot.claim is not None and slot.claim.running is not None:
                    slot.claim.running.clock_was_set(jumped)

    def _roots(self) -> list[int]:
        """Process numbers of the keepers whose jobs run here."""
        runs = (slot.claim.running for slot in self._table.slots.values() if slot.claim is not None)
        return [run.pid for run in runs if run is not None and run.pid is not None]

    async def act(self, slot: Slot, verdict: OwnerVerdict) -> None:
        """Move a slot as was judged, and do what follows to its job."""
        assert verdict.event is not None
        claim = slot.claim
        action = self._table.apply_event(slot, verdict.event)
        if claim is None:
            self._offers.after_transition(slot, action)
            return
        if action is SlotAction.END_CLAIM:
            self._revoke(slot, OWNER_IS_BACK)
            return
        self._ads.touch(slot, now=True)
        running = claim.running
        reason = OWNER_IS_BACK
        if slot.waiting is not None and verdict.because != "SUSPEND":
            reason = slot.waiting.reason
        self._log.info(
            "a slot's policy",
            extra={
                "slot": slot.name,
                "does": verdict.event.value,
                "because": verdict.because,
                "job": running.name if running is not None else None,
            },
        )
        if verdict.event in (SlotEvent.RETIRE, SlotEvent.VACATE, SlotEvent.KILL):
            claim.retiring = True
        if running is None:
            return
        if action is SlotAction.SUSPEND_JOB:
            await running.suspend(reason.text)
        elif action is SlotAction.RESUME_JOB:
            await running.resume()
        elif action in (SlotAction.ASK_JOB, SlotAction.KILL_JOB):
            await running.stop(action is SlotAction.ASK_JOB, reason)


def _load_of(slot: Slot, loads: Mapping[int, float]) -> float:
    """The share of the machine's load that comes from the job in a slot (A5)."""
    running = slot.claim.running if slot.claim is not None else None
    return loads.get(running.pid, 0.0) if running is not None and running.pid is not None else 0.0
