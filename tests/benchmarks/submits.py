"""How fast the schedd takes jobs in. Accepted means durable: the answer comes after the disk has it."""

from __future__ import annotations

import asyncio
import resource
import statistics
import time
from typing import Any

from pool.client import Pool
from tests.benchmarks.floors import durable_messages
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


@benchmark("streamed_items")
async def streamed_items(effort: Effort) -> list[Row]:
    """1,000,000 items from a generator, each a job with an argument of its own, beside the same as a list: until all
    are accepted durably, and how much the client's memory grows meanwhile."""
    jobs = effort.of(1_000_000, least=50_000)
    loop = asyncio.get_running_loop()
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        commands: dict[str, Any] = IDLE | {"arguments": "$(seed)"}
        (await pool.describe(commands | {"items": [{"seed": 1}]})).clusters[0].wire_deltas()
        before, began = _largest_memory(), loop.time()
        cluster = await pool.submit(commands | {"items": ({"seed": number} for number in range(jobs))})
        streamed, streamed_memory = loop.time() - began, _largest_memory() - before
        assert cluster.count == jobs
        await cluster.remove()
        began = loop.time()
        whole = await pool.describe(commands | {"items": [{"seed": number} for number in range(jobs)]})
        cluster = await pool.submit(whole)
        listed, listed_memory = loop.time() - began, _largest_memory() - before
        assert cluster.count == jobs
    peer = "the same as a list"
    goal, peer = Goal("at most", 1.0, "ratio"), "the same as a list"
    few = Goal("at most", 100)
    return [
        Row(f"{jobs:,} items from a generator accepted", streamed, "s", goal, peer, listed),
        Row("the same: the client's memory grows by", streamed_memory, "MB", few, peer, listed_memory),
    ]


def _largest_memory() -> float:
    """The largest that this process has been in memory, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@benchmark("submits")
async def submits(effort: Effort) -> list[Row]:
    """1,000 separate submits over one connection, one after the other, and 32 under way at a time; what a submit takes
    of the client's processor."""
    times = effort.of(1000, least=50)
    loop = asyncio.get_running_loop()
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        await pool.submit(IDLE | {"queue": 1})
        spent, began = time.process_time(), loop.time()
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
        spent = 1000 * (time.process_time() - spent) / (2 * times)
    many, few = Goal("at least", 5000), Goal("at least", 1500)
    peer, one = "a bare program with a socket and SQLite", f"{times:,} separate submits, one connection"
    least = {number: await asyncio.to_thread(durable_messages, times, number) for number in (32, 1)}
    return [
        Row(f"{one}, 32 under way", together, "submits/s", many, peer, least[32]),
        Row(f"{one}, one by one", one_by_one, "submits/s", few, peer, least[1]),
        Row("the same: the client's processor time for a submit", spent, "ms"),
    ]
