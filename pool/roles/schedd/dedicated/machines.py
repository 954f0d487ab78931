"""The machines that a dedicated scheduler manages: what the collector says of them, and the scheduler's own claims.

The collector pushes the ads of these machines alone, for as long as there are dedicated jobs (WR 3.1, 3.2). An ad
counts for as long as the collector would have kept it. Claims need no collector: a claimed machine is known by its
claim.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pool.classad import ClassAd
from pool.outside import OutsideWorld
from pool.policy.carve import CarveRefusal, demand
from pool.policy.dedicated import (
    DedicatedMachine,
    MachineStanding,
    MachineState,
    is_worth,
    lender_of,
    promised_until,
    read_standing,
    standing_for,
)
from pool.policy.managed import HIERARCHY, managers_of, rank_of
from pool.policy.matching import SlotIndex
from pool.roles.links import Links
from pool.roles.schedd.core.claims import TROUBLE, HeldClaim
from pool.wire import RemoteError

#: Seconds until the collector is tried again, the first time and at most.
FIRST_RETRY, LONGEST_RETRY = 0.1, 10.0
#: Between the name of a partitionable slot and the number of a part of it that could be carved.
CARVED = "#"
#: Parts of one partitionable slot at most.
MOST_CARVED = 1024

#: Slots whose jobs leave already.
_LEAVING = frozenset({"Preempting"})


def is_held(claim: HeldClaim) -> bool:
    """Whether a claim is the dedicated scheduler's own."""
    return claim.dedicated


@dataclass(frozen=True, slots=True)
class Lent:
    """The scheduler's dealings with a claim whose job is not its own.

    Attributes:
        reclaimed: it has been asked to leave.
    """

    reclaimed: bool


@dataclass(frozen=True, slots=True)
class MachineLoan:
    """A machine that one dedicated scheduler lends to another.

    Attributes:
        slot: the machine.
        lender, borrower: their submitters; the borrower is "" while nobody has it.
        until: wall time.
        gang: what runs there cannot be saved: the lender does not get it sooner.
    """

    slot: str
    lender: str
    borrower: str
    until: float
    gang: bool = False


@dataclass(slots=True)
class StandingMachines:
    """The machines that no dedicated job of this scheduler's runs on.

    Attributes:
        machines: those that are being claimed in front.
        lent: those of them that a lower scheduler has, on this one's promise.
    """

    machines: list[DedicatedMachine] = field(default_factory=list)
    lent: dict[str, MachineLoan] = field(default_factory=dict)


