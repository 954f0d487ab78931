"""Comparisons of one attribute of machines with something that no machine changes: few groups need to be asked.

`TARGET.Disk >= RequestDisk` reads an attribute that is different on every machine. Along its values in order the answer
changes once at the most, so that the place is found by bisection. An equality is evaluated for the values that may be
equal, and for one of the rest. The answers are always the evaluator's own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from pool.classad import Expr
from pool.classad.names import fold
from pool.classad.nodes import Chain, Elvis, ExprNode, Paren, Ref
from pool.policy.matching.bits import Bits, bits_of, full, members, places_below
from pool.policy.matching.clauses import Question
from pool.policy.matching.columns import Grouping, Partition
from pool.policy.matching.looking import attributes, references_of
from pool.policy.matching.pairs import Pair

_ORDER = frozenset({"<", "<=", ">", ">="})
_EQUALITY = frozenset({"==", "!=", "=?=", "=!="})
#: Integers and reals that compare exactly, whichever type the other operand has.
EXACT = 2.0**53
#: Sets that are kept of an order, at equal distances.
_SETS = 256

Decision = Callable[[Any], int]


class Comparison:
    """A comparison of an attribute, or of its sum or difference with something else.

    Attributes:
        other: the other side of it.
        addend: what the attribute is added to, subtracted from or lessened by; None where it stands by itself.
    """

    __slots__ = ("addend", "name", "ordered", "other", "question")

    def __init__(self, question: Question, name: str, sign: str, other: Expr, addend: Expr | None = None) -> None:
        self.question = question
        self.name = name
        self.ordered = sign in _ORDER
        self.other = other
        self.addend = addend

    def is_fixed(self, pair: Pair) -> bool:
        """Whether no machine has a say in the other side, by way of the request's own expressions."""
        waiting, seen = [references_of(self.other).names], set[str]()
        if self.addend is not None:
            waiting.append(references_of(self.addend).names)
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
        if sign in _ORDER and (addend := _addend(_bare(one), name, question.side)) is not None:
            return Comparison(question, name, sign, Expr(other), Expr(addend))
    return None


def _addend(node: ExprNode, name: str, side: str) -> ExprNode | None:
    """The other part of a sum or difference with the machine's attribute, as `time()` in `time() - JobStart`. Such a
    sum never turns back along the attribute's values.
    """
    if not isinstance(node, Chain) or len(node.rest) != 1 or node.rest[0][0] not in ("+", "-"):
        return None
    _, right = node.rest[0]
    if _is_attribute(_bare(node.first), name, side):
        return right
    return node.first if _is_attribute(_bare(right), name, side) else None


def _bare(node: ExprNode) -> ExprNode:
    while isinstance(node, Paren):
        node = node.inner
    return node


