"""The slots that may answer one request, best first, as RL 4.3 compares them.

In this order: the administrator's pre_job_rank; the job's Rank of the machine; the administrator's post_job_rank; less
preemption (none, then of a guest, by urgency, by rank, by priority); the administrator's rank of the preemption; the
machine's Rank of the job; the order in which the pool came to know the slots. A machine that a guest has, a job of
another pool, is no candidate while an idle machine of this pool is one (`guests`). FIND SERVER walks through the
machines twice, with preferences and then without (EV 3.5); that is the case of a Rank that is true or false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from pool.classad import Expr
from pool.policy.matching import Bits, Pair, SlotIndex, bits_of
from pool.policy.matching.bits import codes_of
from pool.policy.matching.levels import Levels
from pool.policy.negotiation.capacity import Capacity, CarveRequest, wish_of
from pool.policy.negotiation.guest_parts import GuestParts, GuestPlan
from pool.policy.negotiation.ordering import FewCandidates, divided, places_in
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
        pair = picture.pair(request.ad, now)
        self._rooms = rooms
        self._guest_parts = guest_parts
        self.wish: CarveRequest = pair.remembered(CarveRequest, wish_of)
        self.remainder = rooms.remainder(pair)
        self.matching: Bits = picture.matches(pair) if self.wish.sound else 0
        order = _Order(submitter, request, pair, self.wish, picture, rooms, preemption, guest_parts, terms, by_priority)
        self._order = order.candidates(self.matching, now)
        self._present: Candidate | None = None

    def best(self) -> Candidate | None:
        """The best candidate that is still there; the same again until it is given away or passed over."""
        present, is_there = self._present, self._is_there
        if present is not None and is_there(present):
            return present
        for present in self._order:
            if is_there(present):
                self._present = present
                return present
        self._present = None
        return None

    def pass_over(self) -> None:
        """Look at the present one no more."""
        self._present = None

    def _is_there(self, candidate: Candidate) -> bool:
        place, _, plan = candidate
        if plan is not None:
            return self._guest_parts.holds(plan)
        return self._rooms.is_there(place, self.wish, self.remainder)


class _Order:
    """The order of one request's candidates.

    It does not know `Candidates`, which holds the iterator that is made here: nothing of a cycle may stand in a circle
    of references, since Python would find it too late, or never (`pool.roles.garbage`).
    """

    def __init__(
        self,
        submitter: str,
        request: ResourceRequest,
        pair: Pair,
        wish: CarveRequest,
        picture: SlotIndex,
        rooms: Capacity,
        preemption: Preemption,
        guest_parts: GuestParts,
        terms: NegotiationTerms,
        by_priority: bool,
    ) -> None:
        self._submitter = submitter
        self._by_priority = by_priority
        self._request = request
        self._pair = pair
        self._wish = wish
        self._picture = picture
        self._rooms = rooms
        self._preemption = preemption
        self._terms = terms
        self._guest_parts = guest_parts
        self._taken = rooms.taken
        self._liked: Levels | None = None
        self._preferences: tuple[Levels | None] | None = None

    def candidates(self, matching: Bits, now: float) -> Iterator[Candidate]:
        """The candidates among the slots that match, the best first. Some may have been given away meanwhile."""
        here = matching & self._rooms.available & ~self._rooms.too_full(self._wish)
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
            for plan in parts.plans(self._request.ad, self._wish, now):
                if is_first(plan.place):
                    yield plan.place, "guest", plan
                else:
                    later = True
        yield from self._walk(here, kinds)
        if later and parts is not None:
            for plan in parts.plans(self._request.ad, self._wish, now):
                yield plan.place, "guest", plan

    def _leaves_for_it(self) -> bool:
        return not self._request.moving and self._wish.sound and self._preemption.guests.takes(self._pair)

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
        gone = self._taken
        for _, outer in divided(here, before, gone):
            for rank, middle in divided(outer, ranks, gone):
                if rank <= least:
                    break
                for _, inner in divided(middle, after, gone):
                    if isinstance(inner, FewCandidates):
                        yield from self._among_few(inner.places, kinds)
                    else:
                        yield from self._among_equals(inner & self._rooms.available, kinds)

    def _kinds(self, here: Bits) -> _Kinds:
        """The slots by what would have to be preempted."""
        free, claimed = here & self._rooms.free, here & self._rooms.claimed
        if self._request.moving or not claimed:
            return _Kinds(self._picture.size, free, 0, 0, 0, 0)
        by_urgency = self._preemption.by_urgency(self._pair, claimed)
        guests = self._preemption.by_guest(self._pair, claimed & ~by_urgency & ~self._guest_parts.parts)
        by_rank = self._preemption.by_rank(self._pair, claimed & ~by_urgency & ~guests)
        by_priority = 0
        if self._by_priority:
            rest = claimed & ~by_urgency & ~guests & ~by_rank
            by_priority = self._preemption.by_priority(self._submitter, self._pair, rest)
        return _Kinds(self._picture.size, free, guests, by_urgency, by_rank, by_priority)

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
        taken, liked = self._taken, self._likes()
        for _, some in divided(here & kinds.free, liked, taken):
            for place in places_in(some):
                if not taken[place]:
                    yield place, None, None
        claimed = here & ~kinds.free
        if not claimed:
            return
        preferred = self._preferred()
        for _, equal in divided(claimed & kinds.guests, preferred, taken):
            for place in self._preemption.guests.by_loss(places_in(equal)):
                yield place, "guest", None
        grounds: tuple[tuple[Bits, Preempts], ...] = (
            (kinds.by_urgency, "urgent"),
            (kinds.by_rank, "rank"),
            (kinds.by_priority, "priority"),
        )
        for bits, ground in grounds:
            for _, equal in divided(claimed & bits, preferred, taken):
                for _, some in divided(equal, liked, taken):
                    for place in places_in(some):
                        if not taken[place]:
                            yield place, ground, None

    def _among_few(self, places: Sequence[int], kinds: _Kinds) -> Iterator[Candidate]:
        """As `_among_equals`, of a few slots."""
        if len(places) == 1:
            yield places[0], kinds.ground(places[0]), None
            return
        by_ground: dict[Preempts | None, list[int]] = {}
        for place in places:
            by_ground.setdefault(kinds.ground(place), []).append(place)
        liked, preferred = self._likes(), None
        if len(by_ground) > 1 or None not in by_ground:
            preferred = self._preferred()
        for ground in _GROUNDS:
            found = by_ground.get(ground)
            if found is None:
                continue
            if ground == "guest":
                for _, equal in divided(FewCandidates(found), preferred):
                    for place in self._preemption.guests.by_loss(places_in(equal)):
                        yield place, ground, None
                continue
            for _, equal in divided(FewCandidates(found), preferred if ground is not None else None):
                for _, some in divided(equal, liked):
                    for place in places_in(some):
                        yield place, ground, None

    def _preferred(self) -> Levels | None:
        """The administrator's rank of preempting each slot."""
        if self._preferences is None:
            self._preferences = (self._preemption.levels(self._submitter, self._pair),)
        return self._preferences[0]

    def _likes(self) -> Levels:
        """How much each machine likes the job."""
        if self._liked is None:
            self._liked = self._picture.machine_ranks(self._pair)
        return self._liked


#: In the order in which slots are taken from those whom a job likes equally.
_GROUNDS: tuple[Preempts | None, ...] = (None, "guest", "urgent", "rank", "priority")


class _Kinds:
    """Slots by what would have to be preempted for a request; no slot is in two sets."""

    __slots__ = ("_codes", "_size", "by_priority", "by_rank", "by_urgency", "free", "guests")

    def __init__(self, size: int, free: Bits, guests: Bits, by_urgency: Bits, by_rank: Bits, by_priority: Bits) -> None:
        self.free = free
        self.guests = guests
        self.by_urgency = by_urgency
        self.by_rank = by_rank
        self.by_priority = by_priority
        self._size = size
        self._codes: bytes | None = None

    def ground(self, place: int) -> Preempts | None:
        """On what ground one slot of them would be taken."""
        if self._codes is None:
            sets = (self.guests, self.by_urgency, self.by_rank, self.by_priority)
            self._codes = codes_of(sets, self._size)
        return _GROUNDS[self._codes[place]]


def _levels(expression: object, picture: SlotIndex, pair: Pair) -> Levels | None:
    return picture.levels(expression, "machine", pair) if type(expression) is Expr else None
