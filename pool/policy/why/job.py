"""Why an idle job has no machine: the census of a pool with one job's eyes (D8).

Every machine is asked every clause of the job's Requirements, and answers with every clause of its own. From who
fails what follow all counts, in one consistent picture:

    ruled out   at least one condition of the job's does not hold
    refused     the job would take it; at least one clause of the machine's does not hold
    matching    none of either: free, busy with somebody, or not to be had (its owner has it, it is drained)

A submit file's resource request stands on both sides, and counts once, as the job's. `examine` works in pieces
(`holding`); it decides nothing: what the last negotiation did and whose turn it is come from the negotiator.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pool.classad import ClassAd, Expr, parse_expr, symmetric_match
from pool.errors import PoolError
from pool.jobs.gangs import APART, MOST_PARTS, parts_of
from pool.jobs.network import HAS_OUT, HAS_PRIVATE, OUT_WHY, WHY
from pool.policy.carve import CarveRefusal, demand
from pool.policy.matching.clauses import split
from pool.policy.why import crowd
from pool.policy.why.crowd import MatchableSlot
from pool.policy.why.findings import (
    Busy,
    Finding,
    Free,
    Machines,
    Nearest,
    NoNetwork,
    RefusedFinding,
    RefusingClause,
    TooFew,
    Unmet,
    Unshown,
    Unusable,
    ValueCount,
)
from pool.policy.why.holding import EVALUATIONS, Piecemeal, held_by, held_for
from pool.policy.why.values import condition
from pool.policy.why.wording import Wording, shorten, wording

#: Things listed of each kind, and names of machines.
MOST, NAMES = 8, 3
#: Different ways to fail that are told apart in the search for the nearest miss.
MOST_WAYS = 2000
#: Clauses of one expression that are told apart; those behind them count as one.
MOST_CLAUSES = 100
#: Of a machine that does not say what it lacks.
UNSAID = "its node is too old to say why"
NO_REQUIREMENTS = Wording("requirements", "its ad has no Requirements, so that it matches nothing")


@dataclass(slots=True)
class Item:
    """One condition, of whichever side, and the machines that fail it.

    Attributes:
        theirs: it is a clause of the machines'; a request is the job's, whoever looks at it.
        clauses: the job's clauses behind it.
    """

    wording: Wording
    theirs: bool
    fails: int = 0
    clauses: list[Expr] = field(default_factory=list)


@dataclass(slots=True)
class Census:
    """The clauses that fail, and for which machines.

    Attributes:
        failed: machines that fail anything.
        once: machines that fail exactly one condition.
        serving: slots in somebody's hands that would do as they are.
        too_small: slots in somebody's hands on machines that would do, but not each by itself.
    """

    places: list[MatchableSlot]
    items: dict[str, Item]
    failed: int = 0
    once: int = 0
    serving: list[str] = field(default_factory=list)
    too_small: int = 0

    @property
    def all_machines(self) -> int:
        return (1 << len(self.places)) - 1

    @property
    def matching(self) -> int:
        return self.all_machines & ~self.failed

    @property
    def ruled_out(self) -> int:
        mask = 0
        for item in self.items.values():
            mask |= 0 if item.theirs else item.fails
        return mask

    def add(self, named: Wording, fails: int, clause: Expr, *, theirs: bool) -> None:
        theirs = theirs and not named.resource
        key = f"theirs {named.key}" if theirs else named.key
        item = self.items.get(key)
        if item is None:
            item = self.items[key] = Item(named, theirs)
        item.fails |= fails
        if not theirs:
            item.clauses.append(clause)

    def close(self) -> None:
        """All conditions are in."""
        twice = 0
        for item in self.items.values():
            twice |= self.failed & item.fails
            self.failed |= item.fails
        self.once = self.failed & ~twice

    def failing_combinations(self) -> list[tuple[list[Item], int]]:
        """Each combination of conditions that some machine fails, with those machines."""
        groups: list[tuple[list[Item], int]] = [([], self.failed)]
        for item in self.items.values():
            if not item.fails or len(groups) > MOST_WAYS:
                continue
            split: list[tuple[list[Item], int]] = []
            for failed, mask in groups:
                if inside := mask & item.fails:
                    split.append(([*failed, item], inside))
                if rest := mask & ~item.fails:
                    split.append((failed, rest))
            groups = split
        return [(failed, mask) for failed, mask in groups if mask]


def clauses_of(ad: ClassAd) -> list[Expr]:
    """The clauses of an ad's Requirements, as the matchmaker takes them apart; none where it has no Requirements."""
    held = ad.held("Requirements")
    if held is None:
        return []
    texts = [clause.text for clause in split(held, "request", ad.getter())]
    if len(texts) > MOST_CLAUSES:
        texts[MOST_CLAUSES - 1 :] = [" && ".join(f"({text})" for text in texts[MOST_CLAUSES - 1 :])]
    return [parse_expr(text, "old") for text in texts]


