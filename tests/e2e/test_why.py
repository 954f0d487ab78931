"""`poolnode why` on a real node: what a user reads, on a terminal's width and in a pipe (D8)."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e.support import ALL, Nodes, asked, client, poolnode


async def test_a_job_and_a_machine_explain_themselves(nodes: Nodes) -> None:
    home = nodes.directory("home")
    whole = nodes.start("whole", ALL).ready()
    async with client(whole) as pool:
        wish = {"executable": "/bin/sleep", "request_memory": "64TB", "environment": "TOKEN=hunter2"}
        cluster = await pool.submit(wish, iwd=home)

        async def looked_at() -> Any:
            found = await pool.why((cluster.cluster, 0))
            return found if "last negotiation" in str(found) else None

        explained = await asked(looked_at, "the first negotiation")
        assert explained.standing == "no machine matches"
        said = explained.lines()
        assert any(line.split()[:3] == ["request_memory", "64", "TB"] and "largest" in line for line in said), said
        assert any(line.startswith("  nearest: without request_memory 64 TB, 1 machine") for line in said), said
        (slot,) = await pool.why_machine("slot1@whole")
        assert slot.lines()[0].startswith("slot1@whole: Unclaimed Idle")
    job = f"{cluster.cluster}.0"
    done = poolnode("why", job, "slot1@whole", "nowhere", POOLNODE_ADDRESS=whole.address)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{job} waits")
    assert "there is no machine nowhere" in done.stderr
    found = json.loads(poolnode("why", job, "--json", POOLNODE_ADDRESS=whole.address).stdout)
    assert found["standing"] == "no machine matches"
    assert "hunter2" not in json.dumps(found)
