"""Ranks: a number for each group of machine values and each distinct request."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from pool.policy.matching.bits import Bits, places_below
from pool.policy.matching.columns import Codes, Grouping, Partition
from pool.policy.matching.looking import ExprReferences, attributes
from pool.policy.matching.pairs import Pair, number_of
from pool.policy.matching.tables import request_key

#: Distinct requests whose numbers are kept.
_KEPT = 1024


class Levels:
    """Slots by a number that follows from their group."""

    __slots__ = ("_epoch", "_numbers", "_order", "_partition", "_places", "_read", "_sets", "grouping")

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self._epoch = 0
        self._numbers: list[float] = []
        self._places: dict[float, int] = {}
        self._partition = Partition(grouping, wide=True)
        self._sets: list[tuple[float, Bits]] = []
        self._order: list[int] = []
        self._read = -1

    def follow_grouping(self, number: Callable[[Any], float]) -> None:
        """Follow the grouping."""
        grouping = self.grouping
        if self._epoch == grouping.epoch and len(self._numbers) == len(grouping):
            return
        if self._epoch != grouping.epoch:
            self._numbers.clear()
            self._places.clear()
            self._read = -1
            self._epoch = grouping.epoch
        for value in grouping.values[len(self._numbers) :]:
            found = number(value)
            self._numbers.append(found)
            self._places.setdefault(found, len(self._places))

    def __len__(self) -> int:
        """How many different numbers there are, of groups that exist or existed."""
        return len(self._places)

    def number(self, place: int) -> float:
        """The number of one slot."""
        return self._numbers[self.grouping.groups[place]]

    def sets(self) -> list[tuple[float, Bits]]:
        """The slots of each number, greatest first. Worth it while there are few. Not to be changed."""
        if self._partition.is_stale():
            places, numbers = self._places, self._numbers

            def extend(codes: Codes) -> None:
                codes.extend([places[number] for number in numbers[len(codes) :]])

            self._partition.follow_grouping(extend)
            bits = self._partition.bits
            ranked = sorted(places.items(), reverse=True)
            self._sets = [(number, bits[place]) for number, place in ranked if bits.get(place)]
        return self._sets

    def order(self) -> list[int]:
        """All places, those with the greatest number first. Not to be changed."""
        moved, groups, numbers = self.grouping.moved, self.grouping.groups, self._numbers
        if self._read < 0 or len(groups) != len(self._order):
            negative = [-numbers[group] for group in groups]
            self._order = sorted(places_below(len(groups)), key=negative.__getitem__)
        elif self._read < len(moved):
            self._order = _moved(self._order, set(moved[self._read :]), lambda place: (-numbers[groups[place]], place))
        self._read = len(moved)
        return self._order


def _moved(order: list[int], moved: set[int], key: Callable[[int], tuple[float, int]]) -> list[int]:
    """An order in which some have other numbers now; it and the moved ones are of the same places."""
    kept = [place for place in order if place not in moved]
    found: list[int] = []
    begin = 0
    for place in sorted(moved, key=key):
        end = bisect_left(kept, key(place), begin, key=key)
        found += kept[begin:end]
        found.append(place)
        begin = end
    found += kept[begin:]
    return found


class Ranks:
    """Numbers of machines for requests.

    Args:
        closure: all that a number can depend on.
        grouping: machines by those of the names that any of them holds.
        value: the rank's value, once `pair.machine` holds a group's values.
    """

    def __init__(self, closure: ExprReferences, grouping: Grouping, value: Callable[[Pair], Any]) -> None:
        self.closure = closure
        self.grouping = grouping
        self._value = value
        self._asked = tuple(sorted(attributes(closure.names)))
        self._fleeting = closure.timed or closure.hidden or closure.chance
        self._time: float | None = None
        self._levels: dict[Any, Levels] = {}

    def levels(self, pair: Pair) -> Levels:
        """The slots by their number for this request."""
        if self._fleeting and self._time != pair.now:
            self._levels.clear()
            self._time = pair.now
        key = request_key(pair, self._asked, self.closure)
        found = self._levels.get(key)
        if found is None:
            if len(self._levels) >= _KEPT:
                self._levels.clear()
            found = self._levels[key] = Levels(self.grouping)
        grouping, rank = self.grouping, self._value

        def number(value: Any) -> float:
            grouping.fill(pair, value)
            return number_of(rank(pair))

        found.follow_grouping(number)
        return found
