"""Slots grouped by what they hold for some names, and sets of slots that follow from their group.

A `Grouping` numbers the distinct combinations of values that occur; a slot whose ad changes moves to another group.
A `Partition` gives each group a code, by a decision that is asked once for each group, and keeps for each code the set
of slots. When slots have moved since it was last looked at, only they are looked at again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pool.classad.compact import columns
from pool.policy.matching.bits import Bits, bits_of, full, marked
from pool.policy.matching.pairs import NOBODY, Pair, token

Held = Mapping[str, Any]
Moment = tuple[int, int, int]
"""Tells a grouping from itself after slots have moved: its epoch, how many moves, how many places."""


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
        self.single = len(self.names) == 1 and type(self) is Grouping
        self.epoch = 0
        self._dirty: dict[int, None] = {}
        self._anew = False
        self._flags: tuple[Moment, bytes] | None = None
        self._sets: GroupSets | None = None
        self._begin()

    def _begin(self) -> None:
        self.epoch += 1
        self.values: list[Any] = []
        self.groups: list[int] = []
        self.moved: list[int] = []
        self._numbers: dict[Any, int] = {}
        self._group_of(*self.read({}))

    def __len__(self) -> int:
        return len(self.values)

    def touch(self, place: int) -> None:
        """Say that a slot's ad changed in a way that may matter."""
        self._dirty[place] = None

    def touch_all(self) -> None:
        """Say that every slot may have changed: groups are numbered anew."""
        self._anew = True

    def is_stale(self) -> bool:
        """Whether slots were touched since it was settled."""
        return self._anew or bool(self._dirty)

    def update_groups(self, ads: Sequence[Any]) -> None:
        """Follow the ads: move the slots that were touched."""
        if not self._dirty and not self._anew:
            return
        grown = len(ads) > 2 * len(self.groups)
        crowded = len(self.moved) > 4 * len(ads) + 1000 or len(self.values) > 2 * len(ads) + 1000
        if self._anew or grown or crowded:
            self._begin()
            self._number_all(ads)
            self._dirty.clear()
            self._anew = False
            return
        groups, moved = self.groups, self.moved
        if len(groups) < len(ads):
            groups.extend([0] * (len(ads) - len(groups)))
        if self.single:
            self._move_by_one(ads)
        else:
            for place in self._dirty:
                held = ads[place]
                group = 0 if held is None else self._group_of(*self.read(held))
                if group != groups[place]:
                    groups[place] = group
                    moved.append(place)
        self._dirty.clear()

    def take_columns(self, read: Sequence[list[Any]]) -> None:
        """Follow the ads, of which all values are given: for each name a list of them, None for nothing."""
        self._begin()
        self._number_columns(read)
        self._dirty.clear()
        self._anew = False

    def _number_all(self, ads: Sequence[Any]) -> None:
        """Give every slot its group: as moving one after another does, column by column."""
        if self.names:
            self._number_columns(columns(ads, self.names))
        else:
            self.groups = [0] * len(ads)

    def _number_columns(self, read: Sequence[list[Any]]) -> None:
        keys: list[Any] = [_tokens(column) for column in read]
        keys = keys[0] if self.single else list(zip(*keys, strict=True))
        numbers, new = self._numbers, dict.fromkeys(keys)
        for nothing in numbers:  # the group of nothing is the only one yet
            new.pop(nothing, None)
        if keys is read[0]:
            self.values.extend(new)
        else:
            held = zip(keys, read[0] if self.single else zip(*read, strict=True), strict=True)
            self.values.extend(map(dict(held).__getitem__, new))
        numbers.update(zip(new, range(len(numbers), len(numbers) + len(new)), strict=True))
        self.groups = list(map(numbers.__getitem__, keys))

    def _number_one_by_one(self, ads: Sequence[Any]) -> None:
        """The same for groupings that read an ad in their own way."""
        self.groups.extend([0 if held is None else self._group_of(*self.read(held)) for held in ads])

    @property
    def moment(self) -> Moment:
        """The present one."""
        return self.epoch, len(self.moved), len(self.groups)

    def group_bytes(self) -> bytes:
        """The group of each place, while there are no more than 256 groups."""
        moment = self.moment
        if self._flags is None or self._flags[0] != moment:
            self._flags = moment, bytes(self.groups)
        return self._flags[1]

    def sets(self) -> Mapping[int, Bits]:
        """For each group the set of its slots; kept while there are few groups. Not to be changed."""
        if len(self) > _MOST_SETS:
            self._sets = None
            return GroupSets().follow(self)
        if self._sets is None:
            self._sets = GroupSets()
        return self._sets.follow(self)

    def _move_by_one(self, ads: Sequence[Any]) -> None:
        """As above for one name, which is the case that counts."""
        name, numbers, groups, moved = self.names[0], self._numbers, self.groups, self.moved
        for place in self._dirty:
            held = ads[place]
            value = None if held is None else held.get(name)
            kind = type(value)
            key = value if kind is int or kind is str else token(value)
            group = numbers.get(key)
            if group is None:
                group = self._group_of(value, key)
            if group != groups[place]:
                groups[place] = group
                moved.append(place)

    def _group_of(self, value: Any, key: Any) -> int:
        group = self._numbers.get(key)
        if group is None:
            group = self._numbers[key] = len(self.values)
            self.values.append(value)
        return group

    def read(self, held: Held) -> tuple[Any, Any]:
        """The part of an ad that counts, and a key for it."""
        if self.single:
            value = held.get(self.names[0])
            return value, token(value)
        values = tuple([held.get(name) for name in self.names])
        return values, tuple([token(value) for value in values])

    def fill(self, pair: Pair, value: Any) -> None:
        """Put a group's slots on the machine's side of a pair."""
        if pair.whole:
            pair.set_machine(None)
        machine = pair.machine
        machine.clear()
        if self.single:
            if value is not None:
                machine[self.names[0]] = value
            return
        for name, one in zip(self.names, value, strict=True):
            if one is not None:
                machine[name] = one


