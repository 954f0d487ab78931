"""Leases: how long a claim may live, and its end when nobody holds it any more (start contract, rule 2).

This side asks for each renewal and counts from when it asked, so that its lease always ends before the schedd's.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from typing import Protocol

from pool.errors import PoolError
from pool.jobs.reasons import Evict, Reason
from pool.policy.slots import SlotEvent
from pool.roles.base import Spawn
from pool.roles.startd.slots.ads import SlotAds
from pool.roles.startd.slots.records import Slot, SlotClaim
from pool.roles.startd.slots.table import SlotTable
from pool.wire.connection import Connection

#: A lease is renewed this many times within its length.
RENEWALS = 3
#: Seconds for which a claim without a job is not renewed: its schedd, which may be in another pool, hears of it first.
UNKNOWN = 5.0
#: An idle claim is kept for so many seconds after the connection to its schedd has ended.
GRACE = 10.0
#: A keeper that has not ended its job so many seconds after the lease is killed itself; the schedd waits two.
KILLED_IN = 0.5
LEASE_OVER = Reason(Evict.LEASE_ENDED, "the claim's lease has ended")


class ClaimEnder(Protocol):
    """Ends claims (`pool.roles.startd.claims.claim_ends`)."""

    def drop(self, slot: Slot) -> None: ...

    async def report_revoked(self, claim: SlotClaim, reason: Reason) -> None: ...


class ClaimLeases:
    """The leases of one startd's claims."""

    def __init__(self, table: SlotTable, ads: SlotAds, ends: ClaimEnder, spawn: Spawn, log: logging.Logger) -> None:
        self._table = table
        self._ads = ads
        self._ends = ends
        self._spawn = spawn
        self._log = log
        self._links: set[Connection] = set()
        self._due = 0.0
        self._sooner = asyncio.Event()

    def watch(self, link: Connection) -> None:
        """See to the claims that come over a connection when it ends."""
        if link not in self._links:
            self._links.add(link)
            link.closed.add_done_callback(lambda _: self._ended(link))

    def _ended(self, link: Connection) -> None:
        self._links.discard(link)
        asyncio.get_running_loop().call_later(GRACE, self._orphaned_claims, link)

    def _orphaned_claims(self, link: Connection) -> None:
        """Idle claims whose schedd has not come back: it may never have learned that it has them."""
        for slot in list(self._table.claims.values()):
            if slot.claim is not None and slot.claim.link is link and slot.claim.running is None:
                self._ends.drop(slot)

    def claim_made(self, claim: SlotClaim) -> None:
        """A claim was made; its lease may be shorter than all before it."""
        if asyncio.get_running_loop().time() + claim.lease / RENEWALS < self._due:
            self._sooner.set()

    async def run(self) -> None:
        """Have leases renewed, and end those that are over, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._next(loop)
            by_link: dict[Connection, list[Slot]] = defaultdict(list)
            now = loop.time()
            for slot in list(self._table.claims.values()):
                claim = slot.claim
                if claim is None or claim.over:
                    continue
                if now >= claim.lease_end:
                    self._spawn(self._lease_over(slot, claim), "lease", alone=True)
                elif claim.link is not None and not claim.link.closed.done() and not self._is_new(claim, now):
                    by_link[claim.link].append(slot)
            for link, slots in by_link.items():
                self._spawn(self.renew(link, slots), "renew", alone=True)

    @staticmethod
    def _is_new(claim: SlotClaim, now: float) -> bool:
        """Whether the schedd may not know of the claim yet: the answer to another pool's takes another way."""
        return claim.running is None and now - claim.born < min(UNKNOWN, claim.lease / RENEWALS)

    async def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sleep until the shortest lease wants to be renewed, one that is made meanwhile included, or one ends.

        Without a claim there is none to renew: the next that is made ends the sleep.
        """
        began = loop.time()
        while True:
            # A claim that was made since is to be renewed no sooner for that this has slept without one.
            renewals = [
                max(began, slot.claim.born) + max(slot.claim.lease / RENEWALS, 0.2)
                for slot in self._table.claims.values()
                if slot.claim
            ]
            ends = [slot.claim.lease_end for slot in self._table.claims.values() if slot.claim and not slot.claim.over]
            self._due = min([math.inf, *renewals, *(max(end, began + 0.05) for end in ends)])
            self._sooner.clear()
            try:
                async with asyncio.timeout_at(self._due if self._due < math.inf else None):
                    await self._sooner.wait()
            except TimeoutError:
                return

    async def renew(self, link: Connection, slots: list[Slot]) -> None:
        """Ask a schedd for more time for its claims on these slots."""
        asked = asyncio.get_running_loop().time()
        claims = {slot.claim.id: slot for slot in slots if slot.claim is not None}
        shortest = min((slot.claim.lease for slot in slots if slot.claim is not None), default=1.0)
        try:
            answer = await link.call("schedd.renew", {"claims": list(claims)}, timeout=max(shortest / RENEWALS, 1.0))
        except (PoolError, OSError, TimeoutError):
            return
        gone = set(answer["gone"])
        for number, slot in claims.items():
            claim = slot.claim
            if claim is None or claim.id != number or claim.over:
                continue
            if number in gone:
                await self.abandon_claim(slot)
                continue
            running = claim.running
            claim.asked = max(claim.asked, asked)
            if running is not None:
                running.renew(claim.lease_end - asyncio.get_running_loop().time())

    async def break_links(self) -> None:
        """End the connections of all claims: the role fails, and the next one knows none of them. Their schedds hear of
        it this way, and reach for their claims again."""
        for link in list(self._links):
            await link.close()

    async def _lease_over(self, slot: Slot, claim: SlotClaim) -> None:
        if slot.claim is not claim or claim.over:
            return
        said = {"slot": slot.name, "of": claim.node}
        self._log.warning("a lease has ended: the schedd was not heard of", extra=said)
        self._spawn(self._ends.report_revoked(claim, LEASE_OVER), "revoke", alone=True)
        running = claim.running
        keeper = running.starter.keeper if running is not None and running.starter is not None else None
        await self.abandon_claim(slot)
        if keeper is not None:
            # It has ended the job by itself, or stands still: the schedd's own lease ends in a moment.
            await asyncio.wait([keeper.ended], timeout=KILLED_IN)
            if not keeper.ended.done():
                keeper.end_by_force()

    async def abandon_claim(self, slot: Slot) -> None:
        """Nobody holds the claim on a slot any more: its job is killed, and the slot is free when that is dead."""
        claim = slot.claim
        if claim is None or claim.over:
            return
        running = claim.running
        if running is None or running.ended:
            if running is not None:
                await running.abandon()
            if slot.claim is claim:
                self._ends.drop(slot)
            return
        claim.over = claim.retiring = True
        if slot.occupied:
            self._table.apply_event(slot, SlotEvent.RELEASE)
        self._ads.touch(slot, now=True)
        await running.abandon()
