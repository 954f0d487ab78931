"""The negotiation cycle as a pure function: submitters' requests and machines in, matches out.

This is EV 3.5's RESCHEDULE with users of equal priority: the next slot goes to the submitter that has the fewest, those
it runs on already counted, and between equals to the one whose oldest job has waited longest. Within a submitter
requests come in the order the schedd gave them (its PRIO), so that whoever came first is served first. FIND SERVER's two
walks through the machines (with preferences, then without) become one sort by the job's Rank, as RL 3.2 has it.

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

    __slots__ = ("has", "left", "name", "oldest", "requests")

    def __init__(self, name: str, requests: list[Request], has: int) -> None:
        self.name = name
        self.has = has
        self.requests = requests
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
            match = find_server(self.name, request, wanted, machines, now) if wanted else None
            if match is None:
                self.requests.pop(0)
                continue
            outcome.matches.append(match)
            self.has += match.count
            self.left[request.number] -= match.count
            if not self.left[request.number]:
                del self.left[request.number]
            return match.count
        return 0


def find_server(submitter: str, request: Request, most: int, machines: Sequence[Machine], now: float) -> Match | None:
    """The best free slot for a request, taken in its name; None when no slot matches."""
    best: Machine | None = None
    best_key: tuple[float, float] = (0.0, 0.0)
    for machine in machines:
        if machine.taken or not symmetric_match(request.ad, machine.ad, now):
            continue
        key = (rank(request.ad, machine.ad, now), rank(machine.ad, request.ad, now))
        if best is None or key > best_key:
            best, best_key = machine, key
    if best is None:
        return None
    return Match(submitter, request.number, best.name, _consume(best, request.ad, most, now))


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
