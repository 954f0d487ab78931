"""A short share of the rounds on the virtual clock, and the checker itself: it must see what it is there to see."""

from __future__ import annotations

import pytest

from tests.chaos.checker import violations
from tests.chaos.faults import Kind, plan
from tests.chaos.record import Outcome, Record, Run
from tests.chaos.virtual import run_round

#: Rounds of every run of the suite; those behind them were found to break a rule once.
SEEDS = (*range(10), 2000012, 2000024, 2000546)
JOB = ("s1", 1, 0)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    assert run_round(seed) == []


def test_a_seed_is_one_plan_and_all_kinds_of_faults_come() -> None:
    assert plan(5) == plan(5) != plan(6)
    assert {fault.kind for seed in range(100) for fault in plan(seed).faults} == set(Kind)


def sound() -> Record:
    record = Record(accepted=[JOB])
    record.runs[JOB] = [Run(1, "m1", 0.0, 5.0), Run(2, "m2", 5.0, 15.0, whole=True)]
    record.outcomes[JOB] = [Outcome("completed", 0, 1, 15.0)]
    record.told[JOB] = 1
    return record


def test_a_sound_record_breaks_no_rule() -> None:
    assert violations(sound()) == []


def test_each_rule_is_looked_at() -> None:
    lost = sound()
    del lost.outcomes[JOB]
    stuck = sound()
    stuck.left[JOB] = "running"
    doubled = sound()
    doubled.runs[JOB][0].ended = 6.0
    reused = sound()
    reused.runs[JOB][1].number = 1
    twice = sound()
    twice.outcomes[JOB] *= 2
    told = sound()
    told.told[JOB] = 2
    made_up = sound()
    made_up.runs[JOB][1].whole = False
    stranger = sound()
    stranger.outcomes["s1", 9, 0] = [Outcome("completed", 0, 1, 15.0)]
    failed = sound()
    failed.failures.append("a role")
    broken = [violations(one) for one in (lost, stuck, doubled, reused, twice, told, made_up, stranger, failed)]
    assert [len(found) for found in broken] == [1] * 9, broken
