"""A trace's jobs under agreements with credit: debts within their bound, and paid back ahead of own jobs (EV 4.2)."""

from __future__ import annotations

import random

import pytest

from pool.testing.flock_credit_trace import run_with_credit
from pool.testing.flock_trace import FlockDesign, SiteJob, run_sites


def test_what_was_lent_comes_back_ahead_of_own_jobs_and_not_a_second_more() -> None:
    """Site 2 lends 1,000 s. Then it has a job of 5,000 s too many, and site 1 a queue of its own."""
    lend = [SiteJob(0, 1, 0.0, 10.0), SiteJob(1, 1, 1.0, 1000.0)]
    queue = [SiteJob(number, 1, 2000.0, 500.0) for number in range(2, 8)]
    theirs = [SiteJob(8, 2, 1990.0, 20_000.0), SiteJob(9, 2, 2001.0, 5000.0)]
    found = run_with_credit([*lend, *queue, *theirs], {1: 1, 2: 1}, bound=10_000.0)
    assert (found.ahead, found.paid_back, found.waits.evictions) == (1, 1000.0, 1)
    # One wait for each job of the queue before, and the debt of 1,000 s for all but the first.
    assert found.waits.by_site[1] == 500 * (1 + 2 + 3 + 4 + 5) + 5 * 1000


@pytest.mark.parametrize("seed", range(20))
def test_debts_stay_within_their_bound_whatever_comes(seed: int) -> None:
    chance = random.Random(seed)
    machines = {site: chance.randint(1, 4) for site in range(5)}
    jobs = [
        SiteJob(number, chance.choice([0, 0, 0, 1, 2, 3, 4]), at, chance.expovariate(1 / 500))
        for number, at in enumerate(sorted(chance.uniform(0, 8000) for _ in range(250)))
    ]
    bound = chance.choice([500.0, 5000.0])
    found = run_with_credit(jobs, machines, bound)
    assert found.waits.by_site.keys() == {job.site for job in jobs}, "all jobs have run"
    assert 0 < found.largest <= bound
    assert found.largest_end <= bound
    assert found.paid_back + found.beyond <= found.lent + 1e-6
    assert found.waits.total_wait <= run_sites(jobs, machines, FlockDesign.NONE).total_wait


@pytest.mark.parametrize("seed", range(10))
def test_no_site_is_worse_off_where_jobs_that_would_run_alone_come_first(seed: int) -> None:
    """Payback ahead of those own jobs only that would wait without a flock, too."""
    chance = random.Random(seed)
    machines = {site: chance.randint(1, 4) for site in range(chance.randint(2, 5))}
    jobs = [
        SiteJob(number, chance.choice([*machines]), at, 1 + chance.expovariate(1 / 300))
        for number, at in enumerate(sorted(chance.uniform(0, 3000) for _ in range(100)))
    ]
    alone = run_sites(jobs, machines, FlockDesign.NONE).by_site
    credit = run_with_credit(jobs, machines, 3000.0, guarded=True)
    ideal = run_sites(jobs, machines, FlockDesign.IDEAL, guarded=True)
    for found in (credit.waits, ideal):
        assert all(found.by_site[site] <= alone[site] + 1e-3 for site in alone)
        assert found.idle_wait < 1e-3
    assert credit.paid_back > 0
