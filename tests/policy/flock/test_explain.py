"""Why a job does not run in another pool, and what the machines there are worth."""

from __future__ import annotations

from typing import Any

import pytest

from pool.classad import ClassAd
from pool.policy.flock.explain import explain_pool, values
from pool.policy.flock.shown import lent_machine
from pool.policy.why.other_pools import OtherPool
from pool.policy.why.words import lines

TUESDAY = 1_763_460_000.0
JOB: dict[str, Any] = {"Requirements": ["TARGET.Memory >= 1000"], "Owner": "alice", "RequestMemory": 500}


def machine(start: str = "true", memory: int = 2000, **more: Any) -> dict[str, Any]:
    shown = {"Memory": memory, "Requirements": [start], "ClockMin": 9 * 60 + 20, "ClockDay": 2, **more}
    return lent_machine(shown, "slot1@m1", "physics", "mem://head")


def explained(*machines: dict[str, Any], why: str = "") -> OtherPool:
    return explain_pool("physics", machines, ClassAd.from_wire(JOB), TUESDAY, why)


def said(found: OtherPool) -> str:
    from pool.policy.why.findings import Queued

    return lines([Queued("1.0", "alice", 1), found], TUESDAY)[-1].strip()


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("ClockMin >= 18*60", "physics: 40 idle machines, none lets you in before 18:00"),
        ('TARGET.Owner == "bob" || ClockMin < 7*60 + 5', "physics: 40 idle machines, none lets you in before 00:00"),
        ("ClockDay == 3 && ClockMin >= 8*60 + 17", "physics: 40 idle machines, none lets you in before 08:17"),
        ("ClockDay == 5", "physics: 40 idle machines, none lets you in"),
        ('TARGET.Owner == "bob"', "physics: 40 idle machines, none lets you in"),
        ("undefined", "physics: 40 idle machines, none lets you in"),
        ("true", "physics: 40 idle machines, all take it"),
    ],
)
def test_when_machines_let_a_job_in(start: str, words: str) -> None:
    assert said(explained(*[machine(start)] * 40)) == words


def test_machines_are_counted_by_what_stands_in_the_way() -> None:
    found = explained(machine(), machine("false"), machine(memory=10), why="no machine was found in time")
    assert (found.idle, found.fit, found.unmet, found.refused) == (3, 1, 1, 1)
    assert said(found) == "physics: 3 idle machines, 1 would take it; it said: no machine was found in time"
    assert said(explained(machine(memory=10))) == "physics: 1 idle machine, none meets the job's conditions"
    assert said(explained(machine("false"), machine(memory=10))).endswith("lets you in (1 do not meet its conditions)")
    assert said(explained()) == "physics: no idle machine"
    assert said(OtherPool("physics", trouble="it cannot be reached")) == "physics: it cannot be reached"
    assert (
        said(OtherPool("physics", user="alice", waiting=3, why="busy"))
        == "physics: 3 jobs of alice wait there, too: busy"
    )


def test_the_earliest_of_several_kinds_counts() -> None:
    found = explained(*(machine(f"ClockMin >= {hour}*60") for hour in (20, 16, 18)))
    assert found.opens == "16:00"


@pytest.mark.parametrize("clock", [None, "x", 1e9, True])
def test_a_machine_without_a_clock_opens_at_no_time(clock: Any) -> None:
    assert explained(machine("ClockMin >= 18*60", ClockMin=clock, ClockDay=clock)).opens == ""


def test_values_are_told_by_their_terms() -> None:
    fast, slow = {"Cpus": 4, "KFlops": 3_000_000}, {"Cpus": 1, "KFlops": 500_000}
    told = values([fast, slow, fast], 0.1)
    assert told == [
        {"value": pytest.approx(10.8), "cpus": 4.0, "speed": 3.0, "distance": 0.9, "idle": 1.0, "count": 2},
        {"value": pytest.approx(0.45), "cpus": 1.0, "speed": 0.5, "distance": 0.9, "idle": 1.0, "count": 1},
    ]
    assert all(one["value"] == pytest.approx(one["cpus"] * one["speed"] * one["distance"]) for one in told)
    assert values([fast], 5.0)[0]["value"] == 0.0
