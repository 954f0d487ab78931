"""The memory that a job costs the submit side, waiting and running."""

from __future__ import annotations

import asyncio

from pool.client import Pool
from tests.benchmarks import processes
from tests.benchmarks.nodes import Node, personal_node, two_nodes
from tests.benchmarks.rows import Effort, Goal, Row, benchmark


async def settled(node: Node) -> int:
    """The node's own memory once it no longer moves, in bytes."""
    last = -1
    for _ in range(20):
        now = processes.anonymous(node.pid)
        if abs(now - last) < 64 * 1024:
            break
        last = now
        await asyncio.sleep(0.5)
    return now


def helpers(node: Node) -> int:
    """Proportional memory of all processes below a node, in bytes."""
    return sum(processes.memory(pid)[1] for pid in processes.children(node.pid)[1:])


@benchmark("idlejobs")
async def idle_jobs(effort: Effort) -> list[Row]:
    """Memory of each idle job in the schedd: 20,000 more of them, in one cluster and in many."""
    jobs = effort.of(20_000, least=2000)
    rows = []
    for differing in (False, True):
        commands = {"executable": "/bin/true", "requirements": "False"}
        commands |= {"arguments": "$(Process)"} if differing else {}
        async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
            await pool.submit(commands | {"queue": str(jobs)})  # these also fill the allocator's pools
            before = await settled(node)
            await pool.submit(commands | {"queue": str(jobs)})
            each = (await settled(node) - before) / jobs
        what = "each with its own arguments" if differing else "all equal"
        rows.append(Row(f"idle job in the schedd, {what}", each / 1000, "kB", Goal("at most", 2)))
    clusters = effort.of(3000, least=500)
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        for _ in range(2):  # the second time counts
            before = await settled(node)
            for _ in range(clusters):
                await pool.submit({"executable": "/bin/true", "requirements": "False", "queue": 1})
            each = (await settled(node) - before) / clusters
    rows.append(Row("idle job in the schedd, a cluster of its own", each / 1000, "kB", Goal("at most", 2)))
    return rows


@benchmark("runningjobs")
async def running_jobs(effort: Effort) -> list[Row]:
    """Memory of each running job on the submit side, and on the execute side with its keeper."""
    jobs = effort.of(200, least=20)
    async with two_nodes(slots=2 * jobs) as (submit, execute), await Pool.connect(submit.address) as pool:
        await run_sleepers(pool, jobs)
        before = [await settled(submit), await settled(execute)]
        keepers_before = helpers(execute)
        await run_sleepers(pool, jobs)
        after = [await settled(submit), await settled(execute)]
        keepers = helpers(execute) - keepers_before
        await pool.act("remove", everything=True)
    here, there = ((now - then) / jobs / 1000 for now, then in zip(after, before, strict=True))
    return [
        Row("running job on the submit side", here, "kB", Goal("at most", 50)),
        Row("running job in the startd", there, "kB"),
        Row("running job: keeper and `sleep`, proportional", keepers / jobs / 1000, "kB"),
    ]


async def run_sleepers(pool: Pool, jobs: int) -> None:
    """Queue that many sleeping jobs and wait until all of them run."""
    small = {"request_memory": "1", "request_disk": "1"}  # a great many of them fit
    cluster = await pool.submit(small | {"executable": "/bin/sleep", "arguments": "3600", "queue": str(jobs)})
    async with asyncio.timeout(120):
        running = 0
        async for events in pool.events(cluster=cluster.cluster):
            running += sum(event["kind"] == "EXECUTE" for event in events)
            if running >= jobs:
                break
