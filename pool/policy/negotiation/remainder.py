"""Whether a request and a slot still match when a part of the slot was given away.

They matched when the whole slot was there. The parts of both Requirements that look at no resource of the slot still
hold. A comparison of one resource with what the request asks for is true from some amount on, or up to one: amounts
between two of which the answers are equal need not be asked about. Requirements in which resources stand otherwise are
left to the evaluator.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pool.classad.names import fold
from pool.policy.carve import STANDARD
from pool.policy.matching import Pair, SlotIndex
from pool.policy.matching.clauses import AllOf, NumberedPart, OwnAttribute, Question, Tree, questions
from pool.policy.matching.comparing import EXACT
from pool.policy.matching.pairs import TRUE

_FOLDED = {fold(name): name for name in STANDARD}
_RESOURCES = frozenset(_FOLDED)


class _Bound:
    """One comparison along the amounts of one resource.

    Attributes:
        name: of the resource.
    """

    __slots__ = ("_false", "_fill", "_pair", "_question", "_true", "name")

    def __init__(self, name: str, question: Question, pair: Pair, fill: Any) -> None:
        self.name = name
        self._question = question
        self._pair = pair
        self._fill = fill
        self._true: tuple[float, float] | None = None
        self._false: tuple[float, float] | None = None

    def holds(self, amount: float) -> bool:
        """Whether the comparison is true of an amount."""
        true, false = self._true, self._false
        if true is not None and true[0] <= amount <= true[1]:
            return True
        if false is not None and false[0] <= amount <= false[1]:
            return False
        self._fill(self._pair, amount)
        if self._pair.answer(self._question) == TRUE:
            self._true = _wider(true, amount)
            return True
        self._false = _wider(false, amount)
        return False


def _wider(span: tuple[float, float] | None, amount: float) -> tuple[float, float]:
    return (amount, amount) if span is None else (min(span[0], amount), max(span[1], amount))


class Remainder:
    """One request, within one cycle, beside slots that have less than they had."""

    def __init__(self, picture: SlotIndex, pair: Pair) -> None:
        self._picture = picture
        self._pair = pair
        self._tree = picture.tree_of(pair.request)
        self._by_tree: dict[int, tuple[Tree, list[_Bound] | None]] = {}

    def matches(self, place: int, left: Mapping[str, float]) -> bool | None:
        """Whether a slot that matched does so with this left; None where the evaluator has to say."""
        if len(left) > len(STANDARD):
            return None
        for tree in (self._tree, self._picture.machine_tree(place)):
            if tree is None:
                return None
            known = self._by_tree.get(id(tree))
            if known is None:
                known = self._by_tree[id(tree)] = tree, self._bounds(tree)
            bounds = known[1]
            if bounds is None:
                return None
            for bound in bounds:
                amount = left.get(bound.name)
                if amount is None:
                    continue
                if not -EXACT < amount < EXACT:
                    return None
                if not bound.holds(amount):
                    return False
        return True

    def _bounds(self, tree: Tree) -> list[_Bound] | None:
        """The comparisons in which a tree looks at resources; None where it does so in another way."""
        found: list[_Bound] = []
        for part in tree.parts if isinstance(tree, AllOf) else (tree,):
            if isinstance(part, NumberedPart):
                continue
            if isinstance(part, OwnAttribute):
                return None
            looked = [self._reads_resources(question) for question in questions(part)]
            if None in looked:
                return None
            if not any(looked):
                continue
            bound = self._bound(part) if isinstance(part, Question) else None
            if bound is None:
                return None
            found.append(bound)
        return found

    def _reads_resources(self, question: Question) -> bool | None:
        """Whether a question looks at resources; None where it may look at anything or draws numbers."""
        closure = self._picture.table(question, self._pair).closure
        if closure.hidden or closure.chance:
            return None
        return not closure.names.isdisjoint(_RESOURCES)

    def _bound(self, question: Question) -> _Bound | None:
        table = self._picture.table(question, self._pair)
        found = table.comparison
        if found is None or not found.ordered or found.addend is not None or not found.is_fixed(self._pair):
            return None
        if table.closure.names & _RESOURCES != {found.name}:
            return None
        return _Bound(_FOLDED[found.name], question, self._pair, table.grouping.fill)
