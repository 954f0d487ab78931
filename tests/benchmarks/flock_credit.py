"""Eight of LCG-2005's sites, each a pool of real roles with credit with each other one, on the virtual clock.

The trace is not in the repository (see `flock_trace`). It is every tenth job of these sites until so many are there,
on machines for a load of 0.8. By the rules alone, two of these sites wait longer than without a flock where a
creditor's jobs come ahead of all own ones.
"""

from __future__ import annotations

import asyncio
import sys

from pool.testing import run_virtual
from pool.testing.flock_credit_trace import run_with_credit
from pool.testing.flock_real_trace import run_real_sites
from pool.testing.flock_trace import FlockDesign, SiteJob, machines_for, read_site_jobs, run_sites
from tests.benchmarks.dedicated import traced
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

SITES, SHARE, LOAD, JOBS = (2, 3, 10, 17, 26, 40, 41, 55), 10, 0.8, 1000
HOURS = 3600.0
#: Two sites may owe each other so many machine-seconds.
BOUND = 100 * HOURS
#: Seconds that a job may wait longer than alone: messages, and no more.
MESSAGES = 1.0


@benchmark("flock_credit")
async def flock_credit(effort: Effort) -> list[Row]:
    """Waits, balances and paybacks of eight pools of real roles with credit, beside those of the rules alone."""
    path = traced("lcg-2005.swf.gz")
    if path is None:
        print("flock_credit: POOLNODE_TRACES names no directory with lcg-2005.swf.gz", file=sys.stderr)
        return []
    some = [job for job in read_site_jobs(path) if job.site in SITES][::SHARE][: effort.of(JOBS, least=100)]
    first = some[0].submitted
    jobs = [SiteJob(number, job.site, job.submitted - first, job.runtime) for number, job in enumerate(some)]
    machines = machines_for(jobs, LOAD)
    alone = run_sites(jobs, machines, FlockDesign.NONE)
    unguarded, guarded = (run_with_credit(jobs, machines, BOUND, guarded=guarded) for guarded in (False, True))
    # The benchmark is on a loop itself, and the virtual clock is a loop of its own.
    real = await asyncio.to_thread(run_virtual, run_real_sites(jobs, machines, bound=BOUND))
    counts = {site: sum(job.site == site for job in jobs) for site in machines}
    worse = sum(real.by_site[site] > alone.by_site[site] + MESSAGES * counts[site] for site in machines)
    by_rules = sum(unguarded.waits.by_site[site] > alone.by_site[site] + MESSAGES for site in machines)
    size = f"{len(jobs):,} jobs, {len(machines)} pools, {sum(machines.values()):,} machines, {real.hours:.0f} hours"
    return [
        Row("sites whose jobs wait a second longer each than alone, real roles with credit", worse, "sites",
            Goal("at most", 0), peer="creditors first, by the rules", peer_value=by_rules, note=size),
        Row("largest balance at the end", real.largest / BOUND, "of its bound", Goal("at most", 1.01)),
        Row("pairs of pools whose ledgers differ at the end", real.unequal, "pairs", Goal("at most", 0)),
        Row("jobs that did not end, or ran twice at a time", real.unended + real.twice, "jobs", Goal("at most", 0)),
        Row("job-hours waited in all, with credit", real.total_wait / HOURS, "h", None,
            peer="no flock, by the rules", peer_value=alone.total_wait / HOURS,
            note=f"with credit, by the rules: {guarded.waits.total_wait / HOURS:.0f} h; longest wait"
                 f" {real.longest_wait / HOURS:.1f} h, alone {alone.longest_wait / HOURS:.1f} h"),
        Row("claims that were given ahead of own jobs", real.ahead, "claims", None,
            note=f"{real.taken_back} were taken back; {real.lent / HOURS:.0f} machine-hours in the ledgers"),
    ]  # fmt: skip
