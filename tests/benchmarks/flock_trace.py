"""LCG-2005's 188,041 jobs of 170 sites, each a pool, by each design of the flock (EV 1's measure, EV 4.3, 5, 8).

The trace is not in the repository: `POOLNODE_TRACES` names a directory with the Parallel Workloads Archive's
`lcg-2005.swf.gz`; without it there is no row. The trace does not say how many machines a site had, so each gets so many
that its own jobs offer them a load of 0.7.
"""

from __future__ import annotations

import sys

from pool.testing.flock_credit_trace import run_with_credit
from pool.testing.flock_trace import FlockDesign, machines_for, read_site_jobs, run_sites
from tests.benchmarks.dedicated import traced
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

LOAD = 0.7
HOURS = 3600.0
#: Two sites may owe each other so many machine-seconds.
BOUND = 100 * HOURS


@benchmark("flock_trace")
async def flock_trace(effort: Effort) -> list[Row]:
    """Waits of a grid's jobs: no flock, the classic World Machine, the ideal design, all machines in one pool."""
    path = traced("lcg-2005.swf.gz")
    if path is None:
        print("flock_trace: POOLNODE_TRACES names no directory with lcg-2005.swf.gz", file=sys.stderr)
        return []
    jobs = read_site_jobs(path, effort.of(200_000, least=5000))
    machines = machines_for(jobs, LOAD)
    alone, classic, ideal, merged = (run_sites(jobs, machines, design) for design in FlockDesign)
    worse = sum(ideal.by_site[site] > alone.by_site[site] + 1e-6 for site in ideal.by_site)
    credit = run_with_credit(jobs, machines, BOUND)
    poorer = sum(credit.waits.by_site[site] > alone.by_site[site] + 1e-6 for site in credit.waits.by_site)
    guarded = run_with_credit(jobs, machines, BOUND, guarded=True)
    worse_off = sum(guarded.waits.by_site[site] > alone.by_site[site] + 1.0 for site in guarded.waits.by_site)
    size = f"{len(jobs):,} jobs, {len(machines)} sites, {sum(machines.values()):,} machines"
    no_flock, one_pool = "no flock", "one pool of all"
    return [
        Row("job-hours waited while a machine is idle anywhere, ideal design", ideal.idle_wait / HOURS, "h",
            Goal("at most", 0), peer=no_flock, peer_value=alone.idle_wait / HOURS, note=size),
        Row("the same, classic World Machine", classic.idle_wait / HOURS, "h", None,
            peer=no_flock, peer_value=alone.idle_wait / HOURS),
        Row("job-hours waited in all, ideal design", ideal.total_wait / HOURS, "h", Goal("at most", 1.02, "ratio"),
            peer=one_pool, peer_value=merged.total_wait / HOURS),
        Row("longest wait, ideal design", ideal.longest_wait / HOURS, "h", Goal("at most", 0.1, "ratio"),
            peer=no_flock, peer_value=alone.longest_wait / HOURS),
        Row("sites whose own jobs wait longer than without a flock", worse, "sites", Goal("at most", 0),
            peer=one_pool,
            peer_value=sum(merged.by_site[site] > alone.by_site[site] + 1e-6 for site in merged.by_site)),
        Row("with credit: largest balance beside its bound", credit.largest / BOUND, "ratio", Goal("at most", 1.01)),
        Row("with credit: sites that wait longer than without a flock", poorer, "sites", Goal("at most", 0)),
        Row("with credit: job-hours waited in all", credit.waits.total_wait / HOURS, "h", None,
            peer="ideal design without credit", peer_value=ideal.total_wait / HOURS),
        Row("with credit behind jobs that would run alone: sites that wait a second longer than without a flock",
            worse_off, "sites", Goal("at most", 0), peer="credit ahead of all own jobs", peer_value=poorer),
        Row("with credit behind jobs that would run alone: job-hours waited in all", guarded.waits.total_wait / HOURS,
            "h", None, peer="credit ahead of all own jobs", peer_value=credit.waits.total_wait / HOURS),
    ]  # fmt: skip
