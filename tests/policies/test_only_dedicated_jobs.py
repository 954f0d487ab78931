"""docs/policies/only-dedicated-jobs.md."""

from __future__ import annotations

import asyncio

from pool.testing.pool import SimPool
from tests.policies.dedicated import HOUR, machines, running, same
from tests.policies.support import MINUTE, run, why, why_machine
from tests.roles.schedd.dedicated.support import parallel


def test_only_dedicated_jobs_run() -> None:
    page = "only-dedicated-jobs"

    async def story(pool: SimPool) -> None:
        await machines(pool, "node1")
        await pool.submit("head")
        await asyncio.sleep(10 * MINUTE)
        assert not pool.witness.starts
        same(page, "poolnode why 1.0", (await why(pool, "1.0")).lines())
        await machines(pool, "node2")
        await pool.submit("head", owner="bob", ad=parallel(2))
        await pool.run_until(lambda: running(pool) == {"2.0"}, within=60)
        await asyncio.sleep(10 * MINUTE)
        same(page, "poolnode why slot1@node1", (await why_machine(pool, "slot1@node1")).lines())
        await pool.run_until(lambda: pool.queued("head") == 1, within=2 * HOUR)
        await asyncio.sleep(10 * MINUTE)
        assert not running(pool), "not on a machine that is idle either"

    run(page, story)
