"""Many jobs that start at once: how long it takes until all of them run, and how long others wait meanwhile."""

from __future__ import annotations

import asyncio

from pool.client import Cluster, Pool
from pool.jobs.events import EventKind
from tests.benchmarks.large_queue import pings
from tests.benchmarks.nodes import LISTEN, whole_node
from tests.benchmarks.processes import processor_seconds
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Until all of them run, seconds.
LONGEST = 300.0
#: The goal for another user's question meanwhile, milliseconds.
PING = Goal("at most", 100)
#: Longer than the measurement takes.
SLEEP = 3600
#: A great many of them fit on one machine.
SMALL = {"request_memory": "1", "request_disk": "1"}


@benchmark("many_starts")
async def many_starts(effort: Effort) -> list[Row]:
    """5,000 jobs that start at once on 5,000 slots, and all of them removed: another user's ping meanwhile."""
    jobs = effort.of(5000, least=20)
    loop = asyncio.get_running_loop()
    of = f"{jobs:,} jobs"
    rows = []
    async with whole_node(jobs, *LISTEN) as node, await Pool.connect(node.address) as pool:
        cluster = None
        for what in ("starts", "removal"):
            spent, began = processor_seconds(node.pid), loop.time()
            async with pings(node) as meanwhile, asyncio.timeout(LONGEST):
                if cluster is None:
                    job = {"executable": "/bin/sleep", "arguments": str(SLEEP), **SMALL, "queue": jobs}
                    cluster = await pool.submit(job)
                    await _all_run(cluster, jobs)
                else:
                    acted = await cluster.remove(force=True)
                    assert acted.done == jobs, (acted.done, acted.refused[:3])
                    await cluster.wait()
            note = f"{processor_seconds(node.pid) - spent:.1f} s of the node's processor time"
            rows.append(Row(f"{what} of {of} on as many slots", loop.time() - began, "s", note=note))
            rows.append(Row(f"ping, {what} of {of}", meanwhile.longest, "ms", PING))
    return rows


async def _all_run(cluster: Cluster, jobs: int) -> None:
    """Wait until all jobs of a cluster have begun."""
    begun: set[int] = set()
    async for event in cluster.events():
        if event.kind is EventKind.EXECUTE:
            begun.add(event.proc)
            if len(begun) == jobs:
                return
