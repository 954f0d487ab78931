"""Which claimed slots may be taken for a request, and on what ground (RL 4.3).

By *rank*: the machine likes the new job better than the one it has; this is its owner's wish. By *priority*: the
submitter stands better than the one who has the slot, the administrator's requirements hold, the job has had its
minimum time, and the machine likes the new job no less, so that an owner's wish is never overruled (WR 3.1). Nobody
preempts himself by priority; and since priorities stand still within a cycle, who was preempted by it cannot take the
slot back in the same cycle.

A slot that does not say what its present job is worth to it (CurrentRank) or whose it is (RemoteUser) is not taken on
that ground.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from pool.classad import ClassAd, Expr
from pool.policy.matching import Bits, Pair, Picture, bits_of, members
from pool.policy.matching.clauses import Question, Tree, resolved
from pool.policy.matching.columns import Codes, Grouping, Partition, Whole
from pool.policy.matching.levels import Levels
from pool.policy.matching.looking import Look, attributes, look
from pool.policy.matching.pairs import number_of
from pool.policy.matching.solving import where_true
from pool.policy.matching.tables import request_key
from pool.policy.negotiation.rooms import Rooms, slot_weight
from pool.policy.negotiation.terms import Terms

#: Up to so many different ranks are compared set by set.
_FEW = 64
#: Attributes that a slot's ad gets from its RemoteUser, and from when something began.
_FROM_USER = frozenset({"remoteuserprio", "remoteuserresourcesinuse", "remotegroup"})
_TIMERS = {
    "totaljobruntime": "jobstart",
    "activitytimer": "enteredcurrentactivity",
    "statetimer": "enteredcurrentstate",
}


class Kept(StrEnum):
    """Why a claimed slot may not be taken for a request; the first of these that applies."""

    LEAVING = "its job is leaving already, for somebody else"
    OWN = "it is the user's own"
    NEVER = "priority takes no machine away here"
    ORDER = "its user does not stand worse"
    YOUNG = "its job has not had its minimum time"
    LIKED = "the machine likes its present job better"
    REQUIREMENTS = "PREEMPTION_REQUIREMENTS is not true"


class Preemption:
    """Preemption within one cycle."""

    def __init__(self, picture: Picture, rooms: Rooms, terms: Terms, now: float) -> None:
        self._picture = picture
        self._rooms = rooms
        self._terms = terms
        self._now = now
        self._users = self._by_user()
        self._in_use = terms.in_use if terms.in_use is not None else self._weights()
        self._ripe = self._old_enough()
        self._ranks, self._below = self._current_ranks()
        self._allowed: dict[str, Bits] = {}
        self._answers: dict[Any, Partition] = {}
        self._levels: dict[Any, Levels] = {}
        wanted = terms.preemption_requirements
        if type(wanted) is Expr and wanted.value is False:
            wanted = False
        self._requirements: Tree | None = None if wanted is False or wanted is None else resolved(wanted, "machine")

    # --- on what ground

    def by_rank(self, pair: Pair, among: Bits) -> Bits:
        """Those of these slots that like the request better than what they have."""
        if not self._terms.rank_preemption:
            return 0
        return self._liking(pair, among & self._rooms.claimed, bisect_left)

    def by_priority(self, submitter: str, pair: Pair, among: Bits) -> Bits:
        """Those of these slots that may be taken from somebody of worse priority."""
        if self._requirements is None:
            return 0
        among &= self._ripe & self.worse(submitter)
        if among:
            among = self._liking(pair, among, bisect_right)
        if among:
            dressed = Pair(self._dressed(submitter, pair.request), self._now)
            among = where_true(self._requirements, lambda question: self._ask(question, dressed), among)
        return among

    def kept(self, submitter: str, pair: Pair, among: Bits) -> dict[Kept, Bits]:
        """Those of these slots that may not be taken for a request, by the first thing that keeps them."""
        among &= ~self.by_rank(pair, among)
        found: dict[Kept, Bits] = {}

        def keeps(kept: Kept, bits: Bits) -> None:
            nonlocal among
            if among & bits:
                found[kept] = among & bits
                among &= ~bits

        keeps(Kept.LEAVING, ~self._rooms.claimed)
        keeps(Kept.OWN, self._users.get(submitter, 0))
        if self._requirements is None:
            keeps(Kept.NEVER, among)
        keeps(Kept.ORDER, ~self.worse(submitter))
        keeps(Kept.YOUNG, ~self._ripe)
        if among:
            keeps(Kept.LIKED, ~self._liking(pair, among, bisect_right))
        if among:
            keeps(Kept.REQUIREMENTS, ~self.by_priority(submitter, pair, among))
        return found

    def levels(self, submitter: str, pair: Pair) -> Levels | None:
        """The administrator's rank of preempting each slot; None when it is the same for all."""
        rank = self._terms.preemption_rank
        if type(rank) is not Expr:
            return None
        dressed = Pair(self._dressed(submitter, pair.request), self._now)
        closure, grouping = self._reach(rank, look(rank), dressed)
        key = request_key(dressed, tuple(sorted(attributes(closure.names))), closure)
        found = self._levels.get(key)
        if found is None:
            found = self._levels[key] = Levels(grouping)
        fill = self._filling(grouping, dressed)

        def number(value: Any) -> float:
            fill(value)
            return number_of(dressed.value(rank, "machine"))

        found.settle(number)
        return found

    # --- what slots say of their claims

    def _by_user(self) -> dict[str, Bits]:
        grouping = self._picture.grouping(("remoteuser",))
        partition = Partition(grouping, wide=True)
        partition.settle(lambda codes: codes.extend(range(len(codes), len(grouping))))
        found: dict[str, Bits] = {}
        for code, bits in partition.bits.items():
            user = grouping.values[code]
            if isinstance(user, str) and bits & self._rooms.claimed:
                found[user] = bits & self._rooms.claimed
        return found

    def _weights(self) -> Mapping[str, float]:
        at = self._picture.at
        return {user: sum(slot_weight(at(place)) for place in members(bits)) for user, bits in self._users.items()}

    def _old_enough(self) -> Bits:
        least, now = self._terms.minimum_run, self._now
        if least <= 0:
            return self._rooms.claimed
        return self._picture.where(
            "JobStart", lambda began: isinstance(began, (int, float)) and now - float(began) >= least
        )

    def _current_ranks(self) -> tuple[list[float], list[Bits]]:
        """The different CurrentRanks from the least, and for each number of them the slots that have one of so many."""
        grouping = self._picture.grouping(("currentrank",))
        partition = Partition(grouping, wide=True)
        partition.settle(lambda codes: codes.extend(range(len(codes), len(grouping))))
        by_rank: dict[float, Bits] = {}
        for code, bits in partition.bits.items():
            value = grouping.values[code]
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

    def worse(self, submitter: str) -> Bits:
        """The claimed slots of all whose priority is worse than the submitter's; none where priority never preempts."""
        if self._requirements is None:
            return 0
        found = self._allowed.get(submitter)
        if found is None:
            found = 0
            for user, bits in self._users.items():
                if user != submitter and self._terms.better(submitter, user):
                    found |= bits
            self._allowed[submitter] = found
        return found

    # --- the administrator's expressions, with what they may look at beyond the two ads

    def _dressed(self, submitter: str, request: ClassAd) -> ClassAd:
        ad = ClassAd(
            {
                "SubmitterUserPrio": self._terms.priority(submitter),
                "SubmitterUserResourcesInUse": self._in_use.get(submitter, 0.0),
            },
            parent=request,
        )
        if submitter in self._terms.groups:
            ad["SubmitterGroup"] = self._terms.groups[submitter]
        return ad

    def _ask(self, question: Question, pair: Pair) -> Mapping[int, Bits]:
        closure, grouping = self._reach(question, look(question.expr), pair)
        key = (question, request_key(pair, tuple(sorted(attributes(closure.names))), closure))
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = Partition(grouping)
        fill = self._filling(grouping, pair)

        def extend(codes: Codes) -> None:
            for value in grouping.values[len(codes) :]:
                fill(value)
                codes.append(pair.answer(question))

        found.settle(extend)
        return found.bits

    def _reach(self, what: Any, begin: Look, pair: Pair) -> tuple[Look, Grouping]:
        closure = self._picture.reach(what, begin, pair)
        if closure.hidden:
            return closure, self._picture.whole()
        names = closure.names
        if not names.isdisjoint(_FROM_USER):
            names = names | {"remoteuser"}
        names = names | {since for timer, since in _TIMERS.items() if timer in names}
        return closure, self._picture.grouping(self._picture.vocabulary.held(names))

    def _filling(self, grouping: Grouping, pair: Pair) -> Callable[[Any], None]:
        if isinstance(grouping, Whole):

            def stand(ad: ClassAd | None) -> None:
                pair.stand(ClassAd(self._added(ad.holdings), parent=ad) if ad is not None else None)

            return stand

        def fill(value: Any) -> None:
            grouping.fill(pair, value)
            pair.machine.update(self._added(pair.machine))

        return fill

    def _added(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Folded names and values that a slot's ad gets for the administrator's expressions."""
        found: dict[str, Any] = {}
        user = held.get("remoteuser")
        if isinstance(user, str):
            found["remoteuserprio"] = float(self._terms.priority(user))
            found["remoteuserresourcesinuse"] = float(self._in_use.get(user, 0.0))
            if user in self._terms.groups:
                found["remotegroup"] = self._terms.groups[user]
        for timer, since in _TIMERS.items():
            began = held.get(since)
            if timer not in held and isinstance(began, (int, float)) and math.isfinite(began):
                found[timer] = max(0, int(self._now - began))
        return found
