"""Matches on their way: first a grant to the startd, then the slots to claim to the schedd.

An answer that a dead startd or schedd fails to give costs the pool that match only: a grant lapses by itself, and the
next cycle makes another match. A cycle waits a moment for startds and schedds that hang, and goes on without them:
their slots count as given away meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from pool.policy.flock.shown import AS_PRIVATE, AS_SCHEDD, AS_STARTD
from pool.policy.negotiation import Match, Outcome
from pool.policy.why.rejections import RejectionNotices, rejection_text
from pool.roles.base import Spawn
from pool.roles.links import Links
from pool.roles.negotiator.pool_view import PoolView
from pool.roles.negotiator.request_collection import MOMENT, PATIENCE, TROUBLE, WORLD_MOMENT
from pool.wire import Connection

#: Rejected requests that a schedd is notified of at once.
MOST_REJECTIONS = 1000
#: Matches that one startd is notified of at a time.
TOGETHER = 100


def _is_world(address: str) -> bool:
    """Whether machines or jobs of other pools are behind an address."""
    return address.rpartition("#")[2] in (AS_STARTD, AS_SCHEDD, AS_PRIVATE)


class MatchDelivery:
    """Tells the two sides of matches."""

    def __init__(self, links: Links, pool_view: PoolView, log: logging.Logger, spawn: Spawn) -> None:
        self._spawn = spawn
        self._links = links
        self._pool_view = pool_view
        self._log = log
        self._news = RejectionNotices()

    async def matches(self, matches: Iterable[tuple[Match, str]]) -> None:
        """Tell of all matches, each with the name under which its submitter advertises."""
        by_startd: dict[str, list[tuple[Match, str]]] = defaultdict(list)
        for match, submitter in matches:
            slot = self._pool_view.picture.ad(match.slot)
            if slot is not None and submitter in self._pool_view.submitters:
                by_startd[str(slot.value("StartdAddress", ""))].append((match, submitter))
        worlds = [
            self._spawn(self._startd_of_many(address, own), "deliver to a world", alone=True)
            for address, own in by_startd.items()
            if _is_world(address)
        ]
        startds = [
            self._spawn(self._startd_of_many(address, own), "deliver matches", alone=True)
            for address, own in by_startd.items()
            if not _is_world(address)
        ]
        if startds:
            await asyncio.wait(startds, timeout=MOMENT)
        if worlds:
            await asyncio.wait(worlds, timeout=WORLD_MOMENT)

    async def rejections(self, submitter: str, when: float, outcome: Outcome, named: Iterable[str]) -> None:
        """Tell a schedd what a cycle left without a machine, and why."""
        ad = self._pool_view.submitters.get(submitter)
        found = {
            number: rejection_text(rejection)
            for name in named
            for number, rejection in outcome.rejections.get(name, {}).items()
        }
        rejected = self._news.notices_for(submitter, found, when)
        if ad is None or not rejected:
            return
        address = str(ad.value("ScheddAddress", ""))
        params = {"submitter": submitter, "time": when, "rejections": rejected[:MOST_REJECTIONS]}
        told = self._spawn(self._send_rejections(address, submitter, params), "tell why", alone=True)
        if not _is_world(address):
            await asyncio.wait([told], timeout=MOMENT)

    async def _send_rejections(self, address: str, submitter: str, params: dict[str, Any]) -> None:
        try:
            link = await self._connect(address)
            await link.call("schedd.rejected", params, timeout=PATIENCE)
        except TROUBLE as error:
            self._news.forget(submitter)
            self._log.info("a schedd does not hear why its jobs wait", extra={"to": submitter, "error": str(error)})

    async def _startd_of_many(self, address: str, matches: list[tuple[Match, str]]) -> None:
        """Tell of the matches of one startd, some at a time: either side does all that it hears of without a pause."""
        for start in range(0, len(matches), TOGETHER):
            await self._startd(address, matches[start : start + TOGETHER])

    async def _startd(self, address: str, matches: list[tuple[Match, str]]) -> None:
        grants = [self._grant(match, submitter) for match, submitter in matches]
        try:
            link = await self._connect(address)
            answer = await link.call("startd.matched", {"grants": grants}, timeout=PATIENCE)
            accepted = {place for place in answer["accepted"] if isinstance(place, int)}
        except (*TROUBLE, KeyError, TypeError) as error:
            self._log.warning("a startd does not answer", extra={"address": address, "error": str(error)})
            return
        by_submitter: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for place, ((match, submitter), grant) in enumerate(zip(matches, grants, strict=True)):
            slot = self._pool_view.picture.ad(match.slot)
            if place in accepted and slot is not None:
                order = {"request": match.request, "startd": address, "ad": slot.to_wire(), **grant}
                if parts := order.pop("leaving", None):
                    order["freed"] = parts[0]["slot"]
                by_submitter[submitter].append(order)
        await asyncio.gather(*(self._schedd(submitter, own) for submitter, own in by_submitter.items()))

    async def _schedd(self, submitter: str, orders: list[dict[str, Any]]) -> None:
        ad = self._pool_view.submitters.get(submitter)
        if ad is None:
            return
        address = str(ad.value("ScheddAddress", ""))
        if not _is_world(address):
            await self._send_matches(address, submitter, orders)
            return
        told = self._spawn(self._send_matches(address, submitter, orders), "deliver to a world", alone=True)
        await asyncio.wait([told], timeout=WORLD_MOMENT)

    def _grant(self, match: Match, submitter: str) -> dict[str, Any]:
        ad = self._pool_view.submitters[submitter]
        grant: dict[str, Any] = {
            "slot": match.slot,
            "claim": self._pool_view.key(match.slot),
            "count": match.count,
            "submitter": submitter,
            "schedd": ad.value("ScheddName", ""),
            "node": ad.value("Node", ""),
        }
        if match.preempts is not None:
            grant |= {"preempt": True, "why": match.preempts}
        if match.leaving:
            grant["leaving"] = [{"slot": name, "claim": self._pool_view.key(name)} for name in match.leaving]
        return grant

    async def _send_matches(self, address: str, submitter: str, orders: list[dict[str, Any]]) -> None:
        try:
            link = await self._connect(address)
            await link.call("schedd.matched", {"matches": orders}, timeout=PATIENCE)
        except TROUBLE as error:
            self._log.warning("a schedd does not take its matches", extra={"submitter": submitter, "error": str(error)})

    async def _connect(self, address: str) -> Connection:
        async with asyncio.timeout(PATIENCE):
            return await self._links.connect(address)