def _is_attribute(node: ExprNode, name: str, side: str) -> bool:
    """Whether a node is the machine's attribute and nothing else, or that with something for where there is none."""
    if isinstance(node, Elvis):
        return _is_attribute(_bare(node.left), name, side)
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
        numbers: the plain numbers that slots have, the least first, one for each slot.
        bits: the slots.
        size: how many places there were.
    """

    def __init__(self, grouping: Grouping, places: Iterable[int] | None = None) -> None:
        self.moment = grouping.moment
        self.size = len(grouping.groups)
        groups, values = grouping.groups, grouping.values
        where: Sequence[int] = places_below(self.size) if places is None else list(places)
        here = groups if places is None else [groups[place] for place in where]
        occurring = dict.fromkeys(here)
        kinds = _kinds_of([values[group] for group in occurring], occurring)
        self._by_group: dict[int, list[int]] = {}
        numbered: Sequence[int] = where
        if not _NUMBERS.issuperset(kinds.values()):
            numbered = [place for place, group in zip(where, here, strict=True) if kinds[group] in _NUMBERS]
            for place, group in zip(where, here, strict=True):
                if kinds[group] not in _NUMBERS:
                    self._by_group.setdefault(group, []).append(place)
        self._strings: dict[str, list[int]] = {}
        self._others: dict[int, list[int]] = {}
        for group, some in self._by_group.items():
            if kinds[group] is str:
                self._strings.setdefault(values[group].lower(), []).append(group)
            else:
                self._others[group] = some
        numbers = {group: values[group] for group, kind in kinds.items() if kind in _NUMBERS}
        if places is None:
            self._places = sorted(numbered, key=[numbers.get(group, 0) for group in groups].__getitem__)
        else:
            self._places = sorted(numbered, key=lambda place: numbers[groups[place]])
        self._groups = list(map(groups.__getitem__, self._places))
        self.numbers: list[float] = list(map(numbers.__getitem__, self._groups))
        self.bits: Bits = full(self.size) if places is None else bits_of(where, self.size)
        self._stride = 1 + len(self._places) // _SETS
        self._sums: list[Bits] = [0]
        for begin in range(0, len(self._places), self._stride):
            self._sums.append(self._sums[-1] | bits_of(self._places[begin : begin + self._stride], self.size))
        self._kinds: dict[type, Bits] = self._bits_by_kind(kinds)

    def _bits_by_kind(self, kinds: Mapping[int, type]) -> dict[type, Bits]:
        found: dict[type, Bits] = {}
        occurring = dict.fromkeys(map(type, self.numbers))
        for kind in occurring:
            if len(occurring) == 1:
                found[kind] = self._sums[-1]
            else:
                pairs = zip(self._places, self._groups, strict=True)
                found[kind] = bits_of([place for place, group in pairs if kinds[group] is kind], self.size)
        if self._strings:
            found[str] = self.slots_of([group for some in self._strings.values() for group in some])
        return found

    def slots_of(self, groups: Iterable[int]) -> Bits:
        """The slots of some groups that are no plain numbers."""
        return bits_of([place for group in groups for place in self._by_group[group]], self.size)

    def kinds(self) -> dict[type, Bits]:
        """The slots with a plain number or a string, by its type."""
        return self._kinds

    def first(self, count: int) -> Bits:
        """So many slots with the least numbers."""
        sums = count // self._stride
        rest = self._places[sums * self._stride : count]
        return self._sums[sums] | bits_of(rest, self.size) if rest else self._sums[sums]

    def between(self, least: float, most: float) -> Bits:
        """The slots with plain numbers from one to another."""
        begin, end = bisect_left(self.numbers, least), bisect_right(self.numbers, most)
        return self.first(end) & ~self.first(begin) if end > begin else 0

    def apart(self, *, strings: bool, numbers: bool = False) -> dict[int, list[int]]:
        """By group the places of slots with neither a plain number nor a string, and on demand of the others."""
        found = dict(self._by_group if strings else self._others)
        if numbers:
            for place, group in zip(self._places, self._groups, strict=True):
                found.setdefault(group, []).append(place)
        return found

    def sample(self, kind: type, near: Collection[int]) -> int | None:
        """A group with a value of a type, not among these."""
        if kind is str:
            groups = (group for some in self._strings.values() for group in some)
        else:
            pairs = zip(self.numbers, self._groups, strict=True)
            groups = (group for value, group in pairs if type(value) is kind)
        return next((group for group in groups if group not in near), None)

    def near(self, value: Any) -> dict[int, list[int]]:
        """By group the places of slots whose value may be equal to this one."""
        kind = type(value)
        if kind is str:
            return {group: self._by_group[group] for group in self._strings.get(value.lower(), ())}
        found: dict[int, list[int]] = {}
        if kind is int or kind is float or kind is bool:
            for at in range(bisect_left(self.numbers, value), bisect_right(self.numbers, value)):
                found.setdefault(self._groups[at], []).append(self._places[at])
        return found


class _Other:
    """The kind of whatever is neither a plain number nor a string."""


_OTHER: type = _Other
_NUMBERS = frozenset({int, float})


def is_exact(value: Any) -> bool:
    """Whether a value is a plain number that compares exactly with any other."""
    return type(value) in _NUMBERS and -EXACT < value < EXACT


def _kinds_of(values: Sequence[Any], groups: Iterable[int]) -> dict[int, type]:
    """The kind of each group's value."""
    if set(map(type, values)) == {int} and min(values) > -EXACT and max(values) < EXACT:
        return dict.fromkeys(groups, int)
    return dict(zip(groups, map(_kind_of, values), strict=True))


