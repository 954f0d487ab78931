"""Slots in groups by what they hold, and the sets that follow."""

from __future__ import annotations

import random

from pool.classad import ClassAd
from pool.classad.compact import CompactAttributes, compact
from pool.policy.matching.bits import bits_of, full, marked, members
from pool.policy.matching.columns import Grouping, Partition, SingleSlots
from pool.policy.matching.comparing import Ordered
from pool.policy.matching.levels import Levels
from pool.policy.matching.pairs import token


def test_sets_of_places_as_integers() -> None:
    places = [0, 3, 64, 129]
    assert list(members(bits_of(places, 130))) == places
    assert marked(b"01001") == 0b10010
    assert full(3) == 7
    assert list(members(0)) == []
    assert marked(b"") == 0


def test_values_that_compare_equal_are_told_apart_by_their_types() -> None:
    values = [1, 1.0, True, 0.0, -0.0, "1", None]
    assert len({token(value) for value in values}) == len(values)


def test_no_ad_is_taken_for_the_absence_of_one() -> None:
    """An ad could lie where a thing of the same identity had been that is no more."""
    assert SingleSlots().read({}) == (None, None)
    ad = ClassAd()
    assert SingleSlots().read(ad) == (ad, id(ad))


def test_a_partition_follows_its_slots() -> None:
    chance = random.Random(3)
    grouping = Grouping(("a",))
    partition = Partition(grouping)
    ads: list[CompactAttributes | None] = []
    for _ in range(200):
        for _ in range(chance.randrange(12)):
            place = chance.randrange(len(ads) + 1)
            held = None if chance.random() < 0.2 else compact({"a": chance.randrange(5)})
            if place == len(ads):
                ads.append(held)
            else:
                ads[place] = held
            grouping.touch(place)
        grouping.update_groups(ads)
        partition.follow_grouping(
            lambda codes: codes.extend((value or 0) % 2 for value in grouping.values[len(codes) :])
        )
        odd = [place for place, held in enumerate(ads) if held is not None and held["a"] % 2]
        even = [place for place, held in enumerate(ads) if held is not None and not held["a"] % 2]
        there = bits_of(odd + even, len(ads))
        assert list(members(partition.bits.get(1, 0) & there)) == odd
        assert list(members(partition.bits.get(0, 0) & there)) == even
        sets = grouping.sets()
        for group in range(len(grouping)):
            in_it = [place for place, other in enumerate(grouping.groups) if other == group]
            assert list(members(sets.get(group, 0))) == in_it


def test_an_order_follows_its_slots() -> None:
    chance = random.Random(4)
    grouping = Grouping(("a",))
    levels = Levels(grouping)
    ads = [compact({"a": chance.randrange(40)}) for _ in range(300)]
    for place in range(len(ads)):
        grouping.touch(place)
    for _ in range(60):
        grouping.update_groups(ads)
        levels.follow_grouping(lambda value: float((value or 0) % 20))
        places = range(len(ads))
        assert levels.order() == sorted(places, key=lambda place: (-(ads[place]["a"] % 20), place))
        for place in chance.sample(places, chance.randrange(20)):
            ads[place] = compact({"a": chance.randrange(40)})
            grouping.touch(place)


def test_slots_by_value() -> None:
    grouping = Grouping(("a",))
    values = [5, 1.5, "x", "X", None, True, 5, 9, 2**60]
    for place in range(len(values)):
        grouping.touch(place)
    grouping.update_groups([compact({} if value is None else {"a": value}) for value in values])
    ordered = Ordered(grouping)
    assert list(members(ordered.between(1.5, 5))) == [0, 1, 6]
    assert list(members(ordered.first(1))) == [1]
    assert sorted(ordered.near("x").values()) == [[2], [3]]
    assert list(ordered.near(5.0).values()) == [[0, 6]]
    assert sorted(ordered.apart(strings=False).values()) == [[4], [5], [8]]
    assert sorted(ordered.apart(strings=True).values()) == [[2], [3], [4], [5], [8]]
    assert sorted(ordered.apart(strings=True, numbers=True).values()) == [[0, 6], [1], [2], [3], [4], [5], [7], [8]]
    assert ordered.bits == full(len(values))
