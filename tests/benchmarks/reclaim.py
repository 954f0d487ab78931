"""Getting a lent machine back on real nodes: from the last machine free to the first instructions of a gang of three.

One of the machines runs an opportunistic job of 100 MB, which is saved first. Beside it the same gang where nothing has
to leave: the difference is the reclaim. No peer is known that saves the job and starts a gang by itself.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from pool.client import Pool
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import client, program
from tests.e2e.test_dedicated import pool_of, queue_of, reclaimed

ROUNDS = 5


async def _free(pool: Pool, home: Path) -> float:
    """Seconds from the submit of a gang of three, on machines that are claimed and idle, to its first instructions."""
    gang = program(home, f"date +%s.%N > {home}/plain.$1", "plain")
    began = time.time()
    cluster = await pool.submit(
        f"universe = parallel\nmachine_count = 3\nexecutable = {gang}\narguments = $(Node)\n"
        '+ParallelShutdownPolicy = "WAIT_FOR_ALL"\nqueue\n',
        iwd=str(home),
    )
    (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
    assert result.ok, result
    return max(float((home / f"plain.{node}").read_text()) for node in range(3)) - began


@benchmark("reclaim")
async def reclaim(effort: Effort) -> list[Row]:
    """A lent machine with a job of 100 MB, until a gang of three has begun on it and two others."""
    took: list[float] = []
    free: list[float] = []
    with support.nodes() as made:
        await pool_of(made)
        async with client(queue_of(made)) as pool:
            for number in range(effort.of(ROUNDS, least=1)):
                home = made.directory(f"round{number}")
                took.append(await reclaimed(pool, home))
                free.append(await _free(pool, home))
    note = f"median of {len(took)}, {min(took):.2f} to {max(took):.2f}"
    return [
        Row(
            "a lent machine with a job of 100 MB: to a gang's first instruction",
            statistics.median(took),
            "s",
            Goal("at most", 1.5),
            note=note,
        ),
        Row("the same gang on idle claims, from its submit", statistics.median(free), "s"),
    ]
