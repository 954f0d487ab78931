"""docs/policies/dedicated-and-other-jobs.md."""

from __future__ import annotations

import asyncio

from pool.testing.pool import SimPool
from tests.policies.dedicated import HOUR, machines, running, same
from tests.policies.support import MINUTE, run, why
from tests.roles.schedd.dedicated.support import parallel, serial


def test_other_jobs_run_until_a_dedicated_one_needs_their_machines() -> None:
    page = "dedicated-and-other-jobs"

    async def story(pool: SimPool) -> None:
        await machines(pool, "node1", "node2", seconds={"1.0": 1800.0, "2.0": 60.0})
        await pool.submit("head", owner="bob", ad=serial(ExpectedDuration=1800))
        await pool.run_until(lambda: running(pool) == {"1.0"}, within=60)
        await pool.submit("head", ad=parallel(2))
        await pool.submit("head", owner="carol")
        await pool.run_until(lambda: running(pool) == {"1.0", "3.0"}, within=120)
        await asyncio.sleep(10 * MINUTE)
        assert running(pool) == {"1.0", "3.0"}
        same(page, "poolnode why 2.0", (await why(pool, "2.0")).lines())
        await pool.run_until(lambda: running(pool) == {"2.0"}, within=1800)
        await pool.run_until(lambda: running(pool) == {"3.0"}, within=10 * MINUTE)
        await pool.run_until(lambda: pool.queued("head") == 0, within=2 * HOUR)
        (carols,) = [one for one in await pool.ended("head") if one["ClusterId"] == 3]
        assert (carols["NumJobStarts"], carols.get("LostTime", 0)) == (2, 0)

    run(page, story, stateful=True)