def _kind_of(value: Any) -> type:
    kind: type = type(value)
    if kind in _NUMBERS:
        return kind if -EXACT < value < EXACT else _OTHER
    return kind if kind is str and value.isascii() else _OTHER


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
            before = ordered()
            self._compare(pair, decide, before)
            self.mark_at(before.moment)
        if self.is_stale():
            some = moved(self.read)
            found = self._known.codes_of(some)
            left = some.bits
            for bits in found.values():
                left &= ~bits
            apart: dict[int, list[int]] = {}
            for place in members(left):
                apart.setdefault(grouping.groups[place], []).append(place)
            self._decide_each(apart, decide, found)
            self.replace(some.bits, found, decide(grouping.values[0]))
        self.mark()

    def _compare(self, pair: Pair, decide: Decision, ordered: Ordered) -> None:
        values, found = self.grouping.values, dict[int, Bits]()
        if self._comparison.ordered:
            turning = not self._is_monotonic(pair)
            apart = ordered.apart(strings=True, numbers=turning)
            self._known = _Step([], [])
            if not turning:
                self._known, sets = _step(decide, ordered)
                for code, bits in sets:
                    found[code] = found.get(code, 0) | bits
        else:
            question = self._comparison.question
            self.grouping.fill(pair, None)
            value = pair.value(self._comparison.other, question.side, question.through)
            near = ordered.near(value)
            self._known = equal = _Equal(value)
            apart = ordered.apart(strings=False) | near
            beside = ~_slots_in(near, len(self.grouping.groups))
            for kind, bits in ordered.kinds().items():
                sample = ordered.sample(kind, near)
                if sample is not None:
                    code = equal.codes[kind] = decide(values[sample])
                    found[code] = found.get(code, 0) | bits & beside
        self._decide_each(apart, decide, found)
        self.bits = found

    def _is_monotonic(self, pair: Pair) -> bool:
        """Whether the side of the attribute never turns back: sums of numbers that are small enough do not."""
        addend, question = self._comparison.addend, self._comparison.question
        if addend is None:
            return True
        self.grouping.fill(pair, None)
        value = pair.value(addend, question.side, question.through)
        return is_exact(value)

    def _decide_each(self, apart: Mapping[int, Sequence[int]], decide: Decision, found: dict[int, Bits]) -> None:
        """Add the slots of groups to the classes of their values."""
        values, by_code = self.grouping.values, dict[int, list[int]]()
        for group, places in apart.items():
            by_code.setdefault(decide(values[group]), []).extend(places)
        for code, some in by_code.items():
            found[code] = found.get(code, 0) | bits_of(some, len(self.grouping.groups))


def _slots_in(by_group: Mapping[int, Sequence[int]], size: int) -> Bits:
    return bits_of([place for places in by_group.values() for place in places], size)


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
        beside = ~_slots_in(slots.near(self._value), slots.size)
        for kind, bits in slots.kinds().items():
            code = self.codes.get(kind)
            if code is not None:
                found[code] = found.get(code, 0) | bits & beside
        return found


def _step(decide: Decision, ordered: Ordered) -> tuple[_Step, list[tuple[int, Bits]]]:
    """The slots with plain numbers, along which the class changes once at the most."""
    numbers = ordered.numbers
    if not numbers:
        return _Step([], []), []
    low, high = 0, len(numbers) - 1
    least, most = numbers[low], numbers[high]
    first, last = decide(least), decide(most)
    if first == last:
        return _Step([(least, most)], [first]), [(first, ordered.first(len(numbers)))]
    while high - low > 1:
        middle = (low + high) // 2
        if decide(numbers[middle]) == first:
            low = middle
        else:
            high = middle
    lower = ordered.first(high)
    runs = [(-EXACT, numbers[low]), (numbers[high], EXACT)]
    return _Step(runs, [first, last]), [(first, lower), (last, ordered.first(len(numbers)) & ~lower)]
