"""The negotiator's part of explanations: the machines with one job's eyes, the order of users, the last cycle (D8).

Reads what the negotiator has and asks nobody. One explanation is worked on at a time, in pieces, so that neither many
askers nor evil expressions hold a cycle up; whoever may read may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.outside import Outside
from pool.policy.why import crowd
from pool.policy.why.findings import Finding, to_wire
from pool.policy.why.job import examine
from pool.policy.why.machine import Wish, demand
from pool.roles.pieces import in_pieces

#: Attributes of a request, and slots asked about at once.
MOST_ATTRIBUTES, MOST_SLOTS = 5000, 64
#: Askers that may wait; more are sent away.
MOST_WAITING = 32


class Knows(Protocol):
    """What is asked of the negotiator."""

    @property
    def slots(self) -> Mapping[str, ClassAd]:
        """The ads of all slots, as advertised."""

    def wishes(self) -> Sequence[Wish]:
        """The kinds of idle jobs that were asked for last."""

    def situation(self, submitter: str, request: int, ad: ClassAd) -> list[Finding]:
        """What else is known of a request: order, limits, the last cycle."""


class Explaining:
    """Answers why."""

    def __init__(self, knows: Knows, outside: Outside) -> None:
        self._knows = knows
        self._outside = outside
        self._one = asyncio.Lock()
        self._waiting = 0

    async def job(self, params: dict[str, Any]) -> dict[str, Any]:
        """{request: {ad, submitter, number, ahead}} -> {findings, time}"""
        request = params["request"]
        wire, number = request.get("ad"), request.get("number")
        if not isinstance(wire, dict) or len(wire) > MOST_ATTRIBUTES:
            raise PoolError("cannot explain: this is no job ad")
        ad, now = ClassAd.from_wire(wire), self._outside.wall()
        async with _Turn(self):
            found, census = await in_pieces(examine(dict(self._knows.slots), ad, now), "explain the job")
        del census
        found += self._knows.situation(str(request.get("submitter", "")), number if isinstance(number, int) else 0, ad)
        return {"findings": to_wire(found), "time": now}

    async def machine(self, params: dict[str, Any]) -> dict[str, Any]:
        """{slots: names} -> {slots: {name: findings}, time}"""
        now = self._outside.wall()
        answers: dict[str, Any] = {}
        names = [str(name) for name in params["slots"]][:MOST_SLOTS]
        async with _Turn(self):
            places = {place.name: place for place in crowd.places(dict(self._knows.slots))}
            wishes = self._knows.wishes()
            for name in names:
                found: list[Finding] = []
                if name in places:
                    found.append(await in_pieces(demand(places[name], wishes, now), "explain the machine"))
                answers[name] = to_wire(found)
        return {"slots": answers, "time": now}


class _Turn:
    """One explanation at a time."""

    def __init__(self, explaining: Explaining) -> None:
        self._explaining = explaining

    async def __aenter__(self) -> None:
        its = self._explaining
        if its._waiting >= MOST_WAITING:
            raise PoolError("too many ask for explanations at once", hint="ask again in a moment", retry=True)
        its._waiting += 1
        try:
            await its._one.acquire()
        except BaseException:
            its._waiting -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._explaining._waiting -= 1
        self._explaining._one.release()
