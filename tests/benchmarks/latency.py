"""How long one short job takes from submit to completed, as its user sees it over the client."""

from __future__ import annotations

import asyncio
import statistics

from pool.client import Pool
from tests.benchmarks.nodes import personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

TRUE = {"executable": "/bin/true", "queue": 1}


@benchmark("latency")
async def latency(effort: Effort) -> list[Row]:
    """One /bin/true on an idle personal pool, submit to completed, median of 50."""
    loop = asyncio.get_running_loop()
    times = []
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        for turn in range(effort.of(50, least=5) + 3):
            began = loop.time()
            cluster = await pool.submit(TRUE)
            accepted = loop.time()
            results = await cluster.wait()
            ended = loop.time()
            assert [result.exit_code for result in results] == [0]
            if turn >= 3:  # the first ones load what is loaded once
                times.append((1000 * (ended - began), 1000 * (accepted - began)))
            await asyncio.sleep(0.05)  # idle again: nothing of the last job is still being done
    whole, accepting = zip(*times, strict=True)
    note = f"the slowest tenth from {statistics.quantiles(whole, n=10)[-1]:.0f} ms on"
    return [
        Row("submit to completed, median", statistics.median(whole), "ms", Goal("at most", 40), note=note),
        Row("of that until accepted", statistics.median(accepting), "ms"),
    ]
