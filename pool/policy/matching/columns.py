"""Slots grouped by what they hold for some names, and sets of slots that follow from their group.

A `Grouping` numbers the distinct combinations of values that occur; a slot whose ad changes moves to another group.
A `Partition` gives each group a code, by a decision that is asked once for each group, and keeps for each code the set
of slots. When slots have moved since it was last looked at, only they are looked at again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.classad import Expr
from pool.policy.matching.bits import Bits, bits_of, full, marked
from pool.policy.matching.pairs import NOBODY, Pair

Held = Mapping[str, Any]
#: Integers and reals that compare exactly, whichever type the other operand has.
_EXACT = 2**53


def token(value: Any) -> Any:
    """What tells a held value from every other: equal only for the same type and value."""
    kind = type(value)
    if kind is str or kind is int or kind is Expr:
        return value
    if kind is float:
        return (float, value.hex())
    return (kind, value)


class Grouping:
    """Slots by what they hold for some names.

    Args:
        names: folded names.

    Attributes:
        values: for each group what its slots hold: a value where there is one name, else a tuple; None is nothing.
        groups: for each slot its group; 0, the group of nothing, for a place without a slot.
        moved: places of slots that came into another group, in order; may repeat.
        epoch: changes when groups are numbered anew, and `moved` begins again.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.single = len(self.names) == 1
        self.epoch = 0
        self._dirty: dict[int, None] = {}
        self._begin()

    def _begin(self) -> None:
        self.epoch += 1
        self.values: list[Any] = []
        self.groups: list[int] = []
        self.moved: list[int] = []
        self._numbers: dict[Any, int] = {}
        self._ordered: Ordered | None = None
        self._group_of({})

    def __len__(self) -> int:
        return len(self.values)

    def touch(self, place: int) -> None:
        """Say that a slot's ad changed in a way that may matter."""
        self._dirty[place] = None

    def settle(self, ads: Sequence[Any]) -> None:
        """Follow the ads: move the slots that were touched."""
        if not self._dirty:
            return
        if len(self.moved) > 4 * len(ads) + 1000 or len(self.values) > 2 * len(ads) + 1000:
            self._begin()
            self._dirty = dict.fromkeys(place for place, held in enumerate(ads) if held is not None)
        groups, moved = self.groups, self.moved
        if len(groups) < len(ads):
            groups.extend([0] * (len(ads) - len(groups)))
        for place in self._dirty:
            held = ads[place]
            group = 0 if held is None else self._group_of(held)
            if group != groups[place]:
                groups[place] = group
                moved.append(place)
        self._dirty.clear()

    def _group_of(self, held: Held) -> int:
        value, key = self.read(held)
        group = self._numbers.get(key)
        if group is None:
            group = self._numbers[key] = len(self.values)
            self.values.append(value)
        return group

    def read(self, held: Held) -> tuple[Any, Any]:
        """What counts of an ad, and a key for it."""
        if self.single:
            value = held.get(self.names[0])
            return value, token(value)
        values = tuple([held.get(name) for name in self.names])
        return values, tuple([token(value) for value in values])

    def fill(self, pair: Pair, value: Any) -> None:
        """Put a group's slots on the machine's side of a pair."""
        if pair.whole:
            pair.stand(None)
        machine = pair.machine
        machine.clear()
        if self.single:
            if value is not None:
                machine[self.names[0]] = value
            return
        for name, one in zip(self.names, value, strict=True):
            if one is not None:
                machine[name] = one

    def ordered(self) -> Ordered:
        """The groups of a single name by value."""
        found = self._ordered
        if found is None or found.count != len(self.values):
            found = self._ordered = Ordered(self.values)
        return found


