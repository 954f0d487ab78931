"""A cycle of the dedicated scheduler's role on real ads: 10,000 machines, 10,000 parallel jobs of fifty users.

The schedd is a real one with a real queue; the machines are ads as a startd makes them, as the collector would push
them. So the figure is all that a cycle does: matching, the decisions, and the requests that follow. Beside it, how long
another user's short question waits meanwhile: the processor time between two turns of the loop.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
from typing import Any

from pool.jobs.gangs import GangPart, attributes_of
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: How many kinds of machines, and of jobs.
KINDS, CLUSTERS, USERS = 8, 100, 50
CYCLES = 5
#: Seconds between two short questions.
ASK = 0.002


async def _machines(pool: SimPool, count: int) -> list[tuple[int, str, dict[str, Any], None]]:
    """Ads of dedicated machines in wire form, made from a real startd's."""
    await pool.add("m", "startd", behave=lambda spec: Behaviour(1.0), settings={"DEDICATED_SCHEDULER": "head"})
    startd = pool.role("m", "startd")
    await pool.run_until(lambda: startd.slots["slot1"].claim is None and bool(startd.slots["slot1"].key), 30.0)
    wire = startd.ads.wire_of(startd.slots["slot1"])
    await pool.kill("m")
    made: list[tuple[int, str, dict[str, Any], None]] = []
    for number in range(count):
        name = f"slot1@node{number:06}"
        own = {"Name": name, "Machine": f"node{number:06}", "Memory": 1000 * (1 + number % KINDS), "Cpus": 4}
        state = "Claimed" if number % 2 else "Unclaimed"
        made.append((number, name, {**wire, **own, "State": state, "CurrentRank": 0.0}, None))
    return made


async def _jobs(pool: SimPool, count: int) -> None:
    chance = random.Random(3)
    for number in range(CLUSTERS):
        size = chance.choice([1, 2, 3, 4, 8, 16, 100, 500, 1000, 2000])
        parts = [GangPart(count=size)]
        ad = attributes_of(parts, apart=False)
        ad |= {"JobUniverse": 11, "WantDedicated": True, "RequestMemory": 1000 * chance.randint(1, KINDS)}
        ad["ExpectedDuration"] = chance.randint(100, 9000)
        await pool.submit("head", count=max(1, count // CLUSTERS), owner=f"u{number % USERS}", ad=ad)


async def measure(machines: int, jobs: int, cycles: int = CYCLES) -> tuple[float, float]:
    """Processor seconds of a cycle (the median), and the longest time in which no other question was answered."""
    async with SimPool(1, settings={"NEGOTIATION_INTERVAL": "1000"}) as pool:
        await pool.add("head", "collector,schedd")
        ads = await _machines(pool, machines)
        scheduler = pool.role("head", "schedd").dedicated
        await _jobs(pool, jobs)
        await asyncio.sleep(0.5)
        scheduler.machines.update_ads(ads)
        await scheduler.decide_now()
        longest, running = 0.0, True

        async def ask() -> None:
            nonlocal longest
            before = time.thread_time()
            while running:
                await asyncio.sleep(ASK)
                now = time.thread_time()
                longest, before = max(longest, now - before), now

        asking = asyncio.create_task(ask())
        await asyncio.sleep(0.05)
        took = []
        for _ in range(cycles):
            before = time.thread_time()
            await scheduler.decide_now()
            took.append(time.thread_time() - before)
        running = False
        await asking
        assert scheduler.decisions.requests
        return statistics.median(took), longest


@benchmark("dedicated_cycle")
async def dedicated_cycle(effort: Effort) -> list[Row]:
    """A cycle of the dedicated scheduler in a schedd: 10,000 machines, 10,000 parallel jobs; others' questions."""
    machines, jobs = effort.of(10_000, least=100), effort.of(10_000, least=100)
    cycle, longest = await measure(machines, jobs)
    what = f"{machines:,} machines, {jobs:,} parallel jobs"
    return [
        Row(f"cycle in the schedd: {what}", cycle, "s", Goal("at most", 1.0), note="processor time, real ads"),
        Row(f"another question waits meanwhile: {what}", 1000 * longest, "ms", Goal("at most", 100.0)),
    ]
