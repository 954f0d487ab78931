"""Findings over the wire: back as they were, and no harm from what is unknown or wrong."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import msgpack
import pytest

from pool.policy.why.findings import (
    KINDS,
    Ended,
    Finding,
    JobCondition,
    Nearest,
    Outlook,
    RefusedFinding,
    RefusingClause,
    TurnFinding,
    Unmet,
    ValueCount,
    from_wire,
    to_wire,
)

SOME: list[Finding] = [
    Unmet(3, (JobCondition("Memory > 5", 3, 1, "Memory", (ValueCount("4 GB", 3),), 0, "4 GB", "", "largest"),)),
    RefusedFinding(2, (RefusingClause("KeyboardIdle > 900", 2, ("slot1@a", "slot1@b"), (ValueCount("Owner", 2),)),)),
    TurnFinding("alice", 2, 3, 0.5, ("bob",), 4),
    Outlook(None, "no machine would do"),
    Ended(False, 12.0, 0),
    Nearest(("a", "b"), 4),
]


def test_they_come_back_as_they_were() -> None:
    assert from_wire(msgpack.unpackb(msgpack.packb(to_wire(SOME)))) == SOME


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_can_travel(kind: Any) -> None:
    plain = {"str": "x", "int": 1, "float": 1.0, "bool": True}
    known = {field.name: plain.get(str(field.type), ()) for field in fields(kind) if str(field.type) in plain}
    needed: dict[Any, dict[str, Any]] = {Outlook: {"seconds": None}, Nearest: {"changes": ()}}
    made = kind(**known, **needed.get(kind, {}))
    assert from_wire(to_wire([made])) == [made]


@pytest.mark.parametrize(
    "item",
    [
        None,
        "Unmet",
        {},
        {"kind": "Tomorrow"},
        {"kind": "Unmet"},
        {"kind": "Unmet", "count": "many"},
        {"kind": "Unmet", "count": 1, "conditions": [3]},
        {"kind": "Unmet", "count": 1, "conditions": 7},
    ],
)
def test_what_cannot_be_read_is_left_out(item: Any) -> None:
    assert from_wire([item]) == []


def test_fields_of_a_newer_program_are_left_out() -> None:
    (wire,) = to_wire([Nearest(("a",), 1)])
    assert from_wire([wire | {"price": 7}]) == [Nearest(("a",), 1)]
