"""A work flow of 10,000 nodes, 100 wide: how many nodes a second, its submit, its status."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from pool.client import Pool
from pool.client.workflow_requests import submit_workflow, workflow_status
from pool.client.workflows import draft_workflow
from tests.benchmarks.nodes import personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Chains of nodes, and slots.
WIDE, SLOTS = 100, 8


def write_dag(path: Path, nodes: int) -> None:
    """So many nodes of one description, each with a variable of its own, in WIDE chains."""
    lines = ["SUBMIT-DESCRIPTION true {\nexecutable = /bin/true\n}"]
    lines += [f'JOB n{at} true\nVARS n{at} at="{at}"' for at in range(nodes)]
    lines += [f"PARENT n{at} CHILD n{at + WIDE}" for at in range(nodes - WIDE)]
    path.write_text("\n".join(lines))


@benchmark("workflows")
async def workflows(effort: Effort) -> list[Row]:
    """10,000 nodes of /bin/true in 100 chains, beside as many jobs of one cluster on the same slots."""
    nodes = max(WIDE, effort.of(10_000, least=WIDE) // WIDE * WIDE)
    loop = asyncio.get_running_loop()
    with tempfile.TemporaryDirectory() as folder:
        write_dag(Path(folder, "it.dag"), nodes)
        async with personal_node(slots=SLOTS) as node, await Pool.connect(node.address) as pool:
            await (await pool.submit({"executable": "/bin/true", "queue": 50})).wait()
            began = loop.time()
            await (await pool.submit({"executable": "/bin/true", "queue": nodes})).wait()
            plain = nodes / (loop.time() - began)
            began = loop.time()
            number = await submit_workflow(pool, draft_workflow(["it.dag"], iwd=folder))
            submitted = loop.time() - began
            await asyncio.sleep(0)
            began = loop.time()
            status = await workflow_status(pool, number)
            asked = loop.time() - began
            assert sum(status["counts"].values()) == nodes
            (result,) = await pool.cluster(number, 1).wait()
            assert result.exit_code == 0
            rate = nodes / (loop.time() - began)
    what = f"a work flow of {nodes:,} nodes of /bin/true, {WIDE} wide"
    return [
        Row(what, rate, "nodes/s", Goal("at least", 300, "value"), "as many jobs of one cluster", plain),
        Row(f"{what}: read and submitted", submitted, "s", Goal("at most", 1, "value")),
        Row(f"{what}: status while it runs", asked, "s", Goal("at most", 0.2, "value")),
    ]
