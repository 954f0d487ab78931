"""The schedd's own clock over its claims: which have not been renewed in time, and which leases have ended for sure.

A connection that is there proves nothing: a startd that stood still, or a link that lost everything for a while, ends
leases and no connections. So each claim is looked at by time: when renewals are missing its startd is asked, and when
its lease has ended the claim has.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from pool.roles.schedd.core.claims import HeldClaim

#: A startd renews a lease three times within its length; it is asked when this part of it is left.
ASK_WITH_LEFT = 1 / 3


class LeaseWatch:
    """The times of one schedd's claims that are not lost; those that are have somebody who reaches for them.

    Args:
        unheard: called with a claim whose renewals are missing.
        ended: called with one whose lease has ended.
    """

    def __init__(self, unheard: Callable[[HeldClaim], None], ended: Callable[[HeldClaim], None]) -> None:
        self._unheard = unheard
        self._ended = ended
        self._order = itertools.count()
        self._due: list[tuple[float, int, HeldClaim]] = []
        self._sooner = asyncio.Event()

    def add(self, claim: HeldClaim) -> None:
        """Watch over a claim until it is forgotten, or lost."""
        if claim.watched:
            return
        claim.watched = True
        due = _next_look(claim)
        if not self._due or due < self._due[0][0]:
            self._sooner.set()
        heapq.heappush(self._due, (due, next(self._order), claim))

    async def run(self) -> None:
        """Look at each claim when it is time, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._sooner.clear()
            try:
                async with asyncio.timeout_at(self._due[0][0] if self._due else None):
                    await self._sooner.wait()
            except TimeoutError:
                pass
            while self._due and self._due[0][0] <= loop.time():
                _, _, claim = heapq.heappop(self._due)
                claim.watched = False
                self._check_lease(claim, loop.time())

    def _check_lease(self, claim: HeldClaim, now: float) -> None:
        if claim.lost or claim.over:
            return
        if now >= claim.until:
            self._ended(claim)
        elif now >= _next_look(claim):
            self._unheard(claim)
        else:
            self.add(claim)


def _next_look(claim: HeldClaim) -> float:
    return claim.until - claim.lease * ASK_WITH_LEFT
