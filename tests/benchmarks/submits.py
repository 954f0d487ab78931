"""How fast the schedd takes jobs in. Accepted means durable: the answer comes after the disk has it."""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from pool.client import Pool
from tests.benchmarks.nodes import personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

# Jobs that no machine takes: what is measured is the queue.
IDLE = {"executable": "/bin/true", "requirements": "False"}


@benchmark("bulk")
async def bulk(effort: Effort) -> list[Row]:
    """`queue 10000` accepted durably, of equal jobs and of jobs that differ, medians of 3."""
    jobs = effort.of(10_000, least=100)
    loop = asyncio.get_running_loop()
    rows = []
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        await pool.submit(IDLE | {"queue": 1})
        for differing in (False, True):
            commands: dict[str, Any] = IDLE | {"queue": jobs}
            if differing:
                commands["arguments"] = "$(Process)"
            rates = []
            for _ in range(3):
                began = loop.time()
                await pool.submit(commands)
                rates.append(jobs / (loop.time() - began))
            metric = f"queue {jobs} accepted, {'each with its own arguments' if differing else 'all equal'}"
            rows.append(Row(metric, statistics.median(rates), "jobs/s", Goal("at least", 20_000)))
    return rows


@benchmark("submits")
async def submits(effort: Effort) -> list[Row]:
    """1,000 separate submits over one connection: one after the other, and 32 under way at a time."""
    times = effort.of(1000, least=50)
    loop = asyncio.get_running_loop()
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        await pool.submit(IDLE | {"queue": 1})
        began = loop.time()
        for _ in range(times):
            await pool.submit(IDLE | {"queue": 1})
        one_by_one = times / (loop.time() - began)

        waiting = asyncio.Semaphore(32)

        async def submit() -> None:
            async with waiting:
                await pool.submit(IDLE | {"queue": 1})

        began = loop.time()
        await asyncio.gather(*(submit() for _ in range(times)))
        together = times / (loop.time() - began)
    goal = Goal("at least", 1000)
    return [
        Row(f"{times:,} separate submits, one connection, 32 under way", together, "submits/s", goal),
        Row(f"{times:,} separate submits, one connection, one by one", one_by_one, "submits/s", goal),
    ]
