"""The machines' side of a match: what their Requirements make of a request.

Most machines of a pool have the same few Requirements; those that their owners wrote differ in the part about the
request alone, such as `Owner == "alice"`. For each kind of request the questions about it alone are answered first, and
the rest of the trees is put together again. So a hundred owners' wishes come down to a few different trees over
sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pool.classad import Expr
from pool.classad.compact import columns
from pool.policy.matching.bits import Bits
from pool.policy.matching.clauses import Clause, Question, Tree, clauses_of, deciding_attributes, questions, resolved
from pool.policy.matching.columns import Codes, Grouping, Partition
from pool.policy.matching.looking import NOTHING, ExprReferences, references_of
from pool.policy.matching.pairs import Pair, token
from pool.policy.matching.reducing import ALWAYS, NEVER, acceptance
from pool.policy.matching.solving import where_true

if TYPE_CHECKING:
    from pool.policy.matching.slot_index import SlotIndex

#: Kinds of requests that are remembered.
_KEPT = 4096


#: Lists of names that are tried for one text of Requirements, and passes over all ads until the names are known.
_WAYS = 4


def _deciding_value(value: Any) -> Any:
    """As `deciding_attributes` has it."""
    return value if type(value) is Expr else value is not None


class SlotKinds(Grouping):
    """Slots by the logic of their Requirements, attributes of their own in their places.

    The values of the groups are trees; None stands for no Requirements.
    """

    def __init__(self, watch: Callable[[str, Grouping], None]) -> None:
        self._watched = {"requirements"}
        self._watch = watch
        self._trees: dict[Any, Tree] = {}
        self._deciding: dict[Expr, list[tuple[str, ...]]] = {}
        super().__init__(("requirements",))

    def _number_all(self, ads: Sequence[Any]) -> None:
        for _ in range(_WAYS):
            groups = self._alike(ads, tuple(sorted(self._watched)))
            if groups is not None:
                self.groups.extend(groups)
                return
        self._number_one_by_one(ads)

    def _alike(self, ads: Sequence[Any], names: tuple[str, ...]) -> list[int] | None:
        """The group of each slot, where one is read of all that hold the same objects for these names; None where more
        names turned out to decide about the logic.
        """
        known: dict[tuple[int, ...], int] = {}  # by the ids of objects that the ads hold
        groups: list[int] = []
        for held, values in zip(ads, zip(*columns(ads, names), strict=True), strict=True):
            key = tuple(map(id, values))
            group = known.get(key)
            if group is None:
                group = known[key] = 0 if held is None else self._group_of(*self.read(held))
                if len(self._watched) != len(names):
                    return None
            groups.append(group)
        return groups

    def read(self, held: Mapping[str, Any]) -> tuple[Any, Any]:
        requirements = held.get("requirements")
        if requirements is None:
            return None, None
        if type(requirements) is not Expr:
            key: Any = token(requirements)
        else:
            ways = self._deciding.setdefault(requirements, [])
            for names in ways:
                # Names are read in an order that follows from the values: equal values, the same names.
                key = (requirements, tuple([(name, _deciding_value(held.get(name))) for name in names]))
                known = self._trees.get(key)
                if known is not None:
                    return known, key
            apart = deciding_attributes(requirements, held.get)
            for name, _ in apart:
                if name not in self._watched:
                    self._watched.add(name)
                    self._watch(name, self)
            key = (requirements, tuple(apart))
            way = tuple([name for name, _ in apart])
            if way not in ways and len(ways) < _WAYS:
                ways.append(way)
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = resolved(requirements, "machine", held.get)
        return tree, key


class Offers:
    """The requests that machines accept."""

    def __init__(self, picture: SlotIndex, kinds: SlotKinds) -> None:
        self._picture = picture
        self._kinds = kinds
        self._partition = Partition(kinds, wide=True)
        self._asked: ExprReferences = NOTHING
        self._counted = (0, 0)
        self._left: dict[Any, _Left] = {}

    def forget(self) -> None:
        """Machines hold what they did not."""
        self._left.clear()
        self._counted = (0, 0)

    def accepted(self, pair: Pair, among: Bits) -> Bits:
        """The slots of a set whose Requirements are true for the request."""
        ask = self._picture.asking(pair)
        found = 0
        for tree, slots in self._for(pair).by_tree():
            if tree is ALWAYS:
                found |= among & slots
            elif tree is not NEVER:
                here = among & slots
                if here:
                    found |= where_true(tree, ask, here)
        return found

    def _for(self, pair: Pair) -> _Left:
        """The rest of the trees for requests like this one."""
        asked = self._all_asked()
        bound = self._picture.bound(pair)
        known = bound.get(Offers)
        if known is not None and known[0] is asked and not known[1].is_stale():
            known_left: _Left = known[1]
            return known_left
        closure = self._picture.closure(asked, pair.request)
        key: Any = tuple([pair.token(name) for name in sorted(closure.names)])
        if closure.timed or closure.chance:
            key = (pair.now, key)
        found = self._left.get(key)
        if found is None:
            if len(self._left) >= _KEPT:
                self._left.clear()
            found = self._left[key] = _Left(self._kinds)
        if found.is_stale():
            found.answer(lambda question: self._answered(question, pair, closure))
        if not closure.timed and not closure.chance:
            bound[Offers] = asked, found
        return found

    def _all_asked(self) -> ExprReferences:
        """The references of all questions that are about the request alone."""
        kinds = self._kinds
        if self._counted != (kinds.epoch, len(kinds)):
            self._counted = (kinds.epoch, len(kinds))
            asked = NOTHING
            for question in {question for tree in kinds.values if tree is not None for question in questions(tree)}:
                closure = self._picture.closure(references_of(question.expr))
                if not closure.hidden and not self._picture.vocabulary.held(closure.names):
                    asked = asked | closure
            if asked != self._asked:
                self._asked = asked
                self._left.clear()
        return self._asked

    def _answered(self, question: Question, pair: Pair, known: ExprReferences) -> int | None:
        """The class of a question that looks at nothing of a machine, and of the request at no more than is known."""
        table = self._picture.table(question, pair)
        if table.closure.hidden or table.grouping.names or not table.closure.names <= known.names:
            return None
        return pair.answer_alone(question)

    def clauses(self) -> list[tuple[Clause, Bits]]:
        """The different clauses, with the slots that have each."""
        kinds, found = self._kinds, dict[Clause, Bits]()
        self._partition.follow_grouping(lambda codes: codes.extend(range(len(codes), len(kinds))))
        for code, slots in self._partition.bits.items():
            tree = kinds.values[code]
            if tree is not None:
                for clause in clauses_of(tree, "machine"):
                    found[clause] = found.get(clause, 0) | slots
        return list(found.items())


class _Left:
    """The rest of the machines' trees, once questions about a request alone are answered."""

    __slots__ = ("_codes", "_partition", "_trees")

    def __init__(self, kinds: SlotKinds) -> None:
        self._partition = Partition(kinds, wide=True)
        self._trees: list[Tree] = []
        self._codes: dict[Tree, int] = {}

    def is_stale(self) -> bool:
        return self._partition.is_stale()

    def answer(self, answered: Callable[[Question], int | None]) -> None:
        """Follow the machines."""
        kinds = self._partition.grouping
        known: dict[Question, int | None] = {}

        def answer_of(question: Question) -> int | None:
            if question not in known:
                known[question] = answered(question)
            return known[question]

        def extend(codes: Codes) -> None:
            for tree in kinds.values[len(codes) :]:
                left = NEVER if tree is None else acceptance(tree, answer_of)
                left = ALWAYS if left == ALWAYS else NEVER if left == NEVER else left
                code = self._codes.get(left)
                if code is None:
                    code = self._codes[left] = len(self._trees)
                    self._trees.append(left)
                codes.append(code)

        self._partition.follow_grouping(extend)

    def by_tree(self) -> list[tuple[Tree, Bits]]:
        """The different trees, with the slots for which each is left."""
        return [(self._trees[code], bits) for code, bits in self._partition.bits.items() if bits]
