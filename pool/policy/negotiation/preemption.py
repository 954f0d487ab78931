"""Which claimed slots may be taken for a request, and on what ground (RL 4.3).

From a *guest*, which is a job of another pool: the request is a job of this one (`guests`). By *urgency*: the job asks
for it and the machine's owner allows it (START_URGENT); the job there is only stopped for a while (D7). By *rank*: the
machine likes the new job better than the one it has; this is its owner's wish. By *priority*: the submitter stands
better than the slot's present user, the administrator's requirements hold, the job has had its minimum time, and the
machine likes the new job no less, so that an owner's wish is never overruled (WR 3.1). No user preempts himself by
priority. Priorities stand still within a cycle, so a user preempted by priority cannot take the slot back in the same
cycle.

A slot that does not say what its present job is worth to it (CurrentRank) or whose it is (RemoteUser) is not taken on
that ground.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import partial

from pool.classad import Expr, parse_expr
from pool.policy.matching import Bits, Pair, SlotIndex, bits_of, members
from pool.policy.matching.clauses import Tree, resolved
from pool.policy.matching.levels import Levels
from pool.policy.negotiation.administration import Administration
from pool.policy.negotiation.capacity import Capacity, slot_weight
from pool.policy.negotiation.guests import GuestSlots
from pool.policy.negotiation.terms import NegotiationTerms
from pool.policy.urgent import START_URGENT, is_urgent

#: Up to so many different ranks are compared set by set.
_FEW = 64
_START_URGENT = parse_expr(START_URGENT)


class NotPreemptible(StrEnum):
    """Why a claimed slot may not be taken for a request; the first of these that applies."""

    LEAVING = "its job is leaving already, for somebody else"
    GUEST_NICE = "its job is of another pool, and leaves for no nice job"
    GUEST_STAYS = "its job is of another pool, and stays as is agreed (guests_leave)"
    GUEST_AHEAD = "its job is of a pool that gets back machine time which it is owed"
    GUEST_YOUNG = "its job is of another pool, cannot be saved, and has its minimum time (GUEST_MINIMUM_RUN)"
    URGENT = "its owner lets no such urgent job in (START_URGENT)"
    OWN = "it is the user's own"
    NEVER = "priority takes no machine away here"
    ORDER = "its user does not stand worse"
    YOUNG = "its job has not had its minimum time"
    LIKED = "the machine likes its present job better"
    REQUIREMENTS = "PREEMPTION_REQUIREMENTS is not true"


class Preemption:
    """Preemption within one cycle."""

    def __init__(self, picture: SlotIndex, rooms: Capacity, terms: NegotiationTerms, now: float) -> None:
        self._picture = picture
        self._rooms = rooms
        self._terms = terms
        self._now = now
        self._users = self._by_user()
        self._ripe = self._old_enough()
        self.guests = GuestSlots(picture, rooms.claimed, terms.guest_minimum, now)
        self._ranks, self._below = self._current_ranks()
        self._allowed: dict[str, Bits] = {}
        self._administration = Administration(picture, terms, now, partial(_weights, picture, self._users))
        wanted = terms.preemption_requirements
        if type(wanted) is Expr and wanted.value is False:
            wanted = False
        self._requirements: Tree | None = None if wanted is False or wanted is None else resolved(wanted, "machine")

    def holder(self, place: int) -> str:
        """The user who gives a claimed slot up."""
        user = self._picture.attributes_at(place).get("remoteuser")
        if type(user) is Expr:
            user = self._picture.ad_at(place).value("RemoteUser")
        return user if isinstance(user, str) else ""

    # --- on what ground

    def by_urgency(self, pair: Pair, among: Bits) -> Bits:
        """Those of these slots whose job an urgent one may suspend."""
        among &= self._rooms.claimed
        if not among or not is_urgent(pair.request) or not self._picture.vocabulary.holders[_START_URGENT.text.lower()]:
            return 0
        found = 0
        for allowed, bits in self._picture.levels(_START_URGENT, "machine", pair).sets():
            found |= bits if allowed > 0 else 0
        return found & among

    def by_guest(self, pair: Pair, among: Bits) -> Bits:
        """Those of these slots that jobs of other pools leave for the request."""
        among &= self.guests.leaving
        if not among or not self.guests.takes(pair):
            return 0
        return self._liking(pair, among & self._rooms.claimed, bisect_right)

    def by_rank(self, pair: Pair, among: Bits) -> Bits:
        """Those of these slots that like the request better than what they have."""
        if not self._terms.rank_preemption:
            return 0
        return self._liking(pair, among & self._rooms.claimed, bisect_left)

    def by_priority(self, submitter: str, pair: Pair, among: Bits) -> Bits:
        """Those of these slots that may be taken from somebody of worse priority."""
        if self._requirements is None:
            return 0
        among &= self._ripe & self.slots_of_worse(submitter)
        if among:
            among = self._liking(pair, among, bisect_right)
        if among:
            among = self._administration.where_true(self._requirements, submitter, pair, among)
        return among

    def why_kept(self, submitter: str, pair: Pair, among: Bits) -> dict[NotPreemptible, Bits]:
        """Those of these slots that may not be taken for a request, by the first thing that keeps them."""
        among &= ~(self.by_rank(pair, among) | self.by_urgency(pair, among) | self.by_guest(pair, among))
        found: dict[NotPreemptible, Bits] = {}

        def exclude(kept: NotPreemptible, bits: Bits) -> None:
            nonlocal among
            if among & bits:
                found[kept] = among & bits
                among &= ~bits

        exclude(NotPreemptible.LEAVING, ~self._rooms.claimed)
        guests, own = self.guests, self.guests.takes(pair)
        taken = self.by_priority(submitter, pair, among & guests.all)
        exclude(NotPreemptible.GUEST_STAYS, guests.staying & ~taken)
        exclude(NotPreemptible.GUEST_AHEAD, guests.ahead & ~taken)
        exclude(NotPreemptible.GUEST_YOUNG, guests.young & ~taken if own else 0)
        exclude(NotPreemptible.GUEST_NICE, guests.leaving & ~taken if not own else 0)
        if is_urgent(pair.request):
            exclude(NotPreemptible.URGENT, among & ~self.by_priority(submitter, pair, among))
        exclude(NotPreemptible.OWN, self._users.get(submitter, 0))
        if self._requirements is None:
            exclude(NotPreemptible.NEVER, among)
        exclude(NotPreemptible.ORDER, ~self.slots_of_worse(submitter))
        exclude(NotPreemptible.YOUNG, ~self._ripe)
        if among:
            exclude(NotPreemptible.LIKED, ~self._liking(pair, among, bisect_right))
        if among:
            exclude(NotPreemptible.REQUIREMENTS, ~self.by_priority(submitter, pair, among))
        return found

    def levels(self, submitter: str, pair: Pair) -> Levels | None:
        """The administrator's rank of preempting each slot; None when it is the same for all."""
        rank = self._terms.preemption_rank
        return self._administration.levels(rank, submitter, pair.request) if type(rank) is Expr else None

    # --- what slots say of their claims

    def _by_user(self) -> dict[str, Bits]:
        found: dict[str, Bits] = {}
        for user, bits in self._picture.slots_by_value("RemoteUser"):
            if isinstance(user, str) and bits & self._rooms.claimed:
                found[user] = bits & self._rooms.claimed
        return found

    def _old_enough(self) -> Bits:
        least, now = self._terms.minimum_run, self._now
        if least <= 0:
            return self._rooms.claimed
        return self._picture.slots_where(
            "JobStart", lambda began: isinstance(began, (int, float)) and now - float(began) >= least
        )

    def _current_ranks(self) -> tuple[list[float], list[Bits]]:
        """The different CurrentRanks from the least, and for each number of them the slots that have one of so many."""
        by_rank: dict[float, Bits] = {}
        for value, bits in self._picture.slots_by_value("CurrentRank"):
            if isinstance(value, (int, float)) and not math.isnan(value):
                by_rank[float(value)] = by_rank.get(float(value), 0) | bits & self._rooms.claimed
        ranks = sorted(rank for rank, bits in by_rank.items() if bits)
        below = [0]
        for rank in ranks:
            below.append(below[-1] | by_rank[rank])
        return ranks, below

    def _liking(self, pair: Pair, among: Bits, position: Callable[[list[float], float], int]) -> Bits:
        """The slots whose rank of the request is above their present one (`bisect_left`), or not below it."""
        if not among or not self._ranks:
            return 0
        levels = self._picture.machine_ranks(pair)
        if len(levels) <= _FEW:
            found = 0
            for rank, bits in levels.sets():
                found |= bits & self._below[position(self._ranks, rank)]
            return found & among
        here = [
            place for place in members(among) if self._below[position(self._ranks, levels.number(place))] >> place & 1
        ]
        return bits_of(here, self._picture.size)

    def slots_of_worse(self, submitter: str) -> Bits:
        """The claimed slots of all whose priority is worse than the submitter's; none where priority never preempts."""
        if self._requirements is None:
            return 0
        found = self._allowed.get(submitter)
        if found is None:
            found = 0
            for user, bits in self._users.items():
                if user != submitter and self._terms.is_better(submitter, user):
                    found |= bits
            self._allowed[submitter] = found
        return found


def _weights(picture: SlotIndex, users: Mapping[str, Bits]) -> Mapping[str, float]:
    """The slot weight that each user holds."""
    at = picture.ad_at
    return {user: sum(slot_weight(at(place)) for place in members(bits)) for user, bits in users.items()}
