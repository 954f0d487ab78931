"""Server values: each term by itself; machines that are likely to stay idle are worth more (EV 4.3.3)."""

from __future__ import annotations

import random

import pytest

from pool.policy.flock.idleness import LEAST, MOST, STEP, IdleTimes, in_steps
from pool.policy.flock.value import IDLE_TIME, USUAL_JOB, server_value, value_in_ledger


def test_each_term_is_a_factor() -> None:
    found = server_value({"Cpus": 4, "KFlops": 2e6, IDLE_TIME: USUAL_JOB}, round_trip=0.1)
    assert (found.cpus, found.speed, found.distance, found.idle) == (4.0, 2.0, 0.9, 0.5)
    assert found.value == pytest.approx(4 * 2 * 0.9 * 0.5)
    assert found.for_order == pytest.approx(0.9)


@pytest.mark.parametrize("nonsense", [None, -5, "long", True, float("nan"), float("inf"), [], 10**30])
def test_an_idle_time_that_makes_no_sense_counts_for_nothing(nonsense: object) -> None:
    assert server_value({IDLE_TIME: nonsense}).idle == 1.0


def test_what_is_owed_does_not_depend_on_how_long_a_machine_was_idle() -> None:
    assert value_in_ledger({"Cpus": 2, IDLE_TIME: 60}) == value_in_ledger({"Cpus": 2}) == 2000


def test_a_machine_is_likely_to_stay_idle_as_long_as_it_was_or_usually_is() -> None:
    times = IdleTimes()
    times.see("a", idle=True, now=0.0)
    assert times.expected("a", 10.0) == LEAST
    assert times.expected("a", 4000.0) == LEAST * STEP**3
    times.see("a", idle=False, now=4000.0)
    assert times.expected("a", 4001.0) == LEAST * STEP**3, "as it usually is"
    for _ in range(20):  # from then on for a minute at a time
        times.see("a", idle=True, now=5000.0)
        times.see("a", idle=False, now=5060.0)
    assert times.expected("a", 6000.0) == LEAST
    times.forget("a")
    assert times.expected("a", 6000.0) == LEAST


def test_others_are_told_when_the_time_rises_a_step() -> None:
    times = IdleTimes()
    times.see("a", idle=True, now=0.0)
    times.see("busy", idle=False, now=0.0)
    times.expected("a", 0.0)
    told = [now for now in range(0, 100_000, 30) if times.rising(now) and times.expected("a", now)]
    assert told == [240, 960, 3840, 15360, 61440]


@pytest.mark.parametrize("seed", range(20))
def test_steps_are_below_the_time_and_not_far_below(seed: int) -> None:
    seconds = random.Random(seed).uniform(0, 3 * MOST)
    step = in_steps(seconds)
    assert LEAST <= step <= max(LEAST, seconds)
    assert step == MOST or seconds < STEP * step
