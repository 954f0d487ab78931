"""How long the user waits for a list: whole commands, from the shell and back."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys

from pool.client import Pool
from tests.benchmarks.nodes import Node, personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.conftest import REPOSITORY


async def command(node: Node, *arguments: str, least_lines: int) -> float:
    """Seconds one `poolnode` command takes, its output read and counted."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pool.cli.main", *arguments),
        cwd=REPOSITORY,
        env=os.environ | {"POOLNODE_ADDRESS": node.address},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    took = loop.time() - began
    assert process.returncode == 0, f"poolnode {' '.join(arguments)}: status {process.returncode}"
    lines = output.count(b"\n")
    assert lines >= least_lines, f"poolnode {' '.join(arguments)}: {lines} lines instead of {least_lines}"
    return took


@benchmark("listings")
async def listings(effort: Effort) -> list[Row]:
    """`q` on 10,000 jobs and `status` on 10,000 machines, whole commands, medians of 5."""
    many = effort.of(10_000, least=100)
    goal = Goal("at most", 0.5)
    rows = []
    async with personal_node(slots=2) as node:
        async with await Pool.connect(node.address) as pool:
            await pool.submit(
                {"executable": "/bin/true", "arguments": "$(Process)", "requirements": "False", "queue": many}
            )
        await fake_machines(node, many)
        for metric, arguments, lines in (
            (f"q on {many:,} jobs", ("q",), many),
            (f"q --json on {many:,} jobs", ("q", "--json"), many),
            (f"status on {many:,} machines", ("status",), many),
            ("poolnode --version, for comparison", ("--version",), 1),
        ):
            times = [await command(node, *arguments, least_lines=lines) for _ in range(5)]
            rows.append(Row(metric, statistics.median(times), "s", goal if lines > 1 else None))
    return rows
