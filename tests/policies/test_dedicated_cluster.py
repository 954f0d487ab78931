"""docs/policies/dedicated-cluster.md: nothing disturbs a job, and machines are shared out."""

from __future__ import annotations

import asyncio

from pool.testing.pool import SimPool
from tests.policies.support import LONG, MINUTE, run, shown, why, why_machine

PAGE = "dedicated-cluster"


def test_jobs_share_a_machine_and_nothing_disturbs_them() -> None:
    async def story(pool: SimPool) -> None:
        node = await pool.add("node1", "startd", behave=lambda spec: LONG)
        node.sensors.facts["Cpus"] = 4
        await pool.kill("node1")
        await pool.restart("node1")
        cluster = await pool.submit("head", count=6)
        await pool.run_until(lambda: len(pool.witness.running) == 4, within=60)
        await asyncio.sleep(10 * MINUTE)
        node.sensors.touched = pool.wall()
        node.sensors.owners_load = 8.0
        await pool.submit("head", count=3, owner="bob")
        await asyncio.sleep(5 * MINUTE)
        assert len(pool.witness.running) == 4
        assert not pool.witness.ends
        waiting = (await why(pool, f"{cluster}.5")).lines()
        page = [line.replace("12.5", f"{cluster}.5") for line in shown(PAGE, "poolnode why 12.5")]
        assert waiting[1:3] == page[1:3]
        assert waiting[0].partition(":")[2] == page[0].partition(":")[2]
        seen = (await why_machine(pool, "slot1_1@node1")).lines()
        assert seen[1:3] == shown(PAGE, "poolnode why slot1_1@node1")[1:3]

    run(PAGE, story)
