"""One question asked of all machines: an answer for each group of machine values and each distinct request.

Requests that hold the same for the names that matter share their answers, and machines that do are one group. Answers
are kept until the machines or the names change; those that depend on the time are kept for that time only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pool.policy.matching.bits import Bits
from pool.policy.matching.clauses import Question
from pool.policy.matching.columns import Grouping, Partition
from pool.policy.matching.comparing import Compared, Ordered, comparison
from pool.policy.matching.looking import ExprReferences, attributes
from pool.policy.matching.pairs import Pair

#: Below so many groups each is asked.
_FEW = 64
#: Distinct requests whose answers a table keeps.
_KEPT = 4096


class Table:
    """Answers to one question.

    Args:
        question: what is asked.
        closure: all that its value can depend on.
        grouping: machines by those of the names that any of them holds.
        by_value: gives the grouping's slots by value, where it has one name.
        moved: gives those of them that have moved since the grouping had so many moves.
    """

    def __init__(
        self,
        question: Question,
        closure: ExprReferences,
        grouping: Grouping,
        by_value: Callable[[], Ordered],
        moved: Callable[[int], Ordered],
    ) -> None:
        self.question = question
        self.closure = closure
        self.grouping = grouping
        self._asked = tuple(sorted(attributes(closure.names)))
        self._fleeting = closure.timed or closure.hidden or closure.chance
        self._time: float | None = None
        self._answers: dict[Any, Partition] = {}
        self._by_value = by_value
        self._moved = moved
        self.comparison = comparison(question, grouping)

    def answers(self, pair: Pair) -> Mapping[int, Bits]:
        """The slots by the class of the question's value; the grouping is up to date."""
        return self.current_answers(self.partition(pair), pair)

    @property
    def lasting(self) -> bool:
        """Whether a request's answers stay its own for as long as the table does."""
        return not self._fleeting

    def partition(self, pair: Pair) -> Partition:
        """The answers for a request, to be settled."""
        if self._fleeting and self._time != pair.now:
            self._answers.clear()
            self._time = pair.now
        key = request_key(pair, self._asked, self.closure)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _KEPT:
                self._answers.clear()
            found = self._answers[key] = self._new(pair)
        return found

    def current_answers(self, found: Partition, pair: Pair) -> Mapping[int, Bits]:
        """A request's answers, up to date; the grouping is."""
        if found.is_stale():
            grouping, question = self.grouping, self.question

            def decide(value: Any) -> int:
                grouping.fill(pair, value)
                return pair.answer(question)

            if isinstance(found, Compared):
                found.follow(pair, decide, self._by_value, self._moved)
            else:
                found.follow_grouping(
                    lambda codes: codes.extend([decide(value) for value in grouping.values[len(codes) :]])
                )
        return found.bits

    def _new(self, pair: Pair) -> Partition:
        comparison = self.comparison
        if comparison is not None and len(self.grouping) > _FEW and comparison.is_fixed(pair):
            return Compared(self.grouping, comparison)
        return Partition(self.grouping)


def request_key(pair: Pair, names: tuple[str, ...], closure: ExprReferences) -> Any:
    """The part of a request that matters; all of it where anything may."""
    if closure.hidden:
        return pair  # kept by whoever keeps the answer, so that no other takes its place
    token = pair.token
    return tuple([token(name) for name in names])