def census_of(places: list[MatchableSlot], job: ClassAd, now: float) -> Piecemeal[Census]:
    """Ask every machine every condition."""
    census = Census(places, {})
    machines = [place.whole for place in places]
    clauses = clauses_of(job)
    if not clauses:
        census.add(NO_REQUIREMENTS, census.all_machines, parse_expr("false"), theirs=False)
    for clause in clauses:
        held = yield from held_by(clause, job, machines, now)
        census.add(wording(clause.text, job), census.all_machines & ~held, clause, theirs=False)
        yield
    for requirements, mask in _group_by_requirements(places).items():
        some = [machines[number] for number in crowd.numbers(mask)]
        for clause in clauses_of(some[0]):
            held = yield from held_for(clause, job, some, now)
            fails = _spread(((1 << len(some)) - 1) & ~held, mask)
            census.add(wording(clause.text, job), fails, clause, theirs=True)
            yield
        if requirements is None:
            census.add(Wording("no requirements", "its ad has no Requirements"), mask, parse_expr("false"), theirs=True)
    census.close()
    return census


def _group_by_requirements(places: Sequence[MatchableSlot]) -> dict[Expr | None, int]:
    """Machines by their Requirements."""
    found: dict[Expr | None, list[int]] = {}
    for number, place in enumerate(places):
        found.setdefault(place.now.get("Requirements"), []).append(number)
    return {requirements: sum(1 << number for number in numbers) for requirements, numbers in found.items()}


def _spread(mask: int, over: int) -> int:
    """The bits of a mask over some machines, where those machines stand among all."""
    if not mask:
        return 0
    among = crowd.numbers(over)
    return sum(1 << among[number] for number in crowd.numbers(mask))


def examine(slots: Mapping[str, ClassAd], job: ClassAd, now: float) -> Piecemeal[tuple[list[Finding], Census]]:
    """The pool's machines as one job sees them: findings, and the census for callers that go on from there.

    Args:
        slots: the ads of all slots by name, as advertised.
        job: the ad of the request.
        now: wall seconds.
    """
    places = crowd.whole_slots(slots)
    yield
    found: list[Finding] = [_machines(places)]
    if not places:
        return found, Census(places, {})
    census = yield from census_of(places, job, now)
    ruled_out = census.ruled_out
    found += yield from _too_few(census, job)
    if ruled_out:
        conditions = []
        for item in census.items.values():
            if not item.theirs and item.fails:
                conditions.append((yield from condition(item.wording, item.clauses, item.fails, census, job, now)))
        conditions.sort(key=lambda one: (-one.alone, -one.rules_out))
        found.append(Unmet(ruled_out.bit_count(), tuple(conditions[:MOST])))
        found += _unshown(census)
        found += _without_network(census)
    refused = census.failed & ~ruled_out
    if refused:
        found.append(RefusedFinding(refused.bit_count(), _refusals(census, refused)))
    found += yield from _matching(census, job, now)
    if not census.matching:
        nearest = _nearest(census)
        if nearest is not None:
            found.append(nearest)
    return found, census


def _machines(places: Sequence[MatchableSlot]) -> Machines:
    machines = {crowd.machine_of(place.now, place.name) for place in places}
    states = Counter(place.state for place in places)
    return Machines(len(machines), len(places), shares(states))


def _too_few(census: Census, job: ClassAd) -> Piecemeal[list[Finding]]:
    """A job of alike parts that is bigger than all machines that meet its conditions; nothing where parts differ."""
    try:
        parts = parts_of(job)
    except PoolError:
        return []
    if len(parts) < 2 or any(kind.own for kind in parts.kinds):
        return []
    apart = job.value(APART, False) is True
    room: Counter[str] = Counter()
    for looked, number in enumerate(crowd.numbers(census.all_machines & ~census.ruled_out)):
        if looked % EVALUATIONS == EVALUATIONS - 1:
            yield
        place = census.places[number]
        room[crowd.machine_of(place.now, place.name)] += _parts_that_fit(place, job)
    suit = len(+room) if apart else room.total()
    return [TooFew(len(parts), suit, apart)] if suit < len(parts) else []


