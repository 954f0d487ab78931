"""What is read from the slots' ads."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.roles.negotiator.holdings import weight_of


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
