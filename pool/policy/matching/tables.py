"""One question asked of all machines: an answer for each group of machine values and each distinct request.

Requests that hold the same for the names that matter share their answers, and machines that do are one group. Answers
are kept until the machines or the names change; those that depend on the time are kept for that time only.
"""

from __future__ import annotations

from typing import Any

from pool.policy.matching.clauses import Question
from pool.policy.matching.columns import Extension, Grouping, Partition, token
from pool.policy.matching.comparing import comparison
from pool.policy.matching.looking import Look, attributes
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
    """

    def __init__(self, question: Question, closure: Look, grouping: Grouping) -> None:
        self.question = question
        self.closure = closure
        self.grouping = grouping
        self._asked = tuple(sorted(attributes(closure.names)))
        self._fleeting = closure.timed or closure.hidden or closure.chance
        self._time: float | None = None
        self._answers: dict[Any, Partition] = {}
        self._comparison = comparison(question, grouping)

    def answers(self, pair: Pair) -> Partition:
        """The slots by the class of the question's value."""
        if self._fleeting and self._time != pair.now:
            self._answers.clear()
            self._time = pair.now
        key = request_key(pair, self._asked, self.closure)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _KEPT:
                self._answers.clear()
            found = self._answers[key] = Partition(self.grouping)
        found.settle(self._extension(pair))
        return found

    def _extension(self, pair: Pair) -> Extension:
        grouping, question = self.grouping, self.question

        def decide(value: Any) -> int:
            grouping.fill(pair, value)
            return pair.answer(question)

        def extend(codes: list[int]) -> None:
            compared = self._comparison
            if compared and len(grouping) - len(codes) > _FEW and compared.settled(pair):
                codes[:] = compared.codes(pair, grouping, decide)
            codes.extend([decide(value) for value in grouping.values[len(codes) :]])

        return extend


def request_key(pair: Pair, names: tuple[str, ...], closure: Look) -> Any:
    """What of a request matters; all of it where anything may."""
    if closure.hidden:
        return pair  # kept by whoever keeps the answer, so that no other takes its place
    held = pair.request.held
    return tuple([token(held(name)) for name in names])
