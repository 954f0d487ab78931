"""A trace's jobs by each design of the flock; the classic design's shortcomings (EV 8), one by one."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pool.testing.flock_trace import (
    CLASSIC_INTERVAL,
    FlockDesign,
    SiteJob,
    machines_for,
    read_site_jobs,
    run_sites,
)


def together(*sites: tuple[int, int, float], at: float = 1.0) -> list[SiteJob]:
    """Jobs that are submitted at one time: (site, how many, runtime)."""
    found = [(site, runtime) for site, count, runtime in sites for _ in range(count)]
    return [SiteJob(number, site, at, runtime) for number, (site, runtime) in enumerate(found)]


def test_the_measure_counts_waits_beside_idle_machines_only() -> None:
    jobs = together((1, 3, 100.0))
    alone = run_sites(jobs, {1: 1, 2: 1}, FlockDesign.NONE)
    assert alone.total_wait == 100 + 200
    assert alone.idle_wait == 100 + 100  # never more than the one machine that is idle
    assert run_sites(jobs, {1: 1, 2: 1}, FlockDesign.ONE_POOL).idle_wait == 0


def test_classic_one_grant_in_an_interval() -> None:
    jobs, machines = together((1, 10, 10_000.0)), {1: 0, 2: 10}
    assert run_sites(jobs, machines, FlockDesign.CLASSIC).longest_wait >= 9 * CLASSIC_INTERVAL
    assert run_sites(jobs, machines, FlockDesign.IDEAL).longest_wait == 0


def test_classic_a_start_elsewhere_takes_cycles_of_both_pools() -> None:
    jobs, machines = together((1, 1, 10.0)), {1: 0, 2: 1}
    wait = run_sites(jobs, machines, FlockDesign.CLASSIC).longest_wait
    assert CLASSIC_INTERVAL <= wait <= 2 * CLASSIC_INTERVAL
    assert run_sites(jobs, machines, FlockDesign.IDEAL).longest_wait == 0


def test_classic_the_world_ranks_as_a_machine() -> None:
    """A job goes out while a machine of its own pool is idle."""
    jobs, machines = together((1, 1, 10.0)), {1: 1, 2: 1}
    assert run_sites(jobs, machines, FlockDesign.CLASSIC).away == 1
    assert run_sites(jobs, machines, FlockDesign.IDEAL).away == 0


def test_classic_guests_stay_and_the_pools_own_jobs_wait() -> None:
    guests, own = SiteJob(0, 1, 1.0, 50_000.0), SiteJob(1, 2, 2000.0, 10.0)
    classic = run_sites([guests, own], {1: 0, 2: 1}, FlockDesign.CLASSIC)
    assert classic.by_site[2] > 40_000
    ideal = run_sites([guests, own], {1: 0, 2: 1}, FlockDesign.IDEAL)
    assert (ideal.by_site[2], ideal.evictions) == (0, 1)
    assert ideal.by_site[1] == 10  # it goes on from its checkpoint when the machine is free again


def test_classic_all_pools_are_shown_the_same_machine() -> None:
    """Two pools are shown the one idle machine of a third: one of them asks in vain and has lost its interval."""
    jobs, machines = together((1, 1, 5000.0), (2, 1, 5000.0)), {1: 0, 2: 0, 3: 1, 4: 1}
    assert run_sites(jobs, machines, FlockDesign.CLASSIC).longest_wait > 2 * CLASSIC_INTERVAL
    assert run_sites(jobs, machines, FlockDesign.IDEAL).longest_wait == 0


@pytest.mark.parametrize("seed", range(20))
def test_by_chance(seed: int) -> None:
    """All jobs run under each design; by the ideal one no job waits beside an idle machine, and none leaves early."""
    chance = random.Random(seed)
    machines = {site: chance.randint(1, 4) for site in range(5)}
    jobs = [
        SiteJob(number, chance.choice([0, 0, 0, 1, 2, 3, 4]), at, chance.expovariate(1 / 500))
        for number, at in enumerate(sorted(chance.uniform(0, 3000) for _ in range(100)))
    ]
    alone, classic, ideal, merged = (run_sites(jobs, machines, design) for design in FlockDesign)
    assert ideal.idle_wait == merged.idle_wait == 0
    assert ideal.total_wait <= alone.total_wait
    assert classic.idle_wait > 0
    for figures in (alone, classic, ideal, merged):
        assert figures.by_site.keys() == {job.site for job in jobs}


def test_a_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.swf"
    line = "{} {} -1 {} 1 -1 -1 -1 1200 -1 -1 1 1 -1 -1 {} -1 -1"
    path.write_text(
        "; a comment\n" + "\n".join([line.format(1, 7, 83, 3), line.format(2, 0, 50, 4), line.format(3, 9, 0, 4)])
    )
    jobs = read_site_jobs(path)
    assert jobs == [SiteJob(0, 4, 0.0, 50.0), SiteJob(1, 3, 7.0, 83.0)]
    assert machines_for(jobs, 0.5) == {4: 15, 3: 24}