def _parts_that_fit(place: MatchableSlot, job: ClassAd) -> int:
    """How many parts of a job a slot could hold, if nobody had it."""
    if place.now.value("PartitionableSlot", False) is not True:
        return 1
    wanted = demand(place.whole, job)
    if isinstance(wanted, CarveRefusal):
        return 0
    each = [int((crowd.number(place.whole, name) or 0) // amount) for name, amount in wanted.items() if amount > 0]
    return min(each, default=MOST_PARTS)


def _unshown(census: Census) -> list[Finding]:
    """The attribute that machines lack, where the job rules them out because they cannot show it its owner's files."""
    lacking = _lacking(census, "HasRemoteIO", "RemoteIOWhy")
    return [Unshown(sum(lacking.values()), shares(lacking))] if lacking else []


def _without_network(census: Census) -> list[Finding]:
    """Why machines give the job no network of its own, or none with a way out, where it rules them out for that."""
    kinds = ((HAS_PRIVATE, WHY, False), (HAS_OUT, OUT_WHY, True))
    lacking = [(_lacking(census, attribute, why), out) for attribute, why, out in kinds]
    return [NoNetwork(sum(reasons.values()), shares(reasons), out) for reasons, out in lacking if reasons]


def _lacking(census: Census, attribute: str, why: str) -> Counter[str]:
    """How many machines the job rules out by a clause about an attribute that is not true for them, by their reasons.

    Args:
        why: the attribute that has a machine's reason.
    """
    mask, name = 0, re.compile(rf"\b{attribute}\b", re.IGNORECASE)
    for item in census.items.values():
        if not item.theirs and any(name.search(clause.text) for clause in item.clauses):
            mask |= item.fails
    lacking = [census.places[number].whole for number in crowd.numbers(mask)]
    lacking = [ad for ad in lacking if ad.value(attribute, False) is not True]
    return Counter(shorten(crowd.text(ad, why)) or UNSAID for ad in lacking)


def _refusals(census: Census, refused: int) -> tuple[RefusingClause, ...]:
    rows = []
    for item in census.items.values():
        mask = item.fails & refused
        if item.theirs and mask:
            numbers = crowd.numbers(mask)
            rows.append(
                RefusingClause(
                    item.wording.text,
                    len(numbers),
                    tuple(census.places[number].name for number in numbers[:NAMES]),
                    shares(Counter(census.places[number].state for number in numbers)),
                )
            )
    return tuple(sorted(rows, key=lambda row: -row.count)[:MOST])


def _matching(census: Census, job: ClassAd, now: float) -> Piecemeal[list[Finding]]:
    free, busy, matched = 0, 0, 0
    users: Counter[str] = Counter()
    other: Counter[str] = Counter()
    for number in crowd.numbers(census.matching):
        place = census.places[number]
        matched += 1 + len(place.parts)
        if matched >= EVALUATIONS:
            matched = 0
            yield
        if place.state == "Unclaimed" and (not place.parts or symmetric_match(job, place.now, now)):
            free += 1
        elif served := place.serves():
            busy += 1
            users.update({crowd.text(ad, "RemoteUser") or crowd.text(ad, "RemoteOwner") for ad in served})
            would = [ad for ad in served if ad is place.now or symmetric_match(job, ad, now)]
            census.serving += [crowd.text(ad, "Name") or place.name for ad in would]
            census.too_small += len(served) - len(would)
        else:
            other[place.state] += 1
    found: list[Finding] = []
    if free:
        found.append(Free(free))
    if busy:
        found.append(Busy(busy, shares(users)))
    if other:
        found.append(Unusable(other.total(), shares(other)))
    return found


def _nearest(census: Census) -> Nearest | None:
    """The fewest conditions whose change lets machines in; what the user can do alone comes first."""
    best: tuple[tuple[bool, int, int], list[Item]] | None = None
    for failed, mask in census.failing_combinations():
        key = (any(item.theirs for item in failed), len(failed), -mask.bit_count())
        if best is None or key < best[0]:
            best = key, failed
    if best is None:
        return None
    changes = tuple(item.wording.text for item in best[1] if not item.theirs)
    theirs = tuple(item.wording.text for item in best[1] if item.theirs)
    return Nearest(changes, -best[0][2], theirs)


def shares(counted: Mapping[str, int] | Iterable[tuple[str, int]], most: int = MOST) -> tuple[ValueCount, ...]:
    """The commonest first, at most so many."""
    pairs = counted.items() if isinstance(counted, Mapping) else counted
    return tuple(ValueCount(name, count) for name, count in sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:most])