_OWN_KEYS = frozenset({int, str, type(None)})
_TRUTHS = frozenset({bool, type(None)})
_KEYS_OF_TRUTHS = {value: token(value) for value in (True, False, None)}


def _tokens(column: list[Any]) -> list[Any]:
    """The key of each value; `token`, which is asked once for each object that is no number and no string. The column
    itself where its values are their own keys.
    """
    kinds = set(map(type, column))
    if kinds <= _OWN_KEYS:
        return column
    if kinds <= _TRUTHS:
        return list(map(_KEYS_OF_TRUTHS.__getitem__, column))
    # By the ids of values that the column holds, so that no other has one of them.
    by_id = dict(zip(map(id, column), column, strict=True))
    keys = {
        number: (float, value) if type(value) is float and value and value == value else token(value)
        for number, value in by_id.items()
    }
    return list(map(keys.__getitem__, map(id, column)))


class SingleSlots(Grouping):
    """Every slot by itself, for expressions that may look at anything."""

    def __init__(self) -> None:
        super().__init__(())

    def _number_all(self, ads: Sequence[Any]) -> None:
        self._number_one_by_one(ads)

    def read(self, held: Any) -> tuple[Any, Any]:
        # `values` keeps the ad, so that no other has its id; what stands for nothing is not kept, and has none.
        return (held, id(held)) if held else (None, None)

    def fill(self, pair: Pair, value: Any) -> None:
        pair.set_machine(value or NOBODY)


#: For more groups no sets are kept: each is as long as the pool is large.
_MOST_SETS = 256


class GroupSets:
    """The slots of each group as a set, kept while slots move."""

    __slots__ = ("_bits", "_moment")

    def __init__(self) -> None:
        self._moment: Moment = (0, 0, 0)
        self._bits: dict[int, Bits] = {}

    def follow(self, grouping: Grouping) -> Mapping[int, Bits]:
        """The sets as the grouping is now."""
        epoch, read, size = self._moment
        groups = grouping.groups
        if self._moment == grouping.moment:
            return self._bits
        places: dict[int, list[int]] = {}
        if epoch != grouping.epoch or len(grouping.moved) - read > len(groups) // 8:
            if len(grouping) <= _MOST_SETS:
                flags = grouping.group_bytes()
                self._bits = {group: marked(flags.translate(_one_of(group))) for group in range(len(grouping))}
            else:
                for place, group in enumerate(groups):
                    places.setdefault(group, []).append(place)
                self._bits = {group: bits_of(found, len(groups)) for group, found in sorted(places.items())}
        else:
            moved = dict.fromkeys([*grouping.moved[read:], *range(size, len(groups))])
            for place in moved:
                places.setdefault(groups[place], []).append(place)
            kept = ~bits_of(moved, len(groups))
            for group in sorted(self._bits.keys() | places.keys()):
                self._bits[group] = self._bits.get(group, 0) & kept | bits_of(places.get(group, ()), len(groups))
        self._moment = grouping.moment
        return self._bits


