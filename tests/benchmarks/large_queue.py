"""A large queue: how long it takes to list and to change all of it, and how long others wait meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from pool.client import Pool
from pool.errors import PoolError
from tests.benchmarks.nodes import LISTEN, Node, directory_for_nodes, whole_node
from tests.benchmarks.processes import processor_seconds
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.conftest import REPOSITORY

#: The goal for another user's question meanwhile, milliseconds, and seconds between two of them.
PING, PAUSE = Goal("at most", 50), 0.005
#: The goal for the node's processor time for one of the jobs, microseconds.
EACH = Goal("at most", 15)
#: Until a schedd has read its queue, seconds.
LONGEST_RESTART = 300.0


class Pings:
    """Asks the node for a sign of life again and again, over a connection of its own.

    Attributes:
        longest: milliseconds that an answer took at most.
    """

    def __init__(self) -> None:
        self.longest = 0.0


@contextlib.asynccontextmanager
async def pings(node: Node) -> AsyncIterator[Pings]:
    """Ask all the time that the block takes."""
    found = Pings()
    loop = asyncio.get_running_loop()
    async with await Pool.connect(node.address) as pool:

        async def ask() -> None:
            while True:
                began = loop.time()
                await pool.call("node.ping")
                found.longest = max(found.longest, 1000 * (loop.time() - began))
                await asyncio.sleep(PAUSE)

        asking = loop.create_task(ask())
        try:
            yield found
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)


async def listed(node: Node, jobs: int) -> float:
    """List them with `poolnode q`; the most memory that it needs, MB."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "pool.cli.main", "q"),
        cwd=REPOSITORY,
        env=os.environ | {"POOLNODE_ADDRESS": node.address},
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    lines, memory = 0, 0
    while piece := await process.stdout.read(1 << 20):
        lines += piece.count(b"\n")
        memory = max(memory, _most_memory(process.pid))
    assert await process.wait() == 0
    assert lines >= jobs, f"{lines} lines of {jobs} jobs"
    return memory / 1024


def _most_memory(process: int) -> int:
    """The most memory that a process has had until now, KiB; 0 when it has ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0


@benchmark("large_queue")
async def large_queue(effort: Effort) -> list[Row]:
    """`q`, hold, release and rm of 1,000,000 jobs, a restart with them, and another user's ping in all of it."""
    jobs = effort.of(1_000_000, least=1000)
    of = f"{jobs:,} jobs"
    loop = asyncio.get_running_loop()
    seconds = Goal("at most", 15)
    rows = []

    @contextlib.asynccontextmanager
    async def measured(what: str, node: Node, goal: Goal) -> AsyncIterator[None]:
        async with pings(node) as meanwhile:
            spent, began = processor_seconds(node.pid), loop.time()
            yield
            used = processor_seconds(node.pid) - spent
            note = f"{used:.1f} s of the node's processor time"
            rows.append(Row(what, loop.time() - began, "s", goal, note=note))
            rows.append(Row(f"{what}, the node's processor time for one", 1e6 * used / jobs, "us", EACH))
        rows.append(Row(f"ping, {what}", meanwhile.longest, "ms", PING))

    with directory_for_nodes() as directory:
        async with whole_node(2, *LISTEN, directory=directory) as node, await Pool.connect(node.address) as pool:
            async with measured(f"submit of {of}", node, seconds):
                await pool.submit({"executable": "/bin/true", "requirements": "Memory < 0", "queue": jobs})
            async with measured(f"q on {of}", node, Goal("at most", 5)):
                memory = await listed(node, jobs)
            rows.append(Row(f"q on {of}, memory of the client", memory, "MB", Goal("at most", 100)))
            for action in ("hold", "release"):
                async with measured(f"{action} of {of}", node, seconds):
                    assert (await pool.act(action, everything=True)).done == jobs
        async with whole_node(2, *LISTEN, directory=directory) as node, await Pool.connect(node.address) as pool:
            async with measured(f"restart with {of}, until they are there", node, Goal("at most", 10)):
                await _answered(pool)
            async with measured(f"remove of {of}", node, seconds):
                acted = await pool.act("remove", everything=True)
                assert acted.done == jobs, (acted.done, acted.refused[:3])
    return rows


async def _answered(pool: Pool) -> None:
    """Wait until the schedd has read its queue and answers."""
    async with asyncio.timeout(LONGEST_RESTART):
        while True:
            try:
                await pool.gather("schedd.query", {"limit": 1})
                return
            except PoolError as error:
                if not error.retry:
                    raise
                await asyncio.sleep(0.1)
