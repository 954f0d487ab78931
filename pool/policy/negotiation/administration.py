"""The administrator's expressions about preemption (`NegotiationTerms`), with what they may read beyond the two ads.

The additions to a slot's ad follow from its RemoteUser and from the times when something began; those to a job's ad,
from its submitter. Only attributes that an expression reads are added. Answers hold for one cycle: the time and the
priorities are others in the next.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from pool.classad import ClassAd, Expr
from pool.policy.matching import Bits, Pair, SlotIndex
from pool.policy.matching.clauses import Question, Tree
from pool.policy.matching.columns import Grouping, Partition, SingleSlots
from pool.policy.matching.comparing import Compared, comparison
from pool.policy.matching.levels import Levels
from pool.policy.matching.looking import ExprReferences, attributes, references_of
from pool.policy.matching.pairs import number_of
from pool.policy.matching.solving import where_true
from pool.policy.matching.tables import request_key
from pool.policy.negotiation.terms import NegotiationTerms

_FROM_USER = frozenset({"remoteuserprio", "remoteuserresourcesinuse", "remotegroup"})
_OF_SUBMITTER = frozenset({"submitteruserprio", "submitteruserresourcesinuse", "submittergroup"})
_TIMERS = {
    "totaljobruntime": "jobstart",
    "activitytimer": "enteredcurrentactivity",
    "statetimer": "enteredcurrentstate",
}
_COUNTED = frozenset({"remoteuserresourcesinuse", "submitteruserresourcesinuse"})
_ADDED = _FROM_USER | _TIMERS.keys()
#: Below so many groups each is asked.
_FEW = 64
Filling = Callable[[Any], None]


class Administration:
    """The administrator's expressions within one cycle.

    Args:
        weights: counts what each submitter holds, where the terms do not say.
    """

    def __init__(
        self, picture: SlotIndex, terms: NegotiationTerms, now: float, weights: Callable[[], Mapping[str, float]]
    ) -> None:
        self._picture = picture
        self._terms = terms
        self._now = now
        self._weights = weights
        self._in_use: Mapping[str, float] | None = terms.in_use
        self._wanted = picture.closure(references_of(terms.preemption_requirements))
        self._asked = tuple(sorted(attributes(self._wanted.names) - _OF_SUBMITTER))
        self._met: dict[Any, Bits] = {}
        seen = self._wanted | picture.closure(references_of(terms.preemption_rank))
        self._counted = seen.hidden or not seen.names.isdisjoint(_COUNTED)
        self._answers: dict[Any, Partition] = {}
        self._levels: dict[Any, Levels] = {}

    def where_true(self, tree: Tree, submitter: str, plain: Pair, among: Bits) -> Bits:
        """The slots of a set for which PREEMPTION_REQUIREMENTS, as a tree, are true."""
        wanted = self._wanted
        if wanted.hidden or wanted.chance or not wanted.names.isdisjoint(plain.expressions):
            return self._where_true(tree, submitter, plain, among)
        key = (submitter, request_key(plain, self._asked, wanted))
        met = self._met.get(key)
        if met is None:
            met = self._met[key] = self._where_true(tree, submitter, plain, self._picture.alive)
        return met & among

    def _where_true(self, tree: Tree, submitter: str, plain: Pair, among: Bits) -> Bits:
        pair = self._pair(submitter, plain.request)
        return where_true(tree, lambda question: self._evaluate(question, pair), among)

    def levels(self, rank: Expr, submitter: str, request: ClassAd) -> Levels:
        """The slots by a rank."""
        pair = self._pair(submitter, request)
        closure, grouping = self._closure_and_grouping(rank, references_of(rank), pair)
        key = (rank, request_key(pair, tuple(sorted(attributes(closure.names))), closure))
        found = self._levels.get(key)
        if found is None:
            found = self._levels[key] = Levels(grouping)
        fill = self._filling(closure, grouping, pair)

        def number(value: Any) -> float:
            fill(value)
            return number_of(pair.value(rank, "machine"))

        found.follow_grouping(number)
        return found

    def _evaluate(self, question: Question, pair: Pair) -> Mapping[int, Bits]:
        closure, grouping = self._closure_and_grouping(question, references_of(question.expr), pair)
        key = (question, request_key(pair, tuple(sorted(attributes(closure.names))), closure))
        found = self._answers.get(key)
        if found is None:
            found = self._answers[key] = self._new_answers(question, closure, grouping, pair)
        if found.is_stale():
            fill = self._filling(closure, grouping, pair)

            def decide(value: Any) -> int:
                fill(value)
                return pair.answer(question)

            if isinstance(found, Compared):
                picture, name = self._picture, grouping.names[0]
                found.follow(
                    pair, decide, lambda: picture.by_value(name), lambda read: picture.recently_changed(name, read)
                )
            else:
                found.follow_grouping(
                    lambda codes: codes.extend([decide(value) for value in grouping.values[len(codes) :]])
                )
        return found.bits

    @staticmethod
    def _new_answers(question: Question, closure: ExprReferences, grouping: Grouping, pair: Pair) -> Partition:
        """The answers to a question, along the values of one attribute where nothing is added to the slots' ads."""
        if closure.hidden or closure.chance or not closure.names.isdisjoint(_ADDED) or len(grouping) <= _FEW:
            return Partition(grouping)
        compared = comparison(question, grouping)
        return Compared(grouping, compared) if compared and compared.is_fixed(pair) else Partition(grouping)

    def _closure_and_grouping(self, what: Any, begin: ExprReferences, pair: Pair) -> tuple[ExprReferences, Grouping]:
        """How far an expression looks, and the slots by what they hold of that."""
        closure = self._picture.request_closure(what, begin, pair)
        if closure.hidden:
            return closure, self._picture.single_slots()
        names = closure.names
        if not names.isdisjoint(_FROM_USER):
            names = names | {"remoteuser"}
        names = names | {since for timer, since in _TIMERS.items() if timer in names}
        return closure, self._picture.grouping(self._picture.vocabulary.held(names))

    # --- what is added

    def _pair(self, submitter: str, request: ClassAd) -> Pair:
        added: dict[str, Any] = {
            "SubmitterUserPrio": float(self._terms.priority(submitter)),
        }
        if self._counted:
            added["SubmitterUserResourcesInUse"] = float(self._used(submitter))
        if submitter in self._terms.groups:
            added["SubmitterGroup"] = self._terms.groups[submitter]
        return Pair(ClassAd(added, parent=request), self._now)

    def _used(self, submitter: str) -> float:
        if self._in_use is None:
            self._in_use = self._weights()
        return self._in_use.get(submitter, 0.0)

    def _filling(self, closure: ExprReferences, grouping: Grouping, pair: Pair) -> Filling:
        """Puts a group's slots on the machine's side, with what is added."""
        if isinstance(grouping, SingleSlots):

            def set_machine_ad(ad: ClassAd | None) -> None:
                pair.set_machine(ClassAd(self._added(ad.holdings), parent=ad) if ad is not None else None)

            return set_machine_ad
        if closure.names.isdisjoint(_FROM_USER) and closure.names.isdisjoint(_TIMERS):
            return lambda value: grouping.fill(pair, value)

        def fill(value: Any) -> None:
            grouping.fill(pair, value)
            pair.machine.update(self._added(pair.machine))

        return fill

    def _added(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """Folded names and values for a slot's ad."""
        found: dict[str, Any] = {}
        user = held.get("remoteuser")
        if isinstance(user, str):
            found["remoteuserprio"] = float(self._terms.priority(user))
            if self._counted:
                found["remoteuserresourcesinuse"] = float(self._used(user))
            if user in self._terms.groups:
                found["remotegroup"] = self._terms.groups[user]
        for timer, since in _TIMERS.items():
            began = held.get(since)
            if timer not in held and isinstance(began, (int, float)) and math.isfinite(began):
                found[timer] = max(0, int(self._now - began))
        return found