Codes = bytearray | list[int]
Extension = Callable[[Codes], None]
"""Appends the codes of the groups that have none yet."""


class Partition:
    """Slots by a code that follows from their group.

    Args:
        wide: codes may be greater than 255.

    Attributes:
        bits: for each code that occurs the set of slots; places without a slot may be in any of them.
        read: how many of the grouping's moves were followed.
    """

    __slots__ = ("_codes", "_epoch", "_size", "bits", "grouping", "read")

    def __init__(self, grouping: Grouping, *, wide: bool = False) -> None:
        self.grouping = grouping
        self.bits: dict[int, Bits] = {}
        self._codes: Codes = [] if wide else bytearray()
        self._epoch = 0
        self.read = 0
        self._size = 0

    def is_stale(self) -> bool:
        """Whether slots have moved since it was settled."""
        grouping = self.grouping
        return self.read != len(grouping.moved) or self._size != len(grouping.groups) or self._epoch != grouping.epoch

    def follow_grouping(self, extend: Extension) -> None:
        """Follow the grouping."""
        if not self.is_stale():
            return
        grouping = self.grouping
        if self.is_new():
            self._codes.clear()
        extend(self._codes)
        if self.is_new() or len(grouping.moved) - self.read > len(grouping.groups) // 8:
            self._rebuild()
        else:
            codes, groups = self._codes, grouping.groups
            places = dict.fromkeys(grouping.moved[self.read :])
            self.assign_codes({place: codes[groups[place]] for place in places}, codes[0])
        self.mark()

    def is_new(self) -> bool:
        """Whether nothing is known of the groups as they are numbered."""
        return self._epoch != self.grouping.epoch

    def mark(self) -> None:
        """Note that everything until now has been followed."""
        self.mark_at(self.grouping.moment)

    def mark_at(self, moment: Moment) -> None:
        """Note that everything until a moment of the grouping has been followed."""
        self._epoch, self.read, self._size = moment

    def replace(self, slots: Bits, by_code: Mapping[int, Bits], nothing: int) -> None:
        """Give slots other codes, and the code of the group of nothing to new places that are in it."""
        groups, found = self.grouping.groups, dict(by_code)
        new = [place for place in range(self._size, len(groups)) if groups[place] == 0]
        if new:
            found[nothing] = found.get(nothing, 0) | bits_of(new, len(groups))
        kept = ~slots
        for code in sorted(self.bits.keys() | found.keys()):
            self.bits[code] = self.bits.get(code, 0) & kept | found.get(code, 0)

    def assign_codes(self, codes: Mapping[int, int], nothing: int) -> None:
        """Give places other codes.

        Args:
            nothing: the code of the group of nothing.
        """
        groups = self.grouping.groups
        size = len(groups)
        by_code: dict[int, list[int]] = {}
        for place, code in codes.items():
            by_code.setdefault(code, []).append(place)
        for place in range(self._size, size):
            if groups[place] == 0:
                by_code.setdefault(nothing, []).append(place)
        kept = ~bits_of(codes, size)
        for code in sorted(self.bits.keys() | by_code.keys()):
            some = by_code.get(code)
            self.bits[code] = self.bits.get(code, 0) & kept | (bits_of(some, size) if some else 0)

    def _rebuild(self) -> None:
        codes, groups = self._codes, self.grouping.groups
        occurring = set(codes)
        if len(occurring) == 1:
            self.bits = {codes[0]: full(len(groups))}
        elif len(occurring) <= _FEW and max(occurring) < 256:
            if len(codes) <= _FEW:
                self.bits = dict.fromkeys(sorted(occurring), 0)
                for group, bits in self.grouping.sets().items():
                    self.bits[codes[group]] |= bits
                return
            if len(codes) <= 256:
                flags = self.grouping.group_bytes().translate(bytes(codes).ljust(256, b"\0"))
            else:
                flags = bytes(map(codes.__getitem__, groups))
            self.bits = {code: marked(flags.translate(_one_of(code))) for code in sorted(occurring)}
        else:
            places: dict[int, list[int]] = {}
            for place, group in enumerate(groups):
                places.setdefault(codes[group], []).append(place)
            self.bits = {code: bits_of(found, len(groups)) for code, found in sorted(places.items())}


#: Up to so many codes each is looked for by itself.
_FEW = 64
_TRANSLATIONS: dict[int, bytes] = {}


def _one_of(code: int) -> bytes:
    table = _TRANSLATIONS.get(code)
    if table is None:
        table = _TRANSLATIONS[code] = bytes(49 if byte == code else 48 for byte in range(256))
    return table
