"""The schedule into the future, predictions, and their errors."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pool.policy.dedicated import WRIGHT, Backfill, DedicatedSettings, PartClass, PlanBasis, Reservation
from pool.policy.dedicated.expectations import CORRECTIONS, expected_end
from pool.policy.dedicated.plan import make_plan, spell
from pool.policy.dedicated.predictions import MOST_SIZES, RunPredictor, StartErrors, read_runs
from pool.testing.dedicated import Durations, Simulation, lublin
from tests.policy.dedicated.building import gang, machines, queue, runs

EASY = replace(WRIGHT, backfill=Backfill.EASY)


def test_each_waiting_job_has_an_expected_start_and_what_it_waits_for() -> None:
    running = [runs(gang("9.0", 2, duration=100.0))]
    jobs = queue(
        gang("1.0", 4, duration=50.0), gang("2.0", 3, duration=10.0), gang("3.0", 2, duration=30.0), gang("4.0", 9)
    )
    plan = make_plan(jobs, running, machines(idle=1, occupied=1), 40.0, EASY)
    starts = {start.job: start for start in plan.starts}
    assert (starts["1.0"].start, starts["1.0"].end, starts["1.0"].waits_for) == (100.0, 150.0, ("9.0",))
    assert starts["2.0"].start == 150.0
    assert starts["3.0"].start == 40.0
    assert starts["4.0"].start is None
    assert starts["1.0"].basis is PlanBasis.SAID
    assert starts["1.0"].words == (
        "job 1.0 is expected to start in 60 s, when 9.0 ends. This rests on the durations that users gave."
    )
    assert "3 jobs are before it" not in starts["2.0"].words
    assert "1 job is before it in the queue" in starts["2.0"].words
    assert [(bar.label, bar.what, bar.start, bar.end) for bar in plan.bars] == [
        ("9.0", "running", 0.0, 100.0),
        ("3.0", "planned", 40.0, 70.0),
        ("1.0", "planned", 100.0, 150.0),
        ("2.0", "planned", 150.0, 160.0),
    ]
    assert plan.machines == {"k": 4}


def test_the_same_state_gives_the_same_plan() -> None:
    jobs = queue(*(gang(f"{n}.0", 1 + n % 4, user=f"u{n % 3}", duration=10.0 + n) for n in range(40)))
    running = [runs(gang("99.0", 2, duration=100.0))]
    plans = [make_plan(jobs, running, machines(idle=2), 5.0, DedicatedSettings()) for _ in range(3)]
    assert plans[0] == plans[1] == plans[2]
    assert all(start.start is not None for start in plans[0].starts)


def test_a_plan_with_true_durations_comes_true() -> None:
    """Nothing else is submitted: every expected start is the real one."""
    import random

    jobs = [replace(job, submitted=0.0) for job in lublin(random.Random(5), 60, 16)]
    expected: dict[str, float] = {}

    def observe(sim: Simulation, now: float, decisions: object) -> None:
        if now == 0.0:
            plan = make_plan(sim.queue_state(), tuple(sim.running.values()), sim.machine_state(), now, sim.settings)
            expected.update({start.job: start.start for start in plan.starts if start.start is not None})

    sim = Simulation(jobs, 16, EASY, durations=Durations.PERFECT, observer=observe)
    sim.run()
    assert {str(job.number): job.started for job in sim.finished} == pytest.approx(expected)


def test_a_job_of_which_nothing_is_known_is_a_guess() -> None:
    running = [runs(gang("9.0", 2))]
    plan = make_plan(queue(gang("1.0", 2)), running, (), 10.0, WRIGHT, guess=100.0)
    [start] = plan.starts
    assert (start.start, start.end, start.basis) == (100.0, None, PlanBasis.GUESSED)
    assert make_plan(queue(gang("1.0", 2)), running, (), 400.0, WRIGHT, guess=100.0).starts[0].start == 800.0


def test_jobs_beyond_the_depth_are_estimated_from_the_work_before_them() -> None:
    jobs = queue(*(gang(f"{n}.0", 2, submitted=float(n), duration=10.0) for n in range(100)))
    plan = make_plan(jobs, (), machines(idle=2), 0.0, replace(EASY, depth=10))
    assert plan.starts[50].start == pytest.approx(500.0, rel=0.15)


def test_a_plan_knows_reservations() -> None:
    reserved = Reservation("r1", "bob", (PartClass(2, ("k",)),), 100.0, 50.0)
    jobs = queue(gang("1.0", 2, duration=200.0), gang("2.0", 1, duration=20.0))
    plan = make_plan(jobs, (), machines(idle=2), 0.0, EASY, [reserved])
    starts = {start.job: start.start for start in plan.starts}
    assert starts == {"1.0": 150.0, "2.0": 0.0}
    assert ("r1", "reserved", 100.0, 150.0) in [(bar.label, bar.what, bar.start, bar.end) for bar in plan.bars]


def test_a_prediction_is_the_mean_of_the_last_two_runs_and_at_most_what_the_user_said() -> None:
    predictor = RunPredictor()
    assert predictor.predict("alice") is None
    assert predictor.predict("alice", 60.0) == 60.0
    for seconds in (1000.0, 20.0, 40.0):
        predictor.record_run("alice", seconds)
    assert predictor.predict("alice") == 30.0
    assert predictor.predict("alice", 25.0) == 25.0
    again = RunPredictor(read_runs(predictor.as_dict()))
    assert again.predict("alice") == 30.0
    assert predictor.mean == pytest.approx(1060.0 / 3)
    predictor.record_run("alice", 500.0, 16)
    assert predictor.predict("alice", size=16) == 500.0  # runs of that size count first
    assert predictor.predict("alice", size=8) == 270.0
    assert RunPredictor(predictor.as_dict()).predict("alice", size=16) == 500.0
    predictor.record_run("alice", 700.0, 16)
    assert predictor.predict("alice", size=16) == 700.0  # and of those the last one alone
    for size in range(1, 100):
        predictor.record_run("alice", 1.0, size)
    assert len(predictor.as_dict()) == MOST_SIZES
    assert read_runs({"alice": "12", 3: [1.0], "bob": [1, -2, "x"]}) == {"bob": [1.0]}
    assert read_runs([1]) == {}


def test_bounds_come_from_past_errors() -> None:
    errors = StartErrors()
    assert errors.bounds() is None
    for ratio in range(1, 12):
        errors.record_wait(100.0, 10.0 * ratio)
    errors.record_wait(5.0, 5000.0)  # too short a wait to say anything
    assert errors.bounds() == pytest.approx((0.2, 1.0))
    running = [runs(gang("9.0", 2, duration=100.0))]
    [start] = make_plan(queue(gang("1.0", 2, duration=5.0)), running, (), 0.0, WRIGHT, errors=errors).starts
    assert (start.earliest, start.latest) == pytest.approx((20.0, 100.0))
    assert "(in 8 of 10 cases between 20 s and 100 s)" in start.words
    assert StartErrors(errors.as_list()).bounds() == errors.bounds()


def test_an_overrun_is_corrected_in_growing_steps() -> None:
    run = runs(gang("9.0", 2, duration=100.0))
    assert expected_end(run, 50.0) == 100.0
    assert expected_end(run, 100.0) == 100.0
    assert expected_end(run, 101.0) == 100.0 + CORRECTIONS[0]
    assert expected_end(run, 161.0) == 100.0 + CORRECTIONS[1]
    assert expected_end(run, 1e7) > 1e7
    assert expected_end(runs(gang("9.0", 2)), 50.0) == float("inf")


def test_durations_are_spelled_for_people() -> None:
    assert [spell(seconds) for seconds in (40, 119.6, 725, 12000, 7200, 187200)] == [
        "40 s",
        "2 min",
        "12 min",
        "3 h 20 min",
        "2 h",
        "2 d 4 h",
    ]
