"""A pool as it would be without a flock is what it would have been, whatever the flock does to its jobs."""

from __future__ import annotations

import heapq
import random

import pytest

from pool.policy.flock.payback import machines_to_spare
from pool.policy.flock.without_flock import JobRange, PoolWithoutFlock
from pool.testing.flock_trace import SiteJob, starts_alone


def one(number: int, **more: float) -> JobRange:
    return JobRange("here", 1, number, 1, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(60))
def test_it_counts_the_jobs_that_would_run_and_have_not_ended(seed: int) -> None:
    """Jobs end when they would alone, or earlier by chance; at each event the count is that of the pool alone."""
    chance = random.Random(seed)
    machines = chance.randint(1, 5)
    arrivals = sorted(chance.choice([chance.uniform(0, 1000), 100.0]) for _ in range(40))
    jobs = [SiteJob(number, 0, at, chance.uniform(1, 200)) for number, at in enumerate(arrivals)]
    starts = starts_alone(jobs, {0: machines})
    ends = {job.number: starts[job.number] + job.runtime for job in jobs}
    early = {
        job.number: chance.choice([ends[job.number], chance.uniform(job.submitted + job.runtime, ends[job.number])])
        for job in jobs
    }
    events = [(job.submitted, 0, job.number) for job in jobs] + [(at, 1, number) for number, at in early.items()]
    events += [(chance.uniform(0, 2000), 2, 0) for _ in range(100)]
    heapq.heapify(events)
    pool = PoolWithoutFlock()
    pool.set_units(machines, 0.0)
    while events:
        now, kind, number = heapq.heappop(events)
        if kind == 0:
            pool.submitted(one(number), now)
        elif kind == 1:
            pool.ended(("here", 1, number), jobs[number].runtime, now)
        else:
            unended = [job for job in jobs if early[job.number] > now]
            assert pool.would_run(now) == sum(starts[job.number] <= now for job in unended)
            assert pool.next_change() > now
    assert pool.would_run(1e9) == 0
    assert machines_to_spare(machines, 0, 0) == machines


def test_a_pool_that_got_no_help_has_nothing_to_spare() -> None:
    """Two jobs on one machine: it is theirs until both have ended."""
    pool = PoolWithoutFlock()
    pool.set_units(1, 0.0)
    pool.submitted(JobRange("here", 1, 0, 2), 0.0)
    assert machines_to_spare(1, pool.would_run(10.0), 0) == 0
    pool.ended(("here", 1, 0), 100.0, 100.0)
    assert pool.would_run(100.0) == 1
    pool.ended(("here", 1, 1), 100.0, 200.0)
    assert machines_to_spare(1, pool.would_run(200.0), 0) == 1


def test_a_pool_that_was_helped_has_the_time_to_spare_that_it_won() -> None:
    """Its second job ran elsewhere: alone it would have run until 200, and a job from 150 on would wait until then."""
    pool = PoolWithoutFlock()
    pool.set_units(1, 0.0)
    pool.submitted(JobRange("here", 1, 0, 2), 0.0)
    pool.ended(("here", 1, 0), 100.0, 100.0)
    pool.ended(("here", 1, 1), 100.0, 100.0)
    pool.submitted(JobRange("here", 2, 0, 1), 150.0)
    assert (pool.would_run(150.0), pool.next_change()) == (0, 200.0)
    assert machines_to_spare(1, pool.would_run(199.0), 0) == 1
    assert machines_to_spare(1, pool.would_run(200.0), 1) == -1, "and the machine that was given ahead goes back"


def test_an_end_says_after_the_fact_when_the_next_job_would_have_begun() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(1, 0.0)
    pool.submitted(JobRange("here", 1, 0, 2), 0.0)
    pool.ended(("here", 1, 0), 10.0, 50.0)  # it began late: alone it would have ended at 10
    pool.ended(("here", 1, 1), 20.0, 60.0)
    pool.submitted(JobRange("here", 2, 0, 1), 25.0)
    assert pool.next_change() == 30.0


def test_what_a_job_had_done_before_it_was_counted_is_not_done_again() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(1, 1000.0)
    pool.submitted(one(0, done=400.0), 1000.0)
    pool.submitted(one(1), 1000.0)
    pool.ended(("here", 1, 0), 500.0, 1050.0)
    assert pool.would_run(1050.0) == 0
    assert pool.would_run(1100.0) == 1


def test_a_job_that_is_held_and_released_waits_in_line_again() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(1, 0.0)
    pool.submitted(JobRange("here", 1, 0, 3), 0.0)
    pool.ended(("here", 1, 1), 0.0, 5.0)  # held, it has not run
    pool.submitted(one(1), 6.0)  # and released
    pool.ended(("here", 1, 1), 30.0, 40.0)  # ran elsewhere
    pool.ended(("here", 1, 0), 50.0, 50.0)
    assert pool.would_run(50.0) == 1, "the third"
    pool.ended(("here", 1, 2), 50.0, 100.0)
    pool.submitted(one(9), 100.0)
    assert (pool.would_run(129.0), pool.would_run(130.0)) == (0, 1)


def test_machines_come_and_go() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(3, 0.0)
    pool.submitted(JobRange("here", 1, 0, 5), 0.0)
    assert pool.would_run(0.0) == 3
    pool.set_units(1, 10.0)
    assert pool.would_run(10.0) == 3, "jobs that would run are not cut short"
    for number in range(2):
        pool.ended(("here", 1, number), 20.0, 20.0)
    assert pool.would_run(20.0) == 1, "their machines are gone"
    pool.set_units(2, 30.0)
    assert pool.would_run(30.0) == 2


def test_a_job_takes_the_processors_that_it_asks_for() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(8, 0.0)
    pool.submitted(JobRange("here", 1, 0, 3, units=3), 0.0)
    assert pool.would_run(0.0) == 8, "the third begins with what is left"
    pool.ended(("here", 1, 0), 10.0, 10.0)
    assert pool.would_run(10.0) == 5


def test_a_schedd_that_is_heard_no_more_has_no_jobs() -> None:
    pool = PoolWithoutFlock()
    pool.set_units(2, 0.0)
    pool.submitted(JobRange("here", 1, 0, 4), 0.0)
    pool.submitted(JobRange("there", 1, 0, 1), 0.0)
    pool.ended(("here", 1, 3), 10.0, 10.0)
    assert pool.would_run(10.0) == 2
    pool.forget("here", 20.0)
    assert pool.would_run(20.0) == 1
