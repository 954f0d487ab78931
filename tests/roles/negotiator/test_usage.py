"""The holders of slots, read from the slots' ads."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.roles.negotiator.usage import PoolUsage, SlotUsage, weight_of


@pytest.mark.parametrize(
    ("ad", "weight"),
    [
        ({"Cpus": 4}, 4.0),
        ({"Cpus": 4, "SlotWeight": ["Cpus * 2"]}, 8.0),
        ({"Cpus": 4, "SlotWeight": ["undefined"]}, 4.0),
        ({"Cpus": "four", "SlotWeight": -3}, 1.0),
        ({}, 1.0),
        ({"Cpus": 0}, 1.0),
        ({"Cpus": 0, "PartitionableSlot": True}, 0.0),
        ({"Cpus": 0, "SlotWeight": ["Cpus"], "PartitionableSlot": True}, 0.0),
        ({"PartitionableSlot": True}, 1.0),
    ],
)
def test_what_a_slot_counts_for(ad: dict[str, Any], weight: float) -> None:
    assert weight_of(ClassAd.from_wire(ad)) == weight


async def test_a_slot_given_while_another_leaves_it_counts_for_both_until_he_has_left() -> None:
    """Else the next cycle gives the newcomer, who seems to hold nothing yet, another one."""
    bob, alice = SlotUsage("bob@h", 1.0, {}), SlotUsage("alice@h", 1.0, {})
    usage = PoolUsage()
    usage.slot("slot1@m", bob)
    usage.given("slot1@m", alice)
    usage.slot("slot1@m", bob, leaving=True)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (1.0, 1.0)
    usage.slot("slot1@m", alice)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (0.0, 1.0)
    usage.given("slot1@m", bob)
    usage.slot("slot1@m", None, leaving=True)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (0.0, 0.0)


async def test_a_slot_whose_holder_stays_after_all_is_nobody_elses() -> None:
    bob, alice = SlotUsage("bob@h", 1.0, {}), SlotUsage("alice@h", 1.0, {})
    usage = PoolUsage()
    usage.slot("slot1@m", bob)
    usage.given("slot1@m", alice)
    usage.slot("slot1@m", bob, leaving=True)
    usage.slot("slot1@m", bob)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (1.0, 0.0)


async def test_a_slot_whose_holder_stays_is_not_on_the_way_to_another_any_more() -> None:
    """Its ad has changed, and not because somebody leaves it: nobody took what was given."""
    bob, alice = SlotUsage("bob@h", 1.0, {}), SlotUsage("alice@h", 1.0, {})
    usage = PoolUsage()
    usage.slot("slot1@m", bob)
    usage.given("slot1@m", alice)
    usage.slot_stays("slot1@m", leaving=True)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (1.0, 1.0)
    usage.slot_stays("slot1@m", leaving=False)
    assert (usage.held_by("bob@h"), usage.held_by("alice@h")) == (1.0, 0.0)
    usage.given("slot2@m", alice)
    usage.slot_stays("slot2@m", leaving=True)  # nobody is there who could leave
    assert usage.held_by("alice@h") == 0.0
