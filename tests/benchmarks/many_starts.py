"""Many jobs that start at once: how long it takes until all of them run, and how long others wait meanwhile."""

from __future__ import annotations

import asyncio

from pool.client import Pool
from tests.benchmarks.large_queue import PING, pings
from tests.benchmarks.nodes import LISTEN, whole_node
from tests.benchmarks.processes import processor_seconds
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Until all of them run, seconds.
LONGEST = 300.0
#: Longer than the measurement takes.
SLEEP = 3600
#: A great many of them fit on one machine.
SMALL = {"request_memory": "1", "request_disk": "1"}
NOT_BEGUN = "JobCurrentStartExecutingDate is undefined"


@benchmark("many_starts")
async def many_starts(effort: Effort) -> list[Row]:
    """5,000 jobs that start at once on 5,000 slots, and all of them removed: another user's ping meanwhile."""
    jobs = effort.of(5000, least=20)
    loop = asyncio.get_running_loop()
    of = f"{jobs:,} jobs"
    rows = []
    async with whole_node(jobs, *LISTEN) as node, await Pool.connect(node.address) as pool:
        for what in ("starts", "removal"):
            spent, began = processor_seconds(node.pid), loop.time()
            async with pings(node) as meanwhile, asyncio.timeout(LONGEST):
                if what == "starts":
                    await pool.submit({"executable": "/bin/sleep", "arguments": str(SLEEP), **SMALL, "queue": jobs})
                    while await pool.jobs(constraint=NOT_BEGUN, attributes=["ProcId"], limit=1):
                        await asyncio.sleep(1)
                else:
                    acted = await pool.act("remove", everything=True, force=True)
                    assert acted.done == jobs, (acted.done, acted.refused[:3])
                    while await pool.jobs(attributes=["ProcId"], limit=1):
                        await asyncio.sleep(0.2)
            note = f"{processor_seconds(node.pid) - spent:.1f} s of the node's processor time"
            rows.append(Row(f"{what} of {of} on as many slots", loop.time() - began, "s", note=note))
            rows.append(Row(f"ping, {what} of {of}", meanwhile.longest, "ms", PING))
    return rows

