"""The negotiation cycle as a pure function: submitters' requests and machines in, matches out.

This is EV 3.5's RESCHEDULE with users of equal priority: submitters take turns, each turn is an equal share of the
slots that are free, and what one leaves over goes to the others. Within a submitter requests come in the order the
schedd gave them (its PRIO), so that whoever came first is served first. FIND SERVER's two walks through the machines
(with preferences, then without) become one sort by the job's Rank, as RL 3.2 has it.

A partitionable slot can answer several requests in one cycle: its free resources are lessened by each match, so
that one match may carry a *count* of jobs to be carved out of the slot.
"""

from __future__ import annotations

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
    requests: Mapping[str, Sequence[Request]], machines: Sequence[Machine], now: float
) -> Outcome:
    """Match submitters' requests with machines.

    Args:
        requests: for each submitter its requests in its own order.
        machines: the slots that are free; changed in place (`taken`, `ad`).
        now: wall time in seconds, for expressions that ask for it.
    """
    outcome = Outcome()
    waiting = {name: _Submitter(name, list(own)) for name, own in requests.items() if own}
    order = sorted(waiting.values(), key=lambda submitter: (submitter.oldest, submitter.name))
    capacity = sum(_capacity(machine) for machine in machines)
    while order and capacity > 0:
        share = max(1, capacity // len(order))
        still: list[_Submitter] = []
        used = 0
        for submitter in order:
            got = submitter.take(share, machines, outcome, now)
            used += got
            if got and submitter.wants:
                still.append(submitter)
        capacity -= used
        order = still
    for submitter in waiting.values():
        if submitter.left:
            outcome.unmatched[submitter.name] = dict(submitter.left)
    return outcome


class _Submitter:
    """One submitter within a cycle: what it still wants, and what was found not to fit anywhere."""

    __slots__ = ("left", "name", "oldest", "requests")

    def __init__(self, name: str, requests: list[Request]) -> None:
        self.name = name
        self.requests = requests
        self.left = {request.number: request.count for request in requests if request.count > 0}
        self.oldest = min(request.oldest for request in requests)

    @property
    def wants(self) -> bool:
        return any(self.left.get(request.number) for request in self.requests)

    def take(self, share: int, machines: Sequence[Machine], outcome: Outcome, now: float) -> int:
        got = 0
        for request in list(self.requests):
            while got < share and self.left.get(request.number, 0) > 0:
                match = find_server(self.name, request, min(share - got, self.left[request.number]), machines, now)
                if match is None:
                    self.requests.remove(request)
                    break
                outcome.matches.append(match)
                got += match.count
                self.left[request.number] -= match.count
                if not self.left[request.number]:
                    del self.left[request.number]
            if got >= share:
                break
        return got


def find_server(
    submitter: str, request: Request, most: int, machines: Sequence[Machine], now: float
) -> Match | None:
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
    if not _capacity(machine):
        machine.taken = True
    return max(count, 1)


def _capacity(machine: Machine) -> int:
    """How many jobs a slot can take at the most, counting one processor for each."""
    if machine.taken:
        return 0
    if not machine.partitionable:
        return 1
    cpus = machine.ad.value("Cpus", 1)
    return max(0, int(cpus)) if isinstance(cpus, (int, float)) else 0
