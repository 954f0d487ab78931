"""The use of a submit machine's node is found again in the costs of its jobs there (EV 2.8)."""

from __future__ import annotations

import os
from pathlib import Path

from tests.e2e.support import HEAD, PATIENCE, Nodes, client, slots, token

JOBS = 400
#: The part of the node's processor time that jobs are charged at least. It is 0.77 to 0.83 (the goal is 0.8,
#: docs/figures.md); without the shares of the node's common work it is 0.15 at most.
AT_LEAST = 0.6


def processor_seconds(process: int) -> float:
    """The processor time of a process and its children so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


async def test_the_jobs_costs_add_up_to_the_nodes(nodes: Nodes) -> None:
    head = nodes.start("head", HEAD).ready()
    nodes.start("far", "startd", join=await token(head, "startd"), POLICY="dedicated").ready()
    home = nodes.directory("home")
    async with client(head) as pool:
        await slots(pool, 1)
        before = processor_seconds(head.process.pid)
        cluster = await pool.submit({"executable": "/bin/true", "iwd": str(home), "queue": JOBS})
        await cluster.wait(2 * PATIENCE)
        used = processor_seconds(head.process.pid) - before
        ads = await cluster.ads(["ClusterId", "ProcId", "LocalUserCpu"])
        costs = [float(ad.value("LocalUserCpu")) for ad in ads]
        (row,) = await pool.summary()
    assert len(costs) == JOBS
    assert abs(row["local_cpu"] - sum(costs)) < 1e-3, "the user's part is the sum of his jobs'"
    assert AT_LEAST * used < sum(costs) < 1.02 * used + 0.02
    assert min(costs) > 0
