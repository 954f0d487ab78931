"""Comparisons of one attribute of machines with something that no machine changes: few groups need to be asked.

`TARGET.Disk >= RequestDisk` reads an attribute that is different on every machine. Along its values in order the answer
changes once at the most, so that the place is found by bisection. An equality is evaluated for the values that may be
equal, and for one of the rest. The answers are always the evaluator's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pool.classad import Expr
from pool.classad.names import fold
from pool.classad.nodes import Chain, ExprNode, Paren, Ref
from pool.policy.matching.bits import Bits, bits_of
from pool.policy.matching.clauses import Question
from pool.policy.matching.columns import Grouping, Partition
from pool.policy.matching.looking import attributes, references_of
from pool.policy.matching.pairs import Pair

_ORDER = frozenset({"<", "<=", ">", ">="})
_EQUALITY = frozenset({"==", "!=", "=?=", "=!="})
#: Integers and reals that compare exactly, whichever type the other operand has.
_EXACT = 2.0**53
#: Sets that are kept of an order, at equal distances.
_SETS = 256

Decision = Callable[[Any], int]


class Comparison:
    """A comparison, and the other side of it."""

    __slots__ = ("name", "ordered", "other", "question")

    def __init__(self, question: Question, name: str, sign: str, other: Expr) -> None:
        self.question = question
        self.name = name
        self.ordered = sign in _ORDER
        self.other = other

    def is_fixed(self, pair: Pair) -> bool:
        """Whether no machine has a say in the other side, by way of the request's own expressions."""
        waiting, seen = [references_of(self.other).names], set[str]()
        while waiting:
            for name in attributes(waiting.pop()) - seen:
                seen.add(name)
                if name == self.name:
                    return False
                if name in pair.expressions:
                    waiting.append(references_of(pair.request.held(name)).names)
        return True


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


def _bare(node: ExprNode) -> ExprNode:
    while isinstance(node, Paren):
        node = node.inner
    return node


def _is_attribute(node: ExprNode, name: str, side: str) -> bool:
    """Whether a node is the machine's attribute and nothing else."""
    if not isinstance(node, Ref) or node.absolute or fold(node.name) != name:
        return False
    base = node.base
    if base is None:
        return True
    far = ("target", "other") if side == "request" else ("my", "self")
    return isinstance(base, Ref) and base.base is None and not base.absolute and base.name.lower() in far


class Ordered:
    """Slots of a grouping of one name by their value, at one moment.

    Args:
        places: which slots; all of them by default.

    Attributes:
        numbers: (value, group) of plain numbers, by value.
        strings: groups of strings, by the string without regard to case.
        others: every other group.
        bits: the slots.
    """

    def __init__(self, grouping: Grouping, places: Iterable[int] | None = None) -> None:
        self.moment = moment(grouping)
        self.numbers: list[tuple[float, int]] = []
        self.strings: dict[str, list[int]] = {}
        self.others: list[int] = []
        self._size = len(grouping.groups)
        self._places: dict[int, list[int]] = {}
        groups, by_group = grouping.groups, self._places
        for place in range(self._size) if places is None else places:
            by_group.setdefault(groups[place], []).append(place)
        for group in by_group:
            value = grouping.values[group]
            kind = type(value)
            if (kind is int or kind is float) and -_EXACT < value < _EXACT:
                self.numbers.append((value, group))
            elif kind is str and value.isascii():
                self.strings.setdefault(value.lower(), []).append(group)
            else:
                self.others.append(group)
        self.numbers.sort()
        self.bits = self.slots_of(list(by_group))
        self._sums: list[tuple[int, Bits]] = []
        self._sum_up()
        self._kinds: dict[type, Bits] = {}
        for kind in dict.fromkeys(type(value) for value, _ in self.numbers):
            self._kinds[kind] = self.slots_of([group for value, group in self.numbers if type(value) is kind])
        if self.strings:
            self._kinds[str] = self.slots_of([group for some in self.strings.values() for group in some])

    def _sum_up(self) -> None:
        """Sets of the slots with the least numbers, every so many slots."""
        total, begun, count = 0, 0, 0
        stride = 1 + sum(map(len, self._places.values())) // _SETS
        self._sums.append((0, 0))
        for position, (_, group) in enumerate(self.numbers):
            count += len(self._places[group])
            if count >= stride:
                total |= self.slots_of([group for _, group in self.numbers[begun : position + 1]])
                begun, count = position + 1, 0
                self._sums.append((begun, total))

    def slots_of(self, groups: Sequence[int]) -> Bits:
        """The slots of some groups."""
        places = self._places
        return bits_of([place for group in groups for place in places[group]], self._size)

    def kinds(self) -> dict[type, Bits]:
        """The slots with a plain number or a string, by its type."""
        return self._kinds

    def first(self, count: int) -> Bits:
        """The slots of so many of the least numbers."""
        begun, total = self._sums[bisect_right(self._sums, count, key=lambda entry: entry[0]) - 1]
        return total | self.slots_of([group for _, group in self.numbers[begun:count]])

    def between(self, least: float, most: float) -> Bits:
        """The slots with plain numbers from one to another."""
        begin = bisect_left(self.numbers, least, key=_value_of)
        end = bisect_right(self.numbers, most, key=_value_of)
        return self.first(end) & ~self.first(begin) if end > begin else 0

    def groups_in(self, bits: Bits) -> list[int]:
        """The groups of which any slot is in a set."""
        if not bits:
            return []
        digits = bin(bits)[:1:-1].ljust(self._size, "0")
        return [group for group, places in self._places.items() if digits[places[0]] == "1"]

    def sample(self, kind: type, near: set[int]) -> int | None:
        """A group with a value of a type, not among these."""
        if kind is str:
            groups = (group for some in self.strings.values() for group in some)
        else:
            groups = (group for value, group in self.numbers if type(value) is kind)
        return next((group for group in groups if group not in near), None)

    def groups_near(self, value: Any) -> set[int]:
        """Groups whose value may be equal to this one."""
        kind = type(value)
        if kind is str:
            return set(self.strings.get(value.lower(), ()))
        found: set[int] = set()
        if kind is int or kind is float or kind is bool:
            for place in range(bisect_left(self.numbers, (value, -1)), len(self.numbers)):
                if self.numbers[place][0] != value:
                    break
                found.add(self.numbers[place][1])
        return found


