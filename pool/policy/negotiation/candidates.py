"""The slots that may answer one request, best first, as RL 4.3 compares them.

In this order: the administrator's pre_job_rank; the job's Rank of the machine; the administrator's post_job_rank; less
preemption (none, then of a guest, by urgency, by rank, by priority); the administrator's rank of the preemption; the
machine's Rank of the job; the order in which the pool came to know the slots. A machine that a guest has, a job of
another pool, is no candidate while an idle machine of this pool is one (`guests`). FIND SERVER walks through the
machines twice, with preferences and then without (EV 3.5); that is the case of a Rank that is true or false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pool.classad import Expr
from pool.policy.matching import Bits, Pair, SlotIndex, bits_of
from pool.policy.matching.levels import Levels
from pool.policy.negotiation.capacity import Capacity, CarveRequest, wish_of
from pool.policy.negotiation.guest_parts import GuestParts, GuestPlan
from pool.policy.negotiation.ordering import SingleCandidate, divided, places_in
from pool.policy.negotiation.plain import Preempts, ResourceRequest
from pool.policy.negotiation.preemption import Preemption
from pool.policy.negotiation.terms import NegotiationTerms

#: A slot's place, on what ground its job has to leave, and which guests leave parts of it.
Candidate = tuple[int, Preempts | None, GuestPlan | None]


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
        guest_parts: GuestParts,
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
        self._now = now
        self._guest_parts = guest_parts
        self._pair = picture.pair(request.ad, now)
        self.wish: CarveRequest = self._pair.remembered(CarveRequest, wish_of)
        self.remainder = rooms.remainder(self._pair)
        self.matching: Bits = picture.matches(self._pair) if self.wish.sound else 0
        self._liked: Levels | None = None
        self._taken = rooms.taken
        self._order = self._ordered()
        self._present: Candidate | None = None

    def best(self) -> Candidate | None:
        """The best candidate that is still there; the same again until it is given away or passed over."""
        present = self._present
        if present is None or not self._is_there(present):
            present = self._present = next(filter(self._is_there, self._order), None)
        return present

    def pass_over(self) -> None:
        """Look at the present one no more."""
        self._present = None

    def _is_there(self, candidate: Candidate) -> bool:
        place, _, plan = candidate
        if plan is not None:
            return self._guest_parts.holds(plan)
        if self._taken[place]:
            return False
        rooms = self._rooms
        return not rooms.is_touched(place) or rooms.accepts_still(place, self.wish, self.remainder)

    def _ordered(self) -> Iterator[Candidate]:
        here = self.matching & self._rooms.available & ~self._rooms.too_full(self.wish)
        kinds = self._kinds(here)
        here = kinds.free | kinds.guests | kinds.by_urgency | kinds.by_rank | kinds.by_priority
        parts = self._guest_parts if self._guest_parts.any and self._leaves_for_it() else None
        if not kinds.guests and parts is None:
            yield from self._walk(here, kinds)
            return
        lent = self._preemption.guests.lent
        idle, passed = kinds.free & ~lent, list[int]()
        if idle:
            for candidate in self._walk(here & ~kinds.guests, kinds):
                if not idle & self._rooms.available:
                    break
                idle &= ~(1 << candidate[0])
                passed.append(candidate[0])
                yield candidate
        here &= ~bits_of(passed, self._picture.size) & self._rooms.available
        later = False
        if parts is not None:
            is_first = self._comes_before(here & kinds.free & lent)
            for plan in parts.plans(self._request.ad, self.wish, self._now):
                if is_first(plan.place):
                    yield plan.place, "guest", plan
                else:
                    later = True
        yield from self._walk(here, kinds)
        if later and parts is not None:
            for plan in parts.plans(self._request.ad, self.wish, self._now):
                yield plan.place, "guest", plan

    def _leaves_for_it(self) -> bool:
        return not self._request.moving and self.wish.sound and self._preemption.guests.takes(self._pair)

    def _comes_before(self, others: Bits) -> Callable[[int], bool]:
        """Whether the administrator has a slot come before all of these."""
        before = _levels(self._terms.pre_job_rank, self._picture, self._pair)
        greatest = next((number for number, _ in divided(others, before)), None)
        if greatest is None or before is None:
            return lambda place: greatest is None
        return lambda place: before.number(place) > greatest

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
                        yield inner.place, kinds.ground(inner.place), None
                    else:
                        yield from self._among_equals(inner & self._rooms.available, kinds)

    def _kinds(self, here: Bits) -> _Kinds:
        """The slots by what would have to be preempted."""
        free, claimed = here & self._rooms.free, here & self._rooms.claimed
        if self._request.moving or not claimed:
            return _Kinds(free, 0, 0, 0, 0)
        by_urgency = self._preemption.by_urgency(self._pair, claimed)
        guests = self._preemption.by_guest(self._pair, claimed & ~by_urgency & ~self._guest_parts.parts)
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
        taken = self._taken
        for _, some in divided(here & kinds.free, self._liked):
            for place in places_in(some):
                if not taken[place]:
                    yield place, None, None
        claimed = here & ~kinds.free
        if not claimed:
            return
        preferred = self._preemption.levels(self._submitter, self._pair)
        for _, equal in divided(claimed & kinds.guests, preferred):
            bits = 1 << equal.place if isinstance(equal, SingleCandidate) else equal
            for place in self._preemption.guests.by_loss(bits):
                yield place, "guest", None
        grounds: tuple[tuple[Bits, Preempts], ...] = (
            (kinds.by_urgency, "urgent"),
            (kinds.by_rank, "rank"),
            (kinds.by_priority, "priority"),
        )
        for bits, ground in grounds:
            for _, equal in divided(claimed & bits, preferred):
                for _, some in divided(equal, self._liked):
                    for place in places_in(some):
                        yield place, ground, None


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
