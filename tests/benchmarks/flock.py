"""A job in another pool beside the same job in its own: how long until it starts (EV 5.5: two cycles of 5 minutes).

Two pools on this machine, each with its own authority, over TLS on loopback. The job writes the time at which it
begins; all clocks are one.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import tempfile
import time
from pathlib import Path

from pool.client import Pool
from tests.benchmarks.nodes import Node, flocking_nodes, two_nodes
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Seconds between two jobs: longer than an idle claim is kept, so that each job is matched anew, in both pools.
PAUSE = 1.5


@benchmark("flock")
async def flock(effort: Effort) -> list[Row]:
    """One job of `date`, submit to its first instruction, in another pool and on another node of its own; median."""
    turns = effort.of(15, least=5)
    own = await _starts(two_nodes(2, "--set", "FILESYSTEM_DOMAIN=away"), turns)
    other = await _starts(flocking_nodes(2), turns)
    return [
        Row(
            "submit to start in another pool, median",
            other,
            "ms",
            Goal("at most", 60),
            peer="another node of its own pool",
            peer_value=own,
        )
    ]


async def _starts(nodes: contextlib.AbstractAsyncContextManager[tuple[Node, Node]], turns: int) -> float:
    """Median of milliseconds from the submit to the job's first instruction."""
    times = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        async with nodes as (submit, _), await Pool.connect(submit.address) as pool:
            commands = {"executable": "/bin/date", "arguments": "+%s.%N", "output": "out", "error": "err"}
            for turn in range(turns + 3):
                began = time.time()
                cluster = await pool.submit(commands, iwd=directory)
                (result,) = await cluster.wait()
                assert result.ok, result
                if turn >= 3:
                    times.append(1000 * (float((Path(directory) / "out").read_text()) - began))
                await asyncio.sleep(PAUSE)
    return statistics.median(times)
