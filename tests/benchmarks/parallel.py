"""A parallel job of 1,000 nodes on simulated machines: how long from its submit to its end, and how large it is.

All nodes of the pool are in one process, and the network is in memory, so that the figure is the processor time of the
collector, the negotiator, the schedd and all startds together. The programs take no time.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from pool.jobs.gangs import GangPart, attributes_of
from pool.roles.garbage import GarbageCollection
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Slots of one machine.
SLOTS = 100


async def _job(nodes: int) -> tuple[float, float, int]:
    """Processor seconds and virtual seconds from the submit to the end, and bytes of the job's ad."""
    async with SimPool(1) as pool:
        await pool.add("head", "collector,negotiator,schedd")
        machines = -(-nodes // SLOTS)
        for number in range(machines):
            slots = min(SLOTS, nodes - number * SLOTS)
            settings = {"SLOTS": str(slots)}
            await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(0.0), settings=settings)
        await asyncio.sleep(30.0)
        ad = {"JobUniverse": 11, **attributes_of([GangPart(count=nodes)], apart=False)}
        garbage = GarbageCollection(time.thread_time)  # as every node has it
        began, clock = time.thread_time(), asyncio.get_running_loop().time()
        await pool.submit("head", ad={**ad, "ParallelShutdownPolicy": "WAIT_FOR_ALL"})
        await pool.run_until(lambda: not pool.queued("head"), within=600.0)
        used, took = time.thread_time() - began, asyncio.get_running_loop().time() - clock
        garbage.close()
        assert len(pool.witness.starts) == nodes
        (ended,) = await pool.ended("head")
        assert (ended["ExitCode"], ended["NumJobStarts"]) == (0, 1)
        return used, took, len(repr(ad))


@benchmark("parallel")
async def parallel(effort: Effort) -> list[Row]:
    """One parallel job of 1,000 nodes of /bin/true on simulated machines, from its submit to its end."""
    nodes = effort.of(1000, least=10)
    with ThreadPoolExecutor(1) as thread:  # it has a loop of its own
        used, took, size = await asyncio.get_running_loop().run_in_executor(thread, lambda: run_virtual(_job(nodes)))
    return [
        Row(f"parallel job of {nodes:,} nodes, all roles", used, "s", Goal("at most", 2.0), note="processor time"),
        Row(f"parallel job of {nodes:,} nodes, by the pool's clock", took, "s"),
        Row(f"ad of a parallel job of {nodes:,} nodes", size, "B", Goal("at most", 200)),
    ]
