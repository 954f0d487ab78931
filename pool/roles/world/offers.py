"""The idle machines that one other pool is shown: each change, or, where there are many, the kinds that changed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterable
from typing import Any

from pool.policy.flock.kinds import MachineKinds
from pool.policy.flock.limits import ANY_MACHINE, MachineLimits
from pool.policy.flock.shown import gives_way, shown_to_creditor, with_condition
from pool.roles.cooperative import WorkTurns, run_in_slices
from pool.wire import Connection

Wire = dict[str, Any]
#: Seconds for which changes of machines gather before another pool is told: of single machines, and of kinds.
GATHER, GATHER_KINDS = 0.01, 0.1
#: No division into kinds may take this pool more seconds of its loop; slices of some milliseconds.
LONGEST = 120.0
#: Of the time that passes, one part in so many may go into dividing machines anew because the pool tells other names,
#: and it waits so many seconds for that at most.
SHARE, LONGEST_PAUSE = 20.0, 600.0


class Borrower:
    """A pool that asks us for machines, while it is connected.

    Args:
        lendable: the machines that can be lent now.
        references: names that its expressions read in machines, as far as it has said.
        clock: seconds that pass; the loop's where none is given.

    Attributes:
        creditor: whether it is shown machines that run jobs of ours.
        let_in: whether it is shown any.
        limits: of the machines that it is shown.
    """

    def __init__(
        self,
        pool: str,
        link: Connection,
        lendable: dict[str, Wire],
        references: Iterable[str],
        turns: WorkTurns,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self.pool = pool
        self.link = link
        self.wake = asyncio.Event()
        self.creditor = False
        self.let_in = False
        self.limits = ANY_MACHINE
        self._turns = turns
        self._changes: dict[str, Wire | None] = dict(lendable)
        self._shown: dict[str, Wire] = {}
        self._told: set[str] = set()
        self._references = frozenset(references)
        self._kinds: MachineKinds | None = None
        self._clock = asyncio.get_running_loop().time if clock is None else clock
        self._heard_from = 0.0
        self._later: asyncio.TimerHandle | None = None
        self.wake.set()

    def changed(self, slot: str, ad: Wire | None) -> None:
        """A machine that can be lent has changed, or cannot be lent any more."""
        self._changes[slot] = ad
        self.wake.set()

    def refer(self, references: Iterable[str]) -> None:
        """Its expressions read these names in machines from now on. They count at once, unless it has told others
        before and much work came of these.
        """
        self._references = frozenset(references)
        self.wake.set()

    @property
    def gather(self) -> float:
        """Seconds for which changes gather."""
        return GATHER if self._kinds is None else GATHER_KINDS

    @property
    def summed(self) -> bool:
        """Whether it is shown kinds of machines."""
        return self._kinds is not None

    async def offers(
        self,
        *,
        lets_in: bool,
        creditor: bool,
        limits: MachineLimits,
        lendable: Callable[[], dict[str, Wire]],
        listed: int,
    ) -> list[list[Any]]:
        """The changes since the last call, as [name, ad or None].

        Args:
            lets_in: whether the agreement lets its jobs run here now; if not, all that it was shown is withdrawn.
            creditor: whether we owe it machine time, so that it may ask for machines which run jobs of ours.
            limits: which machines it may have, and when.
            lendable: all machines that can be lent now; asked where one of these three has changed.
            listed: a pool that may have more machines is shown their kinds, for as long as it stays connected.
        """
        if (lets_in and not self.let_in) or (creditor, limits) != (self.creditor, self.limits):
            self._changes = {**lendable(), **self._changes}
        self.let_in, self.creditor, self.limits = lets_in, creditor, limits
        changes, self._changes = self._changes, {}
        if lets_in:
            items = await self._news({slot: _offer(ad, creditor, limits) for slot, ad in changes.items()}, listed)
        else:
            items = [[name, None] for name in self._told]
            self._shown, self._kinds = {}, None
        for name, ad in items:
            (self._told.discard if ad is None else self._told.add)(name)
        return items

    async def _news(self, offers: dict[str, Wire | None], listed: int) -> list[list[Any]]:
        items: list[list[Any]] = []
        if self._kinds is None:
            items = [[slot, ad] for slot, ad in offers.items() if ad is not None or slot in self._told]
            for slot, ad in offers.items():
                if ad is None:
                    self._shown.pop(slot, None)
                else:
                    self._shown[slot] = ad
            if len(self._shown) <= listed:
                return items
            items = [[slot, None] for slot in self._told]
            self._kinds, offers, self._shown = MachineKinds(self._references), dict(self._shown), {}
        began = self._clock()
        if (pause := self._heard_from - began) <= 0:
            anew = self._kinds.refer(self._references)
        else:
            anew = False
            self._wake_later(pause)
        await run_in_slices(self._sum_up(self._kinds, offers, anew), "sum up machines", self._turns, "", LONGEST)
        if anew:
            ended = self._clock()
            self._heard_from = ended + min(SHARE * (ended - began), LONGEST_PAUSE)
        return items + [[name, ad] for name, ad in self._kinds.take_changes().items()]

    def _wake_later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._later is None or self._later.when() <= loop.time():
            self._later = loop.call_later(seconds, self.wake.set)

    def _sum_up(self, kinds: MachineKinds, offers: dict[str, Wire | None], anew: bool) -> Generator[None, None, None]:
        for slot, ad in offers.items():
            kinds.set_ad(slot, ad)
            yield
        if anew or kinds.crowded:
            yield from kinds.regroup()


def _offer(ad: Wire | None, creditor: bool, limits: MachineLimits) -> Wire | None:
    """A machine as a pool is offered it, within its limits: one that runs a job of ours only where we owe that pool
    machine time."""
    if ad is None or not limits.lends(ad):
        return None
    ad = with_condition(ad, limits.of_machine) if limits.hours else ad
    if not gives_way(ad):
        return ad
    return shown_to_creditor(ad) if creditor else None
