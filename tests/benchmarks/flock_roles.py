"""LCG-2005's 170 sites, each a pool of real roles with a world, on the virtual clock, beside the designs' rules alone.

The trace is not in the repository (see `flock_trace`). Here each match and start is a message, so that a run of all
188,041 jobs takes most of an hour of processor time or more: it is every tenth job, on a tenth of the machines, until
2,000 are submitted. `POOLNODE_TRACE_SHARE` and `POOLNODE_TRACE_JOBS` say other numbers for "tenth" and 2,000. Each site
lends to five others; where all lend to all, 28,730 connections would stand.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from pool.testing import run_virtual
from pool.testing.flock_real_trace import neighbours, run_real_sites
from pool.testing.flock_trace import FlockDesign, SiteJob, machines_for, read_site_jobs, run_sites
from tests.benchmarks.dedicated import traced
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

LOAD, SHARE, LENDS, JOBS = 0.7, 10, 5, 2000
HOURS = 3600.0
#: Seconds that a job may wait longer than alone: messages, and no more.
MESSAGES = 1.0


def whole_number(variable: str, usual: int) -> int:
    """The value of an environment variable.

    Raises:
        ValueError: it is no whole number above 0.
    """
    said = os.environ.get(variable)
    if said is None:
        return usual
    if not said.isascii() or not said.isdigit() or int(said) < 1:
        raise ValueError(f"{variable}={said!r} is no whole number above 0")
    return int(said)


@benchmark("flock_roles")
async def flock_roles(effort: Effort) -> list[Row]:
    """A part of a grid's jobs and machines in 170 pools of real roles: waits beside those of the rules alone."""
    path = traced("lcg-2005.swf.gz")
    if path is None:
        print("flock_roles: POOLNODE_TRACES names no directory with lcg-2005.swf.gz", file=sys.stderr)
        return []
    every = read_site_jobs(path)
    share = whole_number("POOLNODE_TRACE_SHARE", SHARE)
    machines = {site: max(1, round(count / share)) for site, count in machines_for(every, LOAD).items()}
    some = every[::share][: effort.of(whole_number("POOLNODE_TRACE_JOBS", JOBS), least=100)]
    jobs = [SiteJob(number, job.site, job.submitted, job.runtime) for number, job in enumerate(some)]
    alone, ideal = (run_sites(jobs, machines, design) for design in (FlockDesign.NONE, FlockDesign.IDEAL))
    lends = neighbours(sorted(machines), LENDS)
    began = time.process_time()
    # The benchmark is on a loop itself, and the virtual clock is a loop of its own.
    real = await asyncio.to_thread(run_virtual, run_real_sites(jobs, machines, lends=lends))
    spent = time.process_time() - began
    counts = [sum(job.site == site for job in jobs) for site in machines]
    worse = sum(
        real.by_site[site] > alone.by_site.get(site, 0.0) + MESSAGES * count
        for site, count in zip(machines, counts, strict=True)
    )
    size = f"{len(jobs):,} jobs, {len(machines)} pools, {sum(machines.values()):,} machines, {real.hours:.0f} hours"
    return [
        Row("job-hours waited in all, real roles that lend to five pools each", real.total_wait / HOURS, "h", None,
            peer="no flock, by the rules", peer_value=alone.total_wait / HOURS,
            note=f"{size}; all lend to all, by the rules: {ideal.total_wait / HOURS:.2f} h"),
        Row("longest wait", real.longest_wait / HOURS, "h", Goal("at most", 0.1, "ratio"),
            peer="no flock, by the rules", peer_value=alone.longest_wait / HOURS),
        Row("sites whose own jobs wait a second longer each than without a flock", worse, "sites", Goal("at most", 0)),
        Row("jobs that began in another pool", real.away, "jobs", None, peer="by the rules", peer_value=ideal.away),
        Row("jobs that did not end, or ran twice at a time", real.unended + real.twice, "jobs", Goal("at most", 0)),
        Row("processor time of a call that a node served", 1e6 * spent / max(1, real.messages), "us"),
    ]  # fmt: skip
