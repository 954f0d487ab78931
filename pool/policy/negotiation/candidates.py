"""The slots that may answer one request, best first, as RL 4.3 compares them.

In this order: the administrator's pre_job_rank; the job's Rank of the machine; the administrator's post_job_rank; less
preemption (none, then of a guest, by urgency, by rank, by priority); the administrator's rank of the preemption; the
machine's Rank of the job; the order in which the pool came to know the slots. A machine that a guest has, a job of
another pool, is no candidate while an idle machine of this pool is one (`guests`). FIND SERVER walks through the
machines twice, with preferences and then without (EV 3.5); that is the case of a Rank that is true or false.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pool.classad import Expr
from pool.policy.matching import Bits, Pair, SlotIndex, bits_of, members
from pool.policy.matching.levels import Levels
from pool.policy.negotiation.capacity import Capacity, CarveRequest, wish_of
from pool.policy.negotiation.plain import Preempts, ResourceRequest
from pool.policy.negotiation.preemption import Preemption
from pool.policy.negotiation.terms import NegotiationTerms

Candidate = tuple[int, Preempts | None]
#: Up to so many different ranks the slots are divided set by set.
_FEW = 48
#: One slot in so many: fewer are sorted by themselves, more are picked from the order of all.
_MANY = 16


class Candidates:
    """The candidates of one request, one after another.

    Args:
        by_priority: whether the submitter may take anything by its priority.

    Attributes:
        matching: every slot that matches, whoever has it.
    """

    def __init__(
        self,
        submitter: str,
        request: ResourceRequest,
        picture: SlotIndex,
        rooms: Capacity,
        preemption: Preemption,
        terms: NegotiationTerms,
        now: float,
        by_priority: bool = True,
    ) -> None:
        self._submitter = submitter
        self._by_priority = by_priority
        self._request = request
        self._picture = picture
        self._rooms = rooms
        self._preemption = preemption
        self._terms = terms
        self._pair = picture.pair(request.ad, now)
        self.wish: CarveRequest = self._pair.remembered(CarveRequest, wish_of)
        self.matching: Bits = picture.matches(self._pair) if self.wish.sound else 0
        self._liked: Levels | None = None
        self._order = self._ordered()
        self._present: Candidate | None = None

    def best(self) -> Candidate | None:
        """The best candidate that is still there; the same again until it is given away or passed over."""
        present = self._present
        while present is None or not self._is_there(present[0]):
            present = self._present = next(self._order, None)
            if present is None:
                return None
        return present

    def pass_over(self) -> None:
        """Look at the present one no more."""
        self._present = None

    def _is_there(self, place: int) -> bool:
        rooms = self._rooms
        if rooms.is_taken(place):
            return False
        return not rooms.is_touched(place) or rooms.accepts_still(place, self.wish)

    def _ordered(self) -> Iterator[Candidate]:
        here = self.matching & self._rooms.available & ~self._rooms.too_full(self.wish)
        kinds = self._kinds(here)
        here = kinds.free | kinds.guests | kinds.by_urgency | kinds.by_rank | kinds.by_priority
        if not kinds.guests:
            yield from self._walk(here, kinds)
            return
        idle, passed = kinds.free & ~self._preemption.guests.lent, list[int]()
        if idle:
            for candidate in self._walk(here & ~kinds.guests, kinds):
                if not idle & self._rooms.available:
                    break
                idle &= ~(1 << candidate[0])
                passed.append(candidate[0])
                yield candidate
        yield from self._walk(here & ~bits_of(passed, self._picture.size) & self._rooms.available, kinds)

    def _walk(self, here: Bits, kinds: _Kinds) -> Iterator[Candidate]:
        """These slots, in order."""
        terms, picture, pair = self._terms, self._picture, self._pair
        if not here:
            return
        least, ranks = self._least_rank(), picture.job_ranks(pair)
        before = _levels(terms.pre_job_rank, picture, pair)
        after = _levels(terms.post_job_rank, picture, pair)
        for _, outer in divided(here, before):
            for rank, middle in divided(outer, ranks):
                if rank <= least:
                    break
                for _, inner in divided(middle, after):
                    if isinstance(inner, SingleCandidate):
                        yield inner.place, kinds.ground(inner.place)
                    else:
                        yield from self._among_equals(inner & self._rooms.available, kinds)

    def _kinds(self, here: Bits) -> _Kinds:
        """The slots by what would have to be preempted."""
        free, claimed = here & self._rooms.free, here & self._rooms.claimed
        if self._request.moving or not claimed:
            return _Kinds(free, 0, 0, 0, 0)
        by_urgency = self._preemption.by_urgency(self._pair, claimed)
        guests = self._preemption.by_guest(self._pair, claimed & ~by_urgency)
        by_rank = self._preemption.by_rank(self._pair, claimed & ~by_urgency & ~guests)
        by_priority = 0
        if self._by_priority:
            rest = claimed & ~by_urgency & ~guests & ~by_rank
            by_priority = self._preemption.by_priority(self._submitter, self._pair, rest)
        return _Kinds(free, guests, by_urgency, by_rank, by_priority)

    def _least_rank(self) -> float:
        """The job's rank that a slot must exceed."""
        if not self._request.moving:
            return float("-inf")
        present = self._request.ad.value("CurrentRank")
        if isinstance(present, bool) or not isinstance(present, (int, float)) or present != present:
            return float("inf")
        return present + self._terms.moving_gain

    def _among_equals(self, here: Bits, kinds: _Kinds) -> Iterator[Candidate]:
        """Candidates that the job likes equally."""
        if self._liked is None:
            self._liked = self._picture.machine_ranks(self._pair)
        for _, some in divided(here & kinds.free, self._liked):
            for place in places_in(some):
                yield place, None
        claimed = here & ~kinds.free
        if not claimed:
            return
        preferred = self._preemption.levels(self._submitter, self._pair)
        for _, equal in divided(claimed & kinds.guests, preferred):
            bits = 1 << equal.place if isinstance(equal, SingleCandidate) else equal
            for place in self._preemption.guests.by_loss(bits):
                yield place, "guest"
        grounds: tuple[tuple[Bits, Preempts], ...] = (
            (kinds.by_urgency, "urgent"),
            (kinds.by_rank, "rank"),
            (kinds.by_priority, "priority"),
        )
        for bits, ground in grounds:
            for _, equal in divided(claimed & bits, preferred):
                for _, some in divided(equal, self._liked):
                    for place in places_in(some):
                        yield place, ground


