"""The cost of a node with all roles while nothing happens, and of one look at its machine."""

from __future__ import annotations

import asyncio
import resource
import tempfile
import time
from pathlib import Path

from pool.client import Pool
from pool.machine import LinuxSensors
from tests.benchmarks import processes
from tests.benchmarks.floors import library_memory
from tests.benchmarks.nodes import LISTEN, whole_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark


@benchmark("idle")
async def idle(effort: Effort) -> list[Row]:
    """Memory and processor time of an idle node with all roles, its helper processes included."""
    seconds = effort.of(60, least=10)
    async with whole_node(slots=8) as node:
        async with await Pool.connect(node.address) as pool:
            await (await pool.submit({"executable": "/bin/true", "queue": 1})).wait()
        await asyncio.sleep(5)
        family = processes.children(node.pid)
        before = sum(processes.processor_seconds(pid) for pid in family)
        await asyncio.sleep(seconds)
        used = sum(processes.processor_seconds(pid) for pid in family) - before
        sizes = [processes.memory(pid) for pid in family]
    resident, proportional = (sum(column) / 1e6 for column in zip(*sizes, strict=True))
    async with whole_node(8, *LISTEN) as node:
        await asyncio.sleep(5)
        reached = sum(processes.memory(pid)[0] for pid in processes.children(node.pid)) / 1e6
    share = 100 * used / seconds
    bare = [amount / 1e6 for amount in await asyncio.to_thread(library_memory)]
    peer = "Python with a node's libraries, nothing of the pool"
    note = f"over {seconds} s, {len(family)} processes"
    return [
        Row("idle node, all roles: resident memory", resident, "MB", Goal("at most", 40), peer, bare[0]),
        Row("idle node, all roles: proportional memory", proportional, "MB", None, peer, bare[1]),
        Row("idle node, all roles, that other nodes reach: resident memory", reached, "MB", None, peer, bare[0]),
        Row("idle node, all roles: processor", share, "% of a core", Goal("at most", 0.3), note=note),
    ]


@benchmark("sensors")
async def sensors(effort: Effort) -> list[Row]:
    """Processor time of one reading of a machine's sensors beside fifty jobs: the best of some."""
    jobs = [await asyncio.create_subprocess_exec("sleep", "600") for _ in range(50)]
    costs = []
    try:
        with tempfile.TemporaryDirectory() as directory:
            machine = LinuxSensors(Path(directory))
            await machine.start()
            machine.watch(lambda: [job.pid for job in jobs])
            for _ in range(effort.of(100, least=20)):
                before = resource.getrusage(resource.RUSAGE_SELF)
                machine.read(time.time())
                after = resource.getrusage(resource.RUSAGE_SELF)
                costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            await machine.stop()
    finally:
        for job in jobs:
            job.kill()
            await job.wait()
    return [Row("one reading of the sensors, 50 jobs", 1000 * min(costs), "ms", Goal("at most", 2.5))]
