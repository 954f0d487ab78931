"""The negotiation cycle as a pure function: submitters' requests and machines in, matches out.

This is EV 3.5's RESCHEDULE with users of equal priority: the next slot goes to the submitter that has the fewest, those
it runs on already counted, and between equals to the one whose oldest job has waited longest. Within a submitter
requests come in the order the schedd gave them (its PRIO), so that whoever came first is served first. FIND SERVER's
two walks through the machines (with preferences, then without) become one sort by the job's Rank, as RL 3.2 has it.

A partitionable slot can answer several requests in one cycle: its free resources are lessened by each match, so
that one match may carry a *count* of jobs to be carved out of the slot.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pool.classad import ClassAd, rank, requirements_accept, symmetric_match
from pool.policy.carve import Refusal, demand, fits, lessen

#: A match gives at most this many jobs of one request to one partitionable slot.
MOST_FOR_ONE_SLOT = 4096


@dataclass(slots=True)
class Machine:
    """A slot that may be matched: its ad as advertised, and what this cycle has left of it."""

    name: str
    ad: ClassAd
    partitionable: bool
    taken: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """An autocluster that wants to run: its representative ad, and how many jobs stand behind it."""

    number: int
    ad: ClassAd
    count: int
    oldest: float


@dataclass(frozen=True, slots=True)
class Match:
    """`count` jobs of a submitter's request may claim the slot."""

    submitter: str
    request: int
    slot: str
    count: int


@dataclass(slots=True)
class Outcome:
    """What a cycle came to: matches in the order they were made, and the requests left over per submitter."""

    matches: list[Match] = field(default_factory=list)
    unmatched: dict[str, dict[int, int]] = field(default_factory=dict)


def machine_references(machines: Sequence[ClassAd]) -> frozenset[str]:
    """Names that the machines' Requirements and Rank refer to, outside their own ad (lower case).

    Machines mostly carry the same two expressions, so each different text is looked at once.
    """
    seen: dict[tuple[str, str], frozenset[str]] = {}
    found: set[str] = set()
    for ad in machines:
        requirements, preference = ad.get("Requirements"), ad.get("Rank")
        key = (requirements.text if requirements else "", preference.text if preference else "")
        names = seen.get(key)
        if names is None:
            names = frozenset(
                name.lower()
                for expression in (requirements, preference)
                if expression is not None
                for name in expression.references()
            )
            seen[key] = names
        found.update(name for name in names if name not in ad)
    return frozenset(found)


def cycle(
    requests: Mapping[str, Sequence[Request]],
    machines: Sequence[Machine],
    running: Mapping[str, int],
    now: float,
) -> Outcome:
    """Match submitters' requests with machines.

    Args:
        requests: for each submitter its requests in its own order.
        machines: the slots that are free; changed in place (`taken`, `ad`).
        running: how many slots each submitter has already; none where it is not named.
        now: wall time in seconds, for expressions that ask for it.
    """
    outcome = Outcome()
    submitters = [_Submitter(name, list(own), running.get(name, 0)) for name, own in requests.items() if own]
    turns = [submitter.turn for submitter in submitters]
    heapq.heapify(turns)
    by_name = {submitter.name: submitter for submitter in submitters}
    while turns:
        submitter = by_name[heapq.heappop(turns)[2]]
        ahead = turns[0][0] - submitter.has if turns else MOST_FOR_ONE_SLOT
        if submitter.take(max(1, ahead), machines, outcome, now) and submitter.wants:
            heapq.heappush(turns, submitter.turn)
    for submitter in submitters:
        if submitter.left:
            outcome.unmatched[submitter.name] = dict(submitter.left)
    return outcome


class _Submitter:
    """One submitter within a cycle: what it still wants, and what was found not to fit anywhere."""

    __slots__ = ("has", "left", "name", "oldest", "requests", "walk")

    def __init__(self, name: str, requests: list[Request], has: int) -> None:
        self.name = name
        self.has = has
        self.requests = requests
        self.walk: Candidates | None = None
        self.left = {request.number: request.count for request in requests if request.count > 0}
        self.oldest = min(request.oldest for request in requests)

    @property
    def turn(self) -> tuple[int, float, str]:
        """Where it stands in the order of turns."""
        return (self.has, self.oldest, self.name)

    @property
    def wants(self) -> bool:
        return any(self.left.get(request.number) for request in self.requests)

    def take(self, most: int, machines: Sequence[Machine], outcome: Outcome, now: float) -> int:
        """Match at most so many jobs of the first request that fits anywhere; returns how many."""
        while self.requests:
            request = self.requests[0]
            wanted = min(most, self.left.get(request.number, 0))
            if wanted and self.walk is None:
                self.walk = Candidates(request.ad, machines, now)
            best = self.walk.best() if wanted and self.walk is not None else None
            if best is None:
                self.requests.pop(0)
                self.walk = None
                continue
            count = _consume(best, request.ad, wanted, now)
            outcome.matches.append(Match(self.name, request.number, best.name, count))
            self.has += count
            self.left[request.number] -= count
            if not self.left[request.number]:
                del self.left[request.number]
            return count
        return 0


class Candidates:
    """The slots that match one request, best first: by the job's rank, then the machine's, then as they came.

    Each slot is looked at once for a request, however many jobs stand behind it; one that was carved meanwhile is
    looked at again when its turn comes.
    """

    def __init__(self, request: ClassAd, machines: Sequence[Machine], now: float) -> None:
        self._request = request
        self._now = now
        found = [
            (-rank(request, machine.ad, now), -rank(machine.ad, request, now), place, machine, machine.ad)
            for place, machine in enumerate(machines)
            if not machine.taken and symmetric_match(request, machine.ad, now)
        ]
        found.sort(key=lambda entry: entry[:3], reverse=True)
        self._waiting = found

    def best(self) -> Machine | None:
        """The best slot that is still free, left in its place; None when there is none."""
        while self._waiting:
            _, _, _, machine, seen = self._waiting[-1]
            if not machine.taken and (
                machine.ad is seen or symmetric_match(self._request, machine.ad, self._now)
            ):
                return machine
            self._waiting.pop()
        return None


def _consume(machine: Machine, request: ClassAd, most: int, now: float) -> int:
    if not machine.partitionable:
        machine.taken = True
        return 1
    wanted = demand(machine.ad, request)
    if isinstance(wanted, Refusal):
        machine.taken = True
        return 1
    count = 0
    limit = min(most, MOST_FOR_ONE_SLOT)
    while count < limit and fits(machine.ad, wanted):
        machine.ad = lessen(machine.ad, wanted)
        count += 1
        if not requirements_accept(request, machine.ad, now):
            break
    if not fits(machine.ad, {"Cpus": 1}):
        machine.taken = True
    return max(count, 1)
