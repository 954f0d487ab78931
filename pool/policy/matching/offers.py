"""The machines' side of a match: what their Requirements make of a request.

Most machines of a pool have the same few Requirements; owners' own differ in what they ask of the request alone, such
as `Owner == "alice"`. For one request every question about it alone is answered first, and what then is left of the
trees is put together again, so that a hundred owners' wishes come down to a few different trees over sets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pool.classad import Expr
from pool.policy.matching.bits import Bits
from pool.policy.matching.clauses import (
    Clause,
    Question,
    Tree,
    clauses_of,
    consulted,
    resolved,
)
from pool.policy.matching.columns import Grouping, Partition, token
from pool.policy.matching.pairs import Pair
from pool.policy.matching.solving import where_true
from pool.policy.matching.tables import Table


class Kinds(Grouping):
    """Slots by the logic of their Requirements, attributes of their own in their places.

    The values of the groups are trees; None stands for no Requirements.
    """

    def __init__(self, watch: Callable[[str, Grouping], None]) -> None:
        self._watched = {"requirements"}
        self._watch = watch
        self._trees: dict[Any, Tree] = {}
        super().__init__(("requirements",))

    def read(self, held: Mapping[str, Any]) -> tuple[Any, Any]:
        requirements = held.get("requirements")
        if requirements is None:
            return None, None
        if type(requirements) is not Expr:
            key: Any = token(requirements)
        else:
            apart = consulted(requirements, held.get)
            for name, _ in apart:
                if name not in self._watched:
                    self._watched.add(name)
                    self._watch(name, self)
            key = (requirements, tuple(apart))
        tree = self._trees.get(key)
        if tree is None:
            tree = self._trees[key] = resolved(requirements, "machine", held.get)
        return tree, key


class Offers:
    """What machines accept.

    Args:
        kinds: the slots by their Requirements.
        table: the answers to a question, up to date.
    """

    def __init__(self, kinds: Kinds, table: Callable[[Question, Pair], Table]) -> None:
        self._kinds = kinds
        self._table = table
        self._partition: Partition | None = None

    def accepted(self, pair: Pair, among: Bits) -> Bits:
        """The slots of a set whose Requirements are true for the request."""
        found = 0
        for tree, slots in self._by_kind():
            here = among & slots
            if here and tree is not None:
                found |= where_true(tree, lambda question: self._table(question, pair).answers(pair).bits, here)
        return found

    def clauses(self) -> list[tuple[Clause, Bits]]:
        """The different clauses, with the slots that have each."""
        found: dict[Clause, Bits] = {}
        for tree, slots in self._by_kind():
            if tree is not None:
                for clause in clauses_of(tree, "machine"):
                    found[clause] = found.get(clause, 0) | slots
        return list(found.items())

    def _by_kind(self) -> list[tuple[Tree | None, Bits]]:
        kinds = self._kinds
        if self._partition is None:
            self._partition = Partition(kinds)
        self._partition.settle(lambda codes: codes.extend(range(len(codes), len(kinds))))
        return [(kinds.values[code], bits) for code, bits in self._partition.bits.items()]
