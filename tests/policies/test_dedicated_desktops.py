"""docs/policies/dedicated-desktops.md."""

from __future__ import annotations

import asyncio

from pool.policy.slots import BUSY, SUSPENDED
from pool.testing.pool import SimPool
from tests.policies.dedicated import HOUR, machines, running, same
from tests.policies.support import MINUTE, run, slot, why_machine
from tests.roles.schedd.dedicated.support import parallel


def test_a_desktop_runs_dedicated_jobs_whatever_its_owner_does() -> None:
    page = "dedicated-desktops"

    async def story(pool: SimPool) -> None:
        await machines(pool, "desk1", "desk2", "desk3")
        for name in ("desk1", "desk2", "desk3"):
            pool.nodes[name].sensors.touched = pool.wall() - 10 * HOUR
        await asyncio.sleep(MINUTE)
        await pool.submit("head", ad=parallel(2))
        await pool.run_until(lambda: running(pool) == {"1.0"}, within=120)
        await pool.submit("head", owner="bob")
        await pool.run_until(lambda: running(pool) == {"1.0", "2.0"}, within=200)
        for name in ("desk1", "desk2", "desk3"):
            pool.nodes[name].sensors.touched = pool.wall()
        await asyncio.sleep(10)
        bobs = pool.witness.running["2.0"]
        for name in ("desk1", "desk2", "desk3"):
            assert slot(pool, name).condition == (SUSPENDED if name == bobs else BUSY)
        for command, name in (("desk1", next(iter({"desk1", "desk2", "desk3"} - {bobs}))), ("desk2", bobs)):
            said = (await why_machine(pool, f"slot1@{name}")).lines()
            same(page, f"poolnode why slot1@{command}", [line.replace(name, command) for line in said])

    run(page, story)
