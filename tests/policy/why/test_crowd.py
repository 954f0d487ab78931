"""Slots put together to what they can be, and sets as numbers."""

from __future__ import annotations

from pool.policy.why import crowd
from tests.policy.why.support import pool, slot


def test_dynamic_slots_are_put_back() -> None:
    slots = pool(
        slot("slot1@m", Cpus=2, Memory=100, GPUs=0),
        slot("slot1_1@m", DynamicSlot=True, Cpus=1, Memory=50, GPUs=1),
        slot("slot1_2@m", DynamicSlot=True, Cpus=1, Memory="lots"),
        slot("slot2@m", Cpus=7),
    )
    first, second = crowd.whole_slots(slots)
    assert [first.whole.value(name) for name in ("Cpus", "Memory", "GPUs")] == [4, 150, 1]
    assert first.now.value("Cpus") == 2
    assert second.whole is second.now


def test_a_part_without_its_whole_stands_for_itself() -> None:
    (place,) = crowd.whole_slots(pool(slot("slot1_1@m", DynamicSlot=True)))
    assert place.name == "slot1_1@m"


def test_ads_that_say_nothing_are_slots_all_the_same() -> None:
    bare = slot("slot1@m", State=None, Machine=None, Cpus=None, Memory=None)
    (place,) = crowd.whole_slots({"slot1@m": bare})
    assert place.state == "Unknown"
    assert crowd.machine_of(bare, "slot1@m") == "m"


def test_sets_as_numbers() -> None:
    assert crowd.numbers(0) == []
    assert crowd.numbers(0b101001) == [0, 3, 5]
    assert crowd.numbers(1 << 9999) == [9999]
