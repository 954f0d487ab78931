"""The ads of a startd's slots, and when the collector gets them: at once, or gathered.

A claimed slot goes on advertising, so that it can be matched with a better job (D6, RL 4.3). Its ad says what it holds,
for whom, and how much this machine likes the job there. The private part has the id with which a preempting grant is
made. What somebody waits for (a slot that became free, an owner who is back) is sent at once. That a job on a kept
claim ends and the next one begins is sent once in a while: with short jobs it happens a thousand times a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from pool.classad import ClassAd
from pool.policy.flock.guests import guest_facts
from pool.policy.registry import difference
from pool.roles.startd.slots import dedicated
from pool.roles.startd.slots.records import Slot, SlotClaim, Wire, slot_wire
from pool.roles.startd.slots.table import SlotTable

#: Changes of slots that nobody waits for are told to the collector after this many seconds, together.
GATHER = 0.05
#: Slots that are told of before others get their turn on the loop.
AT_ONCE = 200
#: Seconds between two reports at least of the jobs that come and go on a kept claim.
FLIPS = 1.0


class CurrentFacts(Protocol):
    """The machine's facts.

    Attributes:
        wire: as they were read last; another object after each reading.
    """

    @property
    def wire(self) -> Wire: ...


class Preferences(Protocol):
    """The owner's expressions.

    Attributes:
        wire: what every slot's ad says of them.
    """

    @property
    def wire(self) -> Wire: ...

    def preference(self, slot: Slot, ad: Wire, job: ClassAd) -> tuple[float, bool]:
        """How much the machine likes a job, and whether the slot's faults are others than before."""


class AdPublisher(Protocol):
    """Sends ads to the collector (`pool.roles.advertise`)."""

    def publish(self, kind: str, name: str, ad: Wire, private: Wire | None = None) -> None: ...

    def withdraw(self, kind: str, name: str) -> None: ...


class SlotAds:
    """The ads of one machine's slots.

    Args:
        drained: what they say of a machine that is out of use.
        node, address: this node's.
    """

    def __init__(
        self,
        table: SlotTable,
        machine: CurrentFacts,
        policy: Preferences,
        drained: Callable[[], Wire],
        publisher: AdPublisher,
        *,
        node: str,
        address: str,
    ) -> None:
        self._table = table
        self._machine = machine
        self._policy = policy
        self._drained = drained
        self._publisher = publisher
        self._node = node
        self._address = address
        self._due: dict[str, float] = {}
        self._reported: dict[str, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        #: When it rings, by the loop's time. (uvloop's handle of what is due at once does not know.)
        self._rings = 0.0

    def wire_of(self, slot: Slot) -> Wire:
        """A slot's present ad; not to be changed."""
        wire = slot_wire(slot, self._machine.wire, self._node, self._address, self._policy.wire)
        wire |= self._drained()
        if slot.claim is not None:
            wire |= self._held(slot, slot.claim, wire)
        return wire

    def ad_of(self, slot: Slot) -> ClassAd:
        """A slot's present ad to evaluate in; not to be changed or kept: the next call changes what is different."""
        wire = self.wire_of(slot)
        if slot.read is None:
            ad = ClassAd.from_wire(wire)
        else:
            before, ad = slot.read
            changed, gone = difference(before, wire)
            for name in gone:
                ad.discard(name)
            ad.update_from_wire(changed)
        slot.read = (wire, ad)
        return ad

    def touch(self, slot: Slot, *, now: bool = False) -> None:
        """A slot has changed: tell the collector, at once or gathered with other changes."""
        if not self._table.has(slot):
            return
        self._table.news.set()
        if now:
            self._due.pop(slot.name, None)
            self._publish(slot)
        else:
            self._publish_at(slot, asyncio.get_running_loop().time() + GATHER)

    def publish_later(self, slot: Slot) -> None:
        """A job on a claim that is kept has begun or ended."""
        if self._table.has(slot):
            self._table.news.set()
            reported = self._reported.get(slot.name, -FLIPS)
            self._publish_at(slot, max(asyncio.get_running_loop().time() + GATHER, reported + FLIPS))

    def publish_all(self) -> None:
        """Something that all slots' ads say has changed. The first are told at once, the others as soon as may be."""
        now = asyncio.get_running_loop().time()
        self._due = dict.fromkeys(self._table.slots, now)
        self._gathered()

    def withdraw(self, slot: Slot) -> None:
        """There is no such slot any more."""
        self._due.pop(slot.name, None)
        self._reported.pop(slot.name, None)
        self._publisher.withdraw("Machine", self._name(slot))

    def _publish_at(self, slot: Slot, due: float) -> None:
        if due < self._due.get(slot.name, due + 1.0):
            self._due[slot.name] = due
            if self._timer is None or self._rings > due:
                self._wait_until(due)

    def _name(self, slot: Slot) -> str:
        return f"{slot.name}@{self._node}"

    def _wait_until(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings, self._timer = due, asyncio.get_running_loop().call_at(due, self._gathered)

    def _gathered(self) -> None:
        self._timer = None
        now = asyncio.get_running_loop().time()
        due_now = [name for name, due in self._due.items() if due <= now + GATHER]
        for name in due_now[:AT_ONCE]:
            del self._due[name]
            slot = self._table.slots.get(name)
            if slot is not None:
                self._publish(slot)
        if len(due_now) > AT_ONCE:
            self._wait_until(now)
        elif self._due:
            self._wait_until(min(self._due.values()))

    def _publish(self, slot: Slot) -> None:
        self._reported[slot.name] = asyncio.get_running_loop().time()
        private = {"ClaimId": slot.key} if slot.grantable else None
        self._publisher.publish("Machine", self._name(slot), self.wire_of(slot), private)

    def _held(self, slot: Slot, claim: SlotClaim, wire: Wire) -> Wire:
        """The attributes that the job in a claimed slot adds to the slot's ad."""
        held: Wire = {"CurrentRank": self._rank(slot, claim, wire)}
        limits = claim.ad_wire.get("ConcurrencyLimits")
        if isinstance(limits, list):
            limits = claim.ad.value("ConcurrencyLimits", None, target=ClassAd.from_wire(wire))
        if isinstance(limits, str):
            held["ConcurrencyLimits"] = limits
        if isinstance(group := claim.ad_wire.get("AcctGroup"), str):
            held["RemoteGroup"] = group
        if claim.ad_wire.get("NiceUser") is True:
            held["RemoteNiceUser"] = True
        return held | guest_facts(claim.ad_wire)

    def _rank(self, slot: Slot, claim: SlotClaim, wire: Wire) -> float:
        """How much the machine likes the claim's job; worked out once for each job and each look at the machine."""
        job, machine, found = claim.ranked
        if job is not claim.ad_wire or machine is not self._machine.wire:
            found, changed = self._policy.preference(slot, wire, dedicated.ranked_ad(claim))
            claim.ranked = (claim.ad_wire, self._machine.wire, found)
            if changed:
                self.touch(slot)
        return found