class Ordered:
    """Groups of one name by value: numbers in order, strings without regard to case, and whatever else.

    Attributes:
        count: how many groups there were.
        numbers: groups of plain numbers, by value.
        keys: their values, in the same order.
    """

    __slots__ = ("count", "keys", "numbers", "others", "strings")

    def __init__(self, values: Sequence[Any]) -> None:
        self.count = len(values)
        plain: list[tuple[float, int]] = []
        self.strings: dict[str, list[int]] = {}
        self.others: list[int] = []
        for group, value in enumerate(values):
            kind = type(value)
            if (kind is int or kind is float) and -_EXACT < value < _EXACT:
                plain.append((value, group))
            elif kind is str and value.isascii():
                self.strings.setdefault(value.lower(), []).append(group)
            else:
                self.others.append(group)
        plain.sort()
        self.numbers = [group for _, group in plain]
        self.keys = [value for value, _ in plain]

    def equal(self, value: float) -> list[int]:
        """Groups of numbers equal to a plain number."""
        found = []
        for place in range(bisect_left(self.keys, value), len(self.keys)):
            if self.keys[place] != value:
                break
            found.append(self.numbers[place])
        return found


Extension = Callable[[list[int]], None]
"""Appends the codes of the groups that have none yet."""

#: Codes that are counted in a string of bytes; more are kept as lists.
_BYTE = 256


class Partition:
    """Slots by a code that follows from their group.

    Attributes:
        bits: for each code that occurs the set of slots; places without a slot may be in any of them.
        codes: the code of each group.
    """

    __slots__ = ("_epoch", "_read", "_size", "bits", "codes", "grouping")

    def __init__(self, grouping: Grouping) -> None:
        self.grouping = grouping
        self.bits: dict[int, Bits] = {}
        self.codes: list[int] = []
        self._epoch = 0
        self._read = 0
        self._size = 0

    def settle(self, extend: Extension) -> None:
        """Follow the grouping."""
        grouping = self.grouping
        size = len(grouping.groups)
        if self._epoch == grouping.epoch and self._read == len(grouping.moved) and self._size == size:
            return
        if self._epoch != grouping.epoch:
            self.codes.clear()
            extend(self.codes)
            self._rebuild()
        else:
            extend(self.codes)
            if len(grouping.moved) - self._read > size // 8:
                self._rebuild()
            else:
                self._follow()
        self._epoch, self._read, self._size = grouping.epoch, len(grouping.moved), size

    def _follow(self) -> None:
        """Put those slots right that have moved."""
        codes, groups = self.codes, self.grouping.groups
        size = len(groups)
        places = dict.fromkeys(self.grouping.moved[self._read :])
        by_code: dict[int, list[int]] = {}
        for place in places:
            by_code.setdefault(codes[groups[place]], []).append(place)
        for place in range(self._size, size):
            if groups[place] == 0:
                by_code.setdefault(codes[0], []).append(place)
        kept = ~bits_of(places, size)
        for code in sorted(self.bits.keys() | by_code.keys()):
            self.bits[code] = self.bits.get(code, 0) & kept | bits_of(by_code.get(code, ()), size)

    def _rebuild(self) -> None:
        codes, groups = self.codes, self.grouping.groups
        occurring = set(codes)
        if len(occurring) == 1:
            self.bits = {codes[0]: full(len(groups))}
        elif max(occurring) < _BYTE:
            flags = bytes(map(codes.__getitem__, groups))
            self.bits = {code: marked(flags.translate(_one_of(code))) for code in sorted(occurring)}
        else:
            places: dict[int, list[int]] = {}
            for place, group in enumerate(groups):
                places.setdefault(codes[group], []).append(place)
            self.bits = {code: bits_of(found, len(groups)) for code, found in sorted(places.items())}

    def get(self, code: int) -> Bits:
        return self.bits.get(code, 0)


_TRANSLATIONS: dict[int, bytes] = {}


def _one_of(code: int) -> bytes:
    table = _TRANSLATIONS.get(code)
    if table is None:
        table = _TRANSLATIONS[code] = bytes(49 if byte == code else 48 for byte in range(256))
    return table


class Whole(Grouping):
    """Every slot by itself, for expressions that may look at anything."""

    def __init__(self) -> None:
        super().__init__(())

    def read(self, held: Any) -> tuple[Any, Any]:
        return held, id(held)  # `values` keeps the ad, so that no other has its id

    def fill(self, pair: Pair, value: Any) -> None:
        pair.stand(value or NOBODY)
