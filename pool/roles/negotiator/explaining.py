"""The negotiator's part of explanations: the machines with one job's eyes, the order of users, the last cycle (D8).

Reads what the negotiator has and asks nobody. One explanation is worked on at a time, in pieces, so that neither many
askers nor evil expressions hold a cycle up; whoever may read may ask.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.outside import OutsideWorld
from pool.policy import priorities
from pool.policy.charges import charge
from pool.policy.matching import Pair, SlotIndex
from pool.policy.negotiation import NegotiationTerms, Outcome, Rejection, ResourceRequest, UnmatchedReason
from pool.policy.negotiation.capacity import Capacity
from pool.policy.negotiation.limits import parse_limits
from pool.policy.negotiation.preemption import Preemption
from pool.policy.priorities.groups import lineage
from pool.policy.priorities.names import parted
from pool.policy.why import crowd
from pool.policy.why.findings import Busy, Cycle, Demand, Finding, Limit, QuotaFinding, Silent, TurnFinding, to_wire
from pool.policy.why.job import Census, examine, shares
from pool.policy.why.machine import IdleJobKind, demand
from pool.policy.why.outlook import Kind, ages, outlook
from pool.policy.why.rejections import rejection_text
from pool.policy.why.words import ago
from pool.roles.cooperative import WorkTurns, run_in_slices
from pool.roles.negotiator.usage import named

#: The order of explanations: they are made one at a time.
WHO = "why"
#: Attributes of a request, and slots asked about at once.
MOST_ATTRIBUTES, MOST_SLOTS = 5000, 64
#: Askers that may wait; more are sent away.
MOST_WAITING = 32
#: Seconds for which a cycle that looks at the picture is waited for; without it less is said.
MOMENT = 2.0
#: Kinds of jobs that are asked whether they may take a slot over.
MOST_TAKERS = 100
#: Users named who are served first.
NAMED = 3
TOO_SMALL = "it is too small by itself"
GUESTS_LEAVE = "their jobs are of other pools, and leave for it in the next negotiation"
MAY_BE_TAKEN = "may be taken for it in the next negotiation"


@dataclass(frozen=True, slots=True)
class CycleSnapshot:
    """The negotiator's knowledge at one moment.

    Attributes:
        terms: those of the next cycle, as far as they are settled before it.
        deaf: since when the collector cannot be heard (wall seconds); None while it can.
        when, requests, outcome: the last cycle; `when` is 0 before the first.
        interval: seconds between two cycles at most.
        lengths: of jobs that ended lately, by kind (`JobDurations`).
        held: slots that submitters hold.
        quotas, groups: those of groups, and what each is entitled to and holds.
    """

    picture: SlotIndex
    terms: NegotiationTerms
    deaf: float | None
    when: float
    requests: Mapping[str, Sequence[ResourceRequest]]
    outcome: Outcome
    interval: float
    lengths: Mapping[Kind, Sequence[float]]
    held: Mapping[str, int]
    quotas: tuple[priorities.GroupQuota, ...]
    groups: Sequence[Mapping[str, Any]]

    def named(self, submitter: str, ad: ClassAd) -> str:
        """A submitter as cycles name it, for one of its jobs."""
        return named(submitter, charge(ad), self.quotas)

    def leftover_requests(self) -> list[IdleJobKind]:
        """The kinds of jobs that the last cycle left."""
        left = self.outcome.unmatched
        return [
            IdleJobKind(request.ad, count, submitter)
            for submitter, own in self.requests.items()
            for request in own
            if (count := left.get(submitter, {}).get(request.number))
        ]


class Explaining:
    """Answers why.

    Args:
        known: what is known when somebody asks.
        looking: held while a cycle looks at the picture in a thread of its own.
    """

    def __init__(
        self, known: Callable[[], CycleSnapshot], outside: OutsideWorld, looking: asyncio.Lock, turns: WorkTurns
    ) -> None:
        self._turns = turns
        self._known = known
        self._looking = looking
        self._outside = outside
        self._one = asyncio.Lock()
        self._waiting = 0

    async def job(self, params: dict[str, Any]) -> dict[str, Any]:
        """{request: {ad, submitter, number, ahead}} -> {findings, time}"""
        request = params["request"]
        wire = request.get("ad")
        if not isinstance(wire, dict) or len(wire) > MOST_ATTRIBUTES:
            raise PoolError("cannot explain: this is no job ad")
        ad, now = ClassAd.from_wire(wire), self._outside.wall()
        async with _Turn(self):
            found, census = await run_in_slices(
                examine(dict(self._known().picture.ads), ad, now), "explain the job", self._turns, WHO
            )
            known = self._known()
            submitter = known.named(str(request.get("submitter", "")), ad)
            async with self._pause_cycles() as still:
                if still:
                    found = [_explain_kept(finding, census, known, submitter, ad, now) for finding in found]
        found += _order(known, submitter)
        rejection = known.outcome.rejections.get(submitter, {}).get(_count(request, "number"))
        found += [*_limits(known, ad), *_quotas(known, submitter, rejection)]
        found += _cycle(known, submitter, _count(request, "number"), rejection)
        running = ages([census.places[place] for place in crowd.numbers(census.matching)], now)
        users, ahead = len({*known.requests, submitter}), _count(request, "ahead")
        found.append(outlook(found, running, known.lengths, ahead, users, known.interval))
        found += _deafness(known, now)
        return {"findings": to_wire(found), "time": now}

    async def machine(self, params: dict[str, Any]) -> dict[str, Any]:
        """{slots: names} -> {slots: {name: findings}, time}"""
        now = self._outside.wall()
        answers: dict[str, Any] = {}
        names = [str(name) for name in params["slots"]][:MOST_SLOTS]
        async with _Turn(self):
            known = self._known()
            slots = dict(known.picture.ads)
            places = {place.name: place for place in crowd.whole_slots(slots)}
            for name in names:
                found: list[Finding] = []
                if name in slots:
                    place = places.get(name) or crowd.MatchableSlot(name, slots[name], slots[name])
                    finding, fitting = await run_in_slices(
                        demand(place, known.leftover_requests(), now), "explain the machine", self._turns, WHO
                    )
                    async with self._pause_cycles() as still:
                        found.append(_takers(finding, fitting, self._known(), name, now) if still else finding)
                answers[name] = to_wire(found)
        return {"slots": answers, "time": now}

    @asynccontextmanager
    async def _pause_cycles(self) -> AsyncIterator[bool]:
        """Keep cycles from looking at the picture meanwhile; false when one that does takes too long to wait for."""
        try:
            async with asyncio.timeout(MOMENT):
                await self._looking.acquire()
        except TimeoutError:
            yield False
            return
        try:
            yield True
        finally:
            self._looking.release()


def _explain_kept(
    finding: Finding, census: Census, known: CycleSnapshot, submitter: str, ad: ClassAd, now: float
) -> Finding:
    """Why the machines that match are not taken from those who have them, as the cycle has it."""
    if not isinstance(finding, Busy):
        return finding
    picture = known.picture
    busy = picture.set_of(census.serving)
    preemption = Preemption(picture, Capacity(picture, now), known.terms, now)
    # The caller may have made the ad up: its expressions are not evaluated for all machines at once.
    plain = ClassAd({name: held for _, name, held in ad.all() if isinstance(held, (bool, int, float, str))})
    kept = preemption.why_kept(submitter, Pair(plain, now), busy)
    counted = {str(why): bits.bit_count() for why, bits in kept.items()}
    if guests := preemption.by_guest(Pair(plain, now), busy).bit_count():
        counted[GUESTS_LEAVE] = guests
    if left := busy.bit_count() - sum(counted.values()):
        counted[MAY_BE_TAKEN] = left
    if census.too_small:
        counted[TOO_SMALL] = census.too_small
    return replace(finding, kept=shares(counted))


def _deafness(known: CycleSnapshot, now: float) -> list[Finding]:
    if known.deaf is None:
        return []
    why = f"the negotiator has not heard it for {ago(now - known.deaf)}, and knows machines as they were then"
    return [Silent("the collector", why)]


def _takers(finding: Demand, fitting: Sequence[IdleJobKind], known: CycleSnapshot, slot: str, now: float) -> Demand:
    """Which of the jobs that match a claimed slot may take it from the one it has, as the cycle has it."""
    picture = known.picture
    rooms = Capacity(picture, now)
    bit = picture.set_of([slot]) & rooms.claimed
    if not bit or not fitting:
        return finding
    preemption = Preemption(picture, rooms, known.terms, now)
    better = guests = prior = 0
    for wish in fitting[:MOST_TAKERS]:
        pair = Pair(wish.ad, now)
        if preemption.by_rank(pair, bit) or preemption.by_urgency(pair, bit):
            better += wish.count
        elif preemption.by_guest(pair, bit):
            guests += wish.count
        elif preemption.by_priority(wish.submitter, pair, bit):
            prior += wish.count
    return replace(finding, better=better, guests=guests, prior=prior)


def _order(known: CycleSnapshot, submitter: str) -> list[Finding]:
    """Where the user stands among those who wait."""
    if not submitter:
        return []
    terms, held = known.terms, known.held

    def key(user: str) -> tuple[float, int, str]:
        return (terms.priority(user), held.get(user, 0), user)

    line = sorted({*known.requests, submitter}, key=key)
    place = line.index(submitter)
    priority = terms.priority(submitter) if terms.priorities else None
    return [TurnFinding(submitter, place + 1, len(line), priority, tuple(line[:place][:NAMED]), held.get(submitter, 0))]


def _limits(known: CycleSnapshot, ad: ClassAd) -> list[Finding]:
    terms, found = known.terms, list[Finding]()
    used = terms.limits_in_use or {}
    for name, units in (parse_limits(ad.value("ConcurrencyLimits", None)) or {}).items():
        most = terms.limits.get(name, terms.default_limit)
        if name in terms.limits or used.get(name, 0.0) + units > most:
            found.append(Limit(name, used.get(name, 0.0), most, units, used.get(name, 0.0) + units > most))
    return found


def _quotas(known: CycleSnapshot, submitter: str, rejection: Rejection | None) -> list[Finding]:
    """The shares of the user's group and of those above it; they bind where the last cycle stopped at a share."""
    above = lineage(parted(submitter)[0])
    bound = rejection is not None and rejection.why is UnmatchedReason.SHARE
    return [
        QuotaFinding(str(row["name"]), row["held"], row["entitled"], bound and row["held"] >= row["entitled"])
        for row in known.groups
        if row["name"] in above
    ]


def _cycle(known: CycleSnapshot, submitter: str, number: int, rejection: Rejection | None) -> list[Finding]:
    if not known.when:
        return []
    asked = next((one for one in known.requests.get(submitter, ()) if one.number == number), None)
    left = known.outcome.unmatched.get(submitter, {}).get(number, 0)
    matched = asked.count - left if asked is not None else 0
    reason = rejection_text(rejection) if rejection is not None else ""
    return [Cycle(known.when, asked is not None, matched, reason, known.interval)]


def _count(request: Mapping[str, Any], name: str) -> int:
    value = request.get(name)
    return value if isinstance(value, int) and 0 <= value < 2**53 else 0


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
