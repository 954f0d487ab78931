"""The negotiator: matches submitters' requests with free slots, when something changed (A7, EV 3.5, RL 3.2.2).

It holds the collector's picture by watching it, so that nothing is asked for twice. A cycle begins a short settling
time after a submitter has idle jobs and a slot is free, and at least every five minutes. A match is told to the
startd first (whom to let in, with which claim id, how often), then to the schedd, which claims the slot by itself.
What a dead startd or schedd fails to answer costs the pool that match only; the next cycle makes another.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, ClassVar

from pool.classad import ClassAd
from pool.policy.matching import Picture
from pool.policy.negotiation import EqualTurns, Match, Outcome, Request, Terms, cycle
from pool.policy.why.findings import Cycle, Finding
from pool.policy.why.machine import Wish
from pool.roles.base import Role
from pool.roles.explaining import Explaining
from pool.wire import Call, Connection, ConnectionLost, DeadlineExceeded, RemoteError, Right, method
from pool.wire.shapes import TEXTS

FIRST_RETRY = 0.05
LONGEST_RETRY = 10.0
#: A schedd or startd that does not answer within this many seconds is left out of the cycle.
PATIENCE = 10.0
#: Jobs asked for in one cycle from one submitter.
MOST_REQUESTS = 100_000
#: Trouble that a peer can cause and that must not end a cycle.
TROUBLE = (ConnectionLost, DeadlineExceeded, RemoteError, OSError, TimeoutError)


class Negotiator(Role):
    """The negotiator role."""

    name: ClassVar[str] = "negotiator"

    async def start(self) -> None:
        self._picture = Picture()
        self._claims: dict[str, dict[str, Any]] = {}
        self._free: set[str] = set()
        self._submitters: dict[str, ClassAd] = {}
        self._wake = asyncio.Event()
        self._cycles = 0
        self._last: tuple[float, dict[str, list[Request]], Outcome] | None = None
        self._explaining = Explaining(self, self.outside)
        self.spawn(self._watch(), "watch")
        self.spawn(self._cycle_when_due(), "cycles")

    # -- why ---------------------------------------------------------------------------------------------

    @method(Right.READ, takes={"request": dict})
    async def why(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Why a request has no machine: {request: {ad, submitter, number}} -> {findings, time}"""
        return await self._explaining.job(params)

    @method(Right.READ, takes={"slots": TEXTS})
    async def why_machine(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """What the pool's idle jobs are to slots: {slots: names} -> {slots: {name: findings}, time}"""
        return await self._explaining.machine(params)

    @property
    def slots(self) -> Mapping[str, ClassAd]:
        """The ads of all slots, as advertised."""
        return self._picture.ads

    def wishes(self) -> list[Wish]:
        """The kinds of idle jobs that were asked for last."""
        if self._last is None:
            return []
        _, requests, outcome = self._last
        return [
            Wish(request.ad, outcome.unmatched.get(submitter, {}).get(request.number, 0))
            for submitter, own in requests.items()
            for request in own
            if outcome.unmatched.get(submitter, {}).get(request.number)
        ]

    def situation(self, submitter: str, request: int, ad: ClassAd) -> list[Finding]:
        """What else is known of a request."""
        if self._last is None:
            return []
        when, requests, outcome = self._last
        asked = next((one for one in requests.get(submitter, ()) if one.number == request), None)
        left = outcome.unmatched.get(submitter, {}).get(request, 0)
        every = self.settings.number("NEGOTIATION_INTERVAL")
        return [Cycle(when, asked is not None, asked.count - left if asked else 0, "", every)]

    # -- the picture -------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        retry = FIRST_RETRY
        while True:
            try:
                link = await self.given.links.to(self.given.collector)
                stream = await link.stream("collector.watch", {"types": ["Machine", "Submitter"], "private": True})
                self._picture.clear()
                self._claims.clear()
                self._free.clear()
                self._submitters.clear()
                async for items in stream:
                    retry = FIRST_RETRY
                    for kind, name, ad, private in items:
                        self._learn(kind, name, ad, private)
            except TROUBLE as error:
                self.log.info("the collector is out of reach", extra={"error": str(error)})
            await asyncio.sleep(retry * (0.5 + self.outside.chance.random()))
            retry = min(retry * 2, LONGEST_RETRY)

    def _learn(self, kind: str, name: str, ad: dict[str, Any] | None, private: dict[str, Any] | None) -> None:
        if kind == "Submitter":
            if ad is None:
                self._submitters.pop(name, None)
            else:
                self._submitters[name] = ClassAd.from_wire(ad)
                if ad.get("IdleJobs", 0):
                    self._wake.set()
            return
        if ad is None:
            self._picture.drop(name)
            self._claims.pop(name, None)
            self._free.discard(name)
            return
        self._picture.put(name, ClassAd.from_wire(ad))
        self._claims[name] = private or {}
        if ad.get("State") == "Unclaimed" and self._claims[name].get("ClaimId"):
            self._free.add(name)
            self._wake.set()
        else:
            self._free.discard(name)

    # -- cycles ------------------------------------------------------------------------------------------

    async def _cycle_when_due(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self.settings.number("NEGOTIATION_INTERVAL")):
                    await self._wake.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(self.settings.number("NEGOTIATION_SETTLE"))
            self._wake.clear()
            if self._free and any(self._idle(ad) for ad in self._submitters.values()):
                await self._negotiate()

    @staticmethod
    def _idle(ad: ClassAd) -> int:
        value = ad.value("IdleJobs", 0)
        return value if isinstance(value, int) else 0

    async def _negotiate(self) -> None:
        self._cycles += 1
        now = self.outside.wall()
        references = sorted(self._picture.references())
        wanting = {name: ad for name, ad in self._submitters.items() if self._idle(ad)}
        answers = await asyncio.gather(*(self._ask(name, ad, references) for name, ad in wanting.items()))
        requests = {name: found for name, (found, _) in zip(wanting, answers, strict=True) if found}
        running = {name: count for name, (_, count) in zip(wanting, answers, strict=True) if name in requests}
        oldest = {name: min(request.oldest for request in own) for name, own in requests.items()}
        withheld = [name for name in self._claims if name not in self._free]
        terms = Terms(rank_preemption=False)  # no startd gives a claim up for another yet
        outcome = cycle(self._picture, requests, EqualTurns(running, oldest), terms, now, withheld)
        self._last = (now, requests, outcome)
        if outcome.matches:
            await self._tell(outcome.matches, wanting)
        self.log.debug("cycle", extra={"number": self._cycles, "matches": len(outcome.matches)})

    async def _ask(self, submitter: str, ad: ClassAd, references: list[str]) -> tuple[list[Request], int]:
        """What a submitter wants now, and how many slots it has."""
        address = ad.value("ScheddAddress", "")
        try:
            link = await self._reach(str(address))
            answer = await link.call(
                "schedd.requests",
                {"submitter": submitter, "limit": MOST_REQUESTS, "references": references},
                timeout=PATIENCE,
            )
        except TROUBLE as error:
            self.log.warning("a schedd does not answer", extra={"submitter": submitter, "error": str(error)})
            return [], 0
        requests = [
            Request(int(item["number"]), ClassAd.from_wire(item["ad"]), int(item["count"]), float(item["oldest"]))
            for item in answer["requests"]
        ]
        return requests, int(answer["running"])

    async def _reach(self, address: str) -> Connection:
        async with asyncio.timeout(PATIENCE):
            return await self.given.links.to(address)

    async def _tell(self, matches: list[Match], submitters: dict[str, ClassAd]) -> None:
        by_startd: dict[str, list[Match]] = defaultdict(list)
        for match in matches:
            by_startd[self._startd_of(match.slot)].append(match)
        await asyncio.gather(*(self._tell_startd(address, own, submitters) for address, own in by_startd.items()))

    def _startd_of(self, slot: str) -> str:
        ad = self._picture.ad(slot)
        return str(ad.value("StartdAddress", "")) if ad else ""

    async def _tell_startd(self, address: str, matches: list[Match], submitters: dict[str, ClassAd]) -> None:
        granted: list[dict[str, Any]] = []
        for match in matches:
            submitter = submitters[match.submitter]
            granted.append(
                {
                    "slot": match.slot,
                    "claim": self._claims.get(match.slot, {}).get("ClaimId", ""),
                    "count": match.count,
                    "submitter": match.submitter,
                    "schedd": submitter.value("ScheddName", ""),
                    "node": submitter.value("Node", ""),
                }
            )
            self._free.discard(match.slot)
        try:
            link = await self._reach(address)
            answer = await link.call("startd.matched", {"grants": granted}, timeout=PATIENCE)
        except TROUBLE as error:
            self.log.warning("a startd does not answer", extra={"address": address, "error": str(error)})
            return
        accepted = set(answer["accepted"])  # positions in what was sent
        by_schedd: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for place, (match, grant) in enumerate(zip(matches, granted, strict=True)):
            if place not in accepted:
                continue
            ad = self._picture.ad(match.slot)
            by_schedd[match.submitter].append(
                {
                    "request": match.request,
                    "slot": match.slot,
                    "claim": grant["claim"],
                    "count": match.count,
                    "startd": address,
                    "submitter": match.submitter,
                    "ad": ad.to_wire() if ad else {},
                }
            )
        for name, own in by_schedd.items():
            try:
                link = await self._reach(str(submitters[name].value("ScheddAddress", "")))
                await link.call("schedd.matched", {"matches": own}, timeout=PATIENCE)
            except TROUBLE as error:
                self.log.warning("a schedd does not take its matches", extra={"submitter": name, "error": str(error)})
