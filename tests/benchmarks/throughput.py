"""How many short jobs a second go through eight slots, beside HyperQueue and xargs."""

from __future__ import annotations

import asyncio
import statistics

from pool.client import Pool
from tests.benchmarks.nodes import personal_node
from tests.benchmarks.peers import hyperqueue, xargs
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

SLOTS = 8
TURNS = 5


@benchmark("throughput")
async def throughput(effort: Effort) -> list[Row]:
    """1,000 /bin/true over 8 slots, beside HyperQueue and xargs in turns, medians of 5."""
    jobs = effort.of(1000, least=50)
    loop = asyncio.get_running_loop()
    ours: list[float] = []
    theirs: list[tuple[float, float]] = []
    plain: list[float] = []
    async with (
        hyperqueue(SLOTS) as peer,
        personal_node(slots=SLOTS) as node,
        await Pool.connect(node.address) as pool,
    ):
        await (await pool.submit({"executable": "/bin/true", "queue": 50})).wait()
        if peer:
            await peer.run(50)
        for _ in range(effort.of(TURNS, least=2)):
            began = loop.time()
            cluster = await pool.submit({"executable": "/bin/true", "queue": jobs})
            results = await cluster.wait()
            ours.append(jobs / (loop.time() - began))
            assert all(result.exit_code == 0 for result in results)
            if peer:
                last, told = await peer.run(jobs)
                theirs.append((jobs / last, jobs / told))
            plain.append(jobs / await xargs(SLOTS, jobs))
    rate = statistics.median(ours)
    metric = f"{jobs:,} /bin/true over {SLOTS} slots"
    most, more = (Goal("at least", amount, "ratio") for amount in (0.75, 2.5))
    rows = [Row(metric, rate, "jobs/s", most, f"xargs -P{SLOTS}", statistics.median(plain))]
    if theirs:
        last, told = (statistics.median(column) for column in zip(*theirs, strict=True))
        rows.insert(0, Row(metric, rate, "jobs/s", more, "HyperQueue", last))
        note = "when its client, which looks once a second, said so"
        rows.insert(1, Row(metric, rate, "jobs/s", None, "HyperQueue", told, note))
    return rows