class _Kinds:
    """Slots by what would have to be preempted for a request."""

    __slots__ = ("_digits", "by_priority", "by_rank", "by_urgency", "free", "guests")

    def __init__(self, free: Bits, guests: Bits, by_urgency: Bits, by_rank: Bits, by_priority: Bits) -> None:
        self.free = free
        self.guests = guests
        self.by_urgency = by_urgency
        self.by_rank = by_rank
        self.by_priority = by_priority
        self._digits: tuple[str, str] | None = None

    def ground(self, place: int) -> Preempts | None:
        """On what ground one slot of them would be taken."""
        if self._digits is None:
            self._digits = bin(self.free)[:1:-1], bin(self.by_rank)[:1:-1]
        free, by_rank = self._digits
        if free[place : place + 1] == "1":
            return None
        if self.guests >> place & 1:
            return "guest"
        if self.by_urgency >> place & 1:
            return "urgent"
        return "rank" if by_rank[place : place + 1] == "1" else "priority"


def _levels(expression: object, picture: SlotIndex, pair: Pair) -> Levels | None:
    return picture.levels(expression, "machine", pair) if type(expression) is Expr else None


class SingleCandidate:
    """A single slot, where a set would be too much."""

    __slots__ = ("place",)

    def __init__(self, place: int) -> None:
        self.place = place


def places_in(slots: Bits | SingleCandidate) -> Iterator[int]:
    """The places of slots, lowest first."""
    return iter((slots.place,)) if isinstance(slots, SingleCandidate) else members(slots)


def divided(slots: Bits | SingleCandidate, levels: Levels | None) -> Iterator[tuple[float, Bits | SingleCandidate]]:
    """Slots by their number, greatest first."""
    if isinstance(slots, SingleCandidate):
        yield (levels.number(slots.place) if levels else 0.0), slots
    elif not slots:
        return
    elif levels is None:
        yield 0.0, slots
    elif len(levels) <= _FEW:
        for number, places in levels.sets():
            some = slots & places
            if some:
                yield number, some
    else:
        yield from _one_by_one(slots, levels)


def _in_order(bits: Bits, levels: Levels, size: int) -> Iterable[tuple[float, int]]:
    """(number with the other sign, place) of the slots of a set, the greatest number first."""
    if bits.bit_count() * _MANY < size:
        number = levels.number
        return sorted([(-number(place), place) for place in members(bits)])
    digits = bin(bits)[:1:-1].ljust(size, "0")
    return (entry for entry in levels.order() if digits[entry[1]] == "1")


def _one_by_one(bits: Bits, levels: Levels) -> Iterator[tuple[float, Bits | SingleCandidate]]:
    size = len(levels.grouping.groups)
    run: list[int] = []
    present = 0.0
    for negative, place in _in_order(bits, levels, size):
        if run and negative != present:
            yield -present, SingleCandidate(run[0]) if len(run) == 1 else bits_of(run, size)
            run.clear()
        run.append(place)
        present = negative
    if run:
        yield -present, SingleCandidate(run[0]) if len(run) == 1 else bits_of(run, size)
