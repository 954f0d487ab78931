"""The simulated pool: what it counts, worked out by hand for a few jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pool.policy.dedicated import WRIGHT, Backfill
from pool.testing.dedicated import Durations, SimulatedCosts, Simulation, TraceJob
from pool.testing.dedicated.metrics import jain


def job(number: int, at: float, runtime: float, size: int, user: str = "user") -> TraceJob:
    return TraceJob(number, at, runtime, size, None, user)


def test_first_come_first_served_by_hand() -> None:
    jobs = [job(0, 0, 100, 3), job(1, 10, 50, 2), job(2, 20, 10, 1)]
    simulation = Simulation(jobs, 4, WRIGHT)
    metrics = simulation.run()
    assert {done.number: done.started for done in simulation.finished} == {0: 0.0, 1: 100.0, 2: 100.0}
    assert metrics.wait == pytest.approx((0 + 90 + 80) / 3)
    assert metrics.slowdown == pytest.approx((1 + 140 / 50 + 90 / 10) / 3)
    assert metrics.utilisation == pytest.approx((300 + 100 + 10) / (4 * 150))
    assert metrics.loss == pytest.approx(90 / (4 * 150))  # one machine, while two and then three were asked for


def test_backfill_by_hand() -> None:
    jobs = [job(0, 0, 100, 3), job(1, 10, 50, 2), job(2, 20, 10, 1)]
    simulation = Simulation(jobs, 4, replace(WRIGHT, backfill=Backfill.EASY), durations=Durations.PERFECT)
    simulation.run()
    assert {done.number: done.started for done in simulation.finished} == {0: 0.0, 1: 100.0, 2: 20.0}


def test_holes_are_filled_and_the_head_waits_one_reclaim() -> None:
    jobs = [job(0, 10, 100, 3), job(1, 20, 50, 4)]
    costs = SimulatedCosts(negotiate=1.0, reclaim=5.0, resume=2.0, refill=1.0)
    simulation = Simulation(jobs, 4, replace(WRIGHT, lend=True), costs=costs, opportunistic=True)
    metrics = simulation.run()
    # Job 0 reclaims three machines; the fourth runs opportunistic jobs until the second can start.
    assert {done.number: done.started for done in simulation.finished} == {0: 15.0, 1: 120.0}
    assert metrics.head_delay == 5.0
    assert metrics.reclaims == 4
    assert metrics.lost == 0.0
    occupied = 3 * 10 + 115
    assert metrics.busy == pytest.approx((300 + 200 + occupied) / (4 * 170))


def test_what_time_sharing_costs_is_counted() -> None:
    jobs = [job(0, 0, 1000, 4), job(1, 500, 10, 4)]
    configured = replace(WRIGHT, time_sharing=True, first_quantum=60.0)
    simulation = Simulation(jobs, 4, configured, costs=SimulatedCosts(save=5.0, restore=7.0), saveable=True)
    metrics = simulation.run()
    # Saved for 5 s, 10 s of the other, restored for 7 s.
    assert {done.number: (done.started, done.ended, done.saves) for done in simulation.finished} == {
        1: (505.0, 515.0, 0),
        0: (0.0, 1022.0, 1),
    }
    assert metrics.overhead == pytest.approx(12 * 4 / (4 * 1022))
    assert metrics.lost == 0.0


def test_jain() -> None:
    assert jain([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
