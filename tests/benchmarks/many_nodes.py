"""Jobs of two seconds over many nodes: how long all of them take, beside the least that so many slots allow."""

from __future__ import annotations

import asyncio
import math

from pool.client import Pool
from tests.benchmarks.nodes import many_nodes
from tests.benchmarks.processes import processor_seconds
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

NODES, SLOTS, JOBS = 60, 8, 4000
#: Of one job, seconds.
LENGTH = 2
#: Until all slots are known, and until all jobs have ended, seconds.
LONGEST = 600.0
#: A great many of them fit on one machine.
SMALL = {"request_memory": "1", "request_disk": "1"}


@benchmark("many_nodes")
async def short_jobs_over_many_nodes(effort: Effort) -> list[Row]:
    """4,000 jobs of 2 s over 60 nodes with 480 slots, beside whole turns of all slots."""
    nodes = effort.of(NODES, least=2)
    slots, jobs = nodes * SLOTS, effort.of(JOBS, least=2 * SLOTS)
    loop = asyncio.get_running_loop()
    async with many_nodes(nodes, SLOTS) as submit, await Pool.connect(submit.address) as pool:
        async with asyncio.timeout(LONGEST):
            await _all_known(pool, slots)
        spent, began = processor_seconds(submit.pid), loop.time()
        job = {"executable": "/bin/sleep", "arguments": str(LENGTH), **SMALL, "queue": jobs}
        async with asyncio.timeout(LONGEST):
            results = await (await pool.submit(job)).wait()
        took, used = loop.time() - began, processor_seconds(submit.pid) - spent
    assert all(result.exit_code == 0 for result in results)
    metric = f"{jobs:,} jobs of {LENGTH} s over {nodes} nodes with {slots:,} slots"
    least = math.ceil(jobs / slots) * LENGTH
    goal = Goal("at most", 17.5) if effort.share == 1 else None
    note = f"{used:.1f} s of the submitting node's processor time"
    return [Row(metric, took, "s", goal, "whole turns of all slots", least, note)]


async def _all_known(pool: Pool, slots: int) -> None:
    """Wait until the collector has all slots."""
    while True:
        if len(await pool.machines()) >= slots:
            return
        await asyncio.sleep(0.5)