def _value_of(entry: tuple[float, int]) -> float:
    return entry[0]


def moment(grouping: Grouping) -> tuple[int, int, int]:
    """Tells a grouping from itself after slots have moved."""
    return grouping.epoch, len(grouping.moved), len(grouping.groups)


class Compared(Partition):
    """The slots by the class of a comparison. Known answers for some values tell the class of most others."""

    __slots__ = ("_comparison", "_known")

    def __init__(self, grouping: Grouping, comparison: Comparison) -> None:
        super().__init__(grouping)
        self._comparison = comparison
        self._known: _Step | _Equal = _Step([], [])

    def follow(
        self, pair: Pair, decide: Decision, ordered: Callable[[], Ordered], moved: Callable[[int], Ordered]
    ) -> None:
        """Follow the grouping.

        Args:
            decide: the class for a group's value.
            ordered: gives the slots by value as they are now.
            moved: gives those that have moved since the grouping had so many moves.
        """
        grouping = self.grouping
        if self.is_new() or len(grouping.moved) - self.read > len(grouping.groups) // 8:
            self._compare(pair, decide, ordered())
        else:
            some = moved(self.read)
            found = self._known.codes_of(some)
            left = some.bits
            for bits in found.values():
                left &= ~bits
            for group in some.groups_in(left):
                code = decide(grouping.values[group])
                found[code] = found.get(code, 0) | some.slots_of([group])
            self.replace(some.bits, found, decide(grouping.values[0]))
        self.mark()

    def _compare(self, pair: Pair, decide: Decision, ordered: Ordered) -> None:
        values, found = self.grouping.values, dict[int, Bits]()
        alone = list(ordered.others)
        if self._comparison.ordered:
            alone.extend(group for some in ordered.strings.values() for group in some)
            step, sets = _step(decide, ordered, values)
            self._known = step
            for code, bits in sets:
                found[code] = found.get(code, 0) | bits
        else:
            question = self._comparison.question
            self.grouping.fill(pair, None)
            value = pair.value(self._comparison.other, question.side, question.through)
            near = ordered.groups_near(value)
            self._known = equal = _Equal(value)
            alone.extend(sorted(near))
            beside = ~ordered.slots_of(sorted(near))
            for kind, bits in ordered.kinds().items():
                sample = ordered.sample(kind, near)
                if sample is not None:
                    code = equal.codes[kind] = decide(values[sample])
                    found[code] = found.get(code, 0) | bits & beside
        by_code: dict[int, list[int]] = {}
        for group in alone:
            by_code.setdefault(decide(values[group]), []).append(group)
        for code, some in by_code.items():
            found[code] = found.get(code, 0) | ordered.slots_of(some)
        self.bits = found


class _Step:
    """Where along the numbers the class changes: runs of one class each."""

    __slots__ = ("_codes", "_runs")

    def __init__(self, runs: list[tuple[float, float]], codes: list[int]) -> None:
        self._runs = runs
        self._codes = codes

    def codes_of(self, slots: Ordered) -> dict[int, Bits]:
        """The slots by their class, where it follows from what was asked."""
        found: dict[int, Bits] = {}
        for (least, most), code in zip(self._runs, self._codes, strict=True):
            found[code] = found.get(code, 0) | slots.between(least, most)
        return found


class _Equal:
    """The value to compare with, and the classes of values that are not equal to it, by their type."""

    __slots__ = ("_value", "codes")

    def __init__(self, value: Any) -> None:
        self._value = value
        self.codes: dict[type, int] = {}

    def codes_of(self, slots: Ordered) -> dict[int, Bits]:
        """The slots by their class, where it follows from what was asked."""
        found: dict[int, Bits] = {}
        beside = ~slots.slots_of(sorted(slots.groups_near(self._value)))
        for kind, bits in slots.kinds().items():
            code = self.codes.get(kind)
            if code is not None:
                found[code] = found.get(code, 0) | bits & beside
        return found


def _step(decide: Decision, ordered: Ordered, values: Sequence[Any]) -> tuple[_Step, list[tuple[int, Bits]]]:
    """The slots with plain numbers, along which the class changes once at the most."""
    numbers = ordered.numbers
    if not numbers:
        return _Step([], []), []
    low, high = 0, len(numbers) - 1
    least, most = numbers[low][0], numbers[high][0]
    first, last = decide(values[numbers[low][1]]), decide(values[numbers[high][1]])
    if first == last:
        return _Step([(least, most)], [first]), [(first, ordered.first(len(numbers)))]
    while high - low > 1:
        middle = (low + high) // 2
        if decide(values[numbers[middle][1]]) == first:
            low = middle
        else:
            high = middle
    lower = ordered.first(high)
    runs = [(-_EXACT, numbers[low][0]), (numbers[high][0], _EXACT)]
    return _Step(runs, [first, last]), [(first, lower), (last, ordered.first(len(numbers)) & ~lower)]