class ManagedMachines:
    """The machines of one dedicated scheduler.

    Args:
        submitter: the scheduler's name.
        changed: called when something is new.
        lifetime: seconds for which the collector keeps an ad.

    Attributes:
        index: their ads, as a matchmaker sees them.
    """

    def __init__(
        self,
        submitter: str,
        links: Links,
        collector: str,
        outside: OutsideWorld,
        log: logging.Logger,
        changed: Callable[[], None],
        lifetime: Callable[[], float],
    ) -> None:
        self.index = SlotIndex()
        self._submitter = submitter
        self._links = links
        self._collector = collector
        self._outside = outside
        self._log = log
        self._changed = changed
        self._lifetime = lifetime
        self._wanted = asyncio.Event()
        self._heard = asyncio.Event()
        self._deaf_since: float | None = None
        self._ranks: dict[str, tuple[float, float]] = {}
        #: Where machines stand that name several dedicated schedulers.
        self._hierarchy: dict[str, MachineStanding] = {}

    # -- hearing -----------------------------------------------------------------------------------------

    def set_wanted(self, wanted: bool) -> None:
        """Whether there are dedicated jobs at all: without, nothing is asked of the collector (WR 3.1)."""
        if wanted:
            self._wanted.set()
        else:
            self._wanted.clear()

    @property
    def known(self) -> bool:
        """Whether the collector has been heard since it was asked first."""
        return self._heard.is_set()

    async def wait(self) -> None:
        """Until the collector has been heard."""
        await self._heard.wait()

    async def run(self) -> None:
        """Hear the collector while there are dedicated jobs, until cancelled."""
        retry = FIRST_RETRY
        while True:
            await self._wanted.wait()
            try:
                link = await self._links.connect(self._collector)
                asked = {"types": ["Machine"], "managed_by": self._submitter}
                async with await link.stream("collector.watch", asked) as stream:
                    fresh = True
                    async for items in stream:
                        if fresh:
                            self.index.clear()
                            self._ranks.clear()
                            self._hierarchy.clear()
                            fresh = False
                        retry, self._deaf_since = FIRST_RETRY, None
                        self.update_ads(items)
                        self._changed()
                        if not self._wanted.is_set():
                            break
            except (*TROUBLE, RemoteError) as error:
                self._log.info("the collector is out of reach", extra={"error": str(error)})
            if not self._wanted.is_set():
                self.forget()
                continue
            if self._deaf_since is None:
                self._deaf_since = asyncio.get_running_loop().time()
            await asyncio.sleep(retry * (0.5 + self._outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    def forget(self) -> None:
        """There are no dedicated jobs any more."""
        self.index.clear()
        self._ranks.clear()
        self._hierarchy.clear()
        self._heard.clear()
        self._deaf_since = None

    def update_ads(self, items: Iterable[Sequence[Any]]) -> None:
        for _, name, wire, *_ in items:
            if wire is None:
                self.index.drop(name)
                self._ranks.pop(name, None)
                self._hierarchy.pop(name, None)
                continue
            ad = ClassAd.from_wire(wire)
            self.index.set_ad(name, ad)
            current = ad.value("CurrentRank", 0.0)
            current = float(current) if isinstance(current, (int, float)) else math.inf
            managers = managers_of(wire)
            self._ranks[name] = (rank_of(self._submitter, managers), current)
            if len(managers) > 1 and self._submitter in managers:
                self._hierarchy[name] = read_standing(wire)
            else:
                self._hierarchy.pop(name, None)
        self._heard.set()

    # -- where they stand --------------------------------------------------------------------------------

    def take_in_claims(self, claims: Iterable[HeldClaim]) -> None:
        """Have machines that are claimed matched by, though no collector tells of them."""
        for claim in claims:
            if self.index.place_of(claim.slot) is None and len(claim.ad):
                self.index.set_ad(claim.slot, claim.ad)

    def standing(
        self,
        claims: Mapping[str, HeldClaim],
        lent: Mapping[HeldClaim, Lent],
        idle: Mapping[HeldClaim, float],
        coming: Mapping[str, int],
        wish: ClassAd | None,
        now: float,
        lead: float,
    ) -> Generator[None, None, StandingMachines]:
        """Every machine that no dedicated job runs on; in steps.

        Args:
            claims: the scheduler's own, by their slots.
            lent: those of them that have been lent.
            idle: since when those without a job have been, wall seconds.
            coming: how many claims on each slot are on their way.
            wish: what a job asks for that the parts of partitionable slots are counted by; None for none.
            now: wall time.
            lead: seconds that it takes to give a machine back.
        """
        found = StandingMachines()
        first: list[DedicatedMachine] = []
        others: list[DedicatedMachine] = []
        for slot, claim in claims.items():
            state = self._claimed(claim, lent.get(claim))
            if state is not None:
                until = self.until(claim, now)
                if claim.job is None and not is_worth(until, now, lead):
                    state = MachineState.AWAY  # it is given back
                others.append(DedicatedMachine(slot, "", state, idle.get(claim, 0.0), until))
        if self.current:
            for count, (name, ad) in enumerate(list(self.index.ads.items())):
                if not count % 100:
                    yield
                if name in claims:
                    continue
                if ad.held("PartitionableSlot") is True:
                    number = min(_carvable(ad, wish), MOST_CARVED) if wish is not None else 0
                    state, until = self._unclaimed(name, ad, found, now, lead)
                    made = [DedicatedMachine(f"{name}{CARVED}{n}", "", state, until=until) for n in range(number)]
                    on_the_way = coming.get(name, 0)
                    first += made[:on_the_way]
                    others += made[on_the_way:]
                    continue
                state, until = self._unclaimed(name, ad, found, now, lead)
                if coming.get(name):
                    first.append(DedicatedMachine(name, "", MachineState.UNCLAIMED, until=until))
                else:
                    others.append(DedicatedMachine(name, "", state, until=until))
        found.machines = first + others
        return found

    def until(self, claim: HeldClaim, now: float) -> float:
        """Until when a claimed machine is this scheduler's: `DedicatedMachine.until`."""
        standing = self._hierarchy.get(claim.slot)
        if claim.lent_until != math.inf:
            return claim.lent_until
        if standing is None:
            standing = read_standing(claim.ad.to_wire()) if claim.ad.value(HIERARCHY, None) else None
        if standing is None or self._submitter not in standing.schedulers:
            return math.inf
        return promised_until(standing, self._submitter, now) if standing.schedulers[0] != self._submitter else math.inf

    def loans(self, claims: Iterable[HeldClaim], now: float) -> list[MachineLoan]:
        """The machines that this scheduler lends to others, or has from them, until a time."""
        found: list[MachineLoan] = []
        for name, standing in self._hierarchy.items():
            if (until := standing.loans.get(self._submitter, 0.0)) > now and standing.holder != self._submitter:
                found.append(MachineLoan(name, self._submitter, standing.holder, until, not standing.saveable))
        for claim in claims:
            if now < claim.lent_until < math.inf:
                known = self._hierarchy.get(claim.slot)
                lender = lender_of(known, self._submitter) if known is not None else ""
                found.append(MachineLoan(claim.slot, lender, self._submitter, claim.lent_until))
        return sorted(found, key=lambda one: (one.until, one.slot))

    @property
    def current(self) -> bool:
        """Whether what the collector said last still counts."""
        silent = self._deaf_since
        return silent is None or asyncio.get_running_loop().time() - silent < self._lifetime()

    @staticmethod
    def _claimed(claim: HeldClaim, lent: Lent | None) -> MachineState | None:
        if claim.lost:
            return MachineState.AWAY if claim.job is None or lent is not None else None
        if lent is not None:
            return MachineState.UNCLAIMED if lent.reclaimed else MachineState.OCCUPIED
        return MachineState.CLAIMED_IDLE if claim.job is None else None

    def _unclaimed(
        self, name: str, ad: ClassAd, found: StandingMachines, now: float, lead: float
    ) -> tuple[MachineState, float]:
        """Where a machine stands that this scheduler has not claimed, and until when it could have it."""
        state = self._state(name, ad)
        standing = self._hierarchy.get(name)
        if standing is None or state is MachineState.AWAY:
            return state, math.inf
        seen = standing_for(standing, self._submitter, now)
        if seen is None:
            return state, math.inf
        by_loans, until = seen
        promise = standing.loans.get(self._submitter, math.inf)
        if by_loans is MachineState.AWAY and now < promise < math.inf:
            found.lent[name] = MachineLoan(name, self._submitter, standing.holder, promise, True)
            return MachineState.AWAY, math.inf
        return (state, until) if is_worth(until, now, lead) else (MachineState.AWAY, until)

    def _state(self, name: str, ad: ClassAd) -> MachineState:
        state = ad.value("State", "")
        if state in ("Unclaimed", "Matched") or state in _LEAVING:
            return MachineState.UNCLAIMED
        if state != "Claimed":
            return MachineState.AWAY  # drained, or its owner lets nobody in
        ours, current = self._ranks.get(name, (0.0, math.inf))
        return MachineState.OCCUPIED if current < ours else MachineState.AWAY


def slot_of(machine: str) -> str:
    """The slot that a machine's name is of: a part of a partitionable one has a number behind it."""
    return machine.partition(CARVED)[0]


def _carvable(slot: ClassAd, wish: ClassAd) -> int:
    """How many parts of what a job asks for a partitionable slot has left."""
    wanted = demand(slot, wish)
    if isinstance(wanted, CarveRefusal):
        return 0
    counts = []
    for name, amount in wanted.items():
        free = slot.value(name, 0)
        if amount > 0:
            counts.append(int(free // amount) if isinstance(free, (int, float)) else 0)
    return min(counts, default=0)
