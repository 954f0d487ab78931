"""Comparisons of one attribute of machines with something that no machine changes: few groups need to be asked.

`TARGET.Disk >= RequestDisk` looks at an attribute that is different on every machine. Along its values in order the
answer changes once at the most, so that the place is found by halving; and an equality is asked of those that may be
equal, and of one of the rest. The answers are always the evaluator's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pool.classad import Expr
from pool.classad.names import fold
from pool.classad.nodes import Chain, Node, Paren, Ref
from pool.policy.matching.clauses import Question
from pool.policy.matching.columns import Grouping, Ordered
from pool.policy.matching.looking import attributes, look
from pool.policy.matching.pairs import Pair

_ORDER = frozenset({"<", "<=", ">", ">="})
_EQUALITY = frozenset({"==", "!=", "=?=", "=!="})

Decision = Callable[[Any], int]


class Comparison:
    """A comparison, and the other side of it."""

    __slots__ = ("name", "other", "question", "sign")

    def __init__(self, question: Question, name: str, sign: str, other: Expr) -> None:
        self.question = question
        self.name = name
        self.sign = sign
        self.other = other

    def settled(self, pair: Pair) -> bool:
        """Whether no machine has a say in the other side, by way of the request's own expressions."""
        waiting, seen = [look(self.other).names], set[str]()
        while waiting:
            for name in attributes(waiting.pop()) - seen:
                seen.add(name)
                if name == self.name:
                    return False
                waiting.append(look(pair.request.held(name)).names)
        return True

    def codes(self, pair: Pair, grouping: Grouping, decide: Decision) -> list[int]:
        """The class of each group."""
        values, ordered = grouping.values, grouping.ordered()
        found = [0] * len(values)
        for group in ordered.others:
            found[group] = decide(values[group])
        strings = [group for same in ordered.strings.values() for group in same]
        if self.sign in _ORDER:
            for group in strings:
                found[group] = decide(values[group])
            _step(found, decide, ordered.numbers, values)
            return found
        grouping.fill(pair, None)
        near = _near(ordered, pair.value(self.other, self.question.side, self.question.through))
        for group in near:
            found[group] = decide(values[group])
        for groups in (ordered.numbers, strings):
            for alike in _by_type([group for group in groups if group not in near], values):
                code = decide(values[alike[0]])
                for group in alike:
                    found[group] = code
        return found


def comparison(question: Question, grouping: Grouping) -> Comparison | None:
    """The question as such a comparison, if it has that form and machines are grouped by that attribute alone."""
    if not grouping.single:
        return None
    name = grouping.names[0]
    node = _bare(question.expr.node)
    if not isinstance(node, Chain) or len(node.rest) != 1 or node.rest[0][0] not in _ORDER | _EQUALITY:
        return None
    sign, right = node.rest[0]
    for one, other in ((node.first, right), (right, node.first)):
        if _is_attribute(_bare(one), name, question.side):
            return Comparison(question, name, sign, Expr(other))
    return None


def _step(codes: list[int], decide: Decision, groups: list[int], values: list[Any]) -> None:
    """Fill in a run of groups along which the class changes once at the most."""
    if not groups:
        return
    first, last = decide(values[groups[0]]), decide(values[groups[-1]])
    low, high = 0, len(groups) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if decide(values[groups[middle]]) == first:
            low = middle
        else:
            high = middle
    for place, group in enumerate(groups):
        codes[group] = first if place <= low else last


def _near(ordered: Ordered, value: Any) -> set[int]:
    """Groups whose value may be equal to this one."""
    kind = type(value)
    if kind is int or kind is float or kind is bool:
        return set(ordered.equal(value))
    if kind is str:
        return set(ordered.strings.get(value.lower(), ()))
    return set()


def _by_type(groups: list[int], values: list[Any]) -> list[list[int]]:
    """Whole numbers and reals are never `is` each other."""
    found: dict[type, list[int]] = {}
    for group in groups:
        found.setdefault(type(values[group]), []).append(group)
    return list(found.values())


def _bare(node: Node) -> Node:
    while isinstance(node, Paren):
        node = node.inner
    return node


def _is_attribute(node: Node, name: str, side: str) -> bool:
    """Whether a node is the machine's attribute and nothing else."""
    if not isinstance(node, Ref) or node.absolute or fold(node.name) != name:
        return False
    base = node.base
    if base is None:
        return True
    far = ("target", "other") if side == "request" else ("my", "self")
    return isinstance(base, Ref) and base.base is None and not base.absolute and base.name.lower() in far
