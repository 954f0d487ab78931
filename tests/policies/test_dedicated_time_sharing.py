"""docs/policies/dedicated-time-sharing.md."""

from __future__ import annotations

import asyncio
from typing import Any

from pool.testing.pool import SimPool
from tests.policies.dedicated import HOUR, machines, running, same
from tests.policies.support import MINUTE, run, why
from tests.roles.schedd.dedicated.support import parallel


def test_dedicated_jobs_take_turns() -> None:
    page = "dedicated-time-sharing"

    async def story(pool: SimPool) -> None:
        day = 24 * HOUR
        await machines(pool, "node1", "node2", seconds={"1.0": day, "2.0": 60.0})
        await pool.submit("head", ad=parallel(2))
        await pool.run_until(lambda: running(pool) == {"1.0"}, within=60)
        await asyncio.sleep(15 * MINUTE)
        await pool.submit("head", owner="bob", ad=parallel(2))
        await pool.run_until(lambda: running(pool) == {"2.0"}, within=10 * MINUTE)
        await asyncio.sleep(10)
        same(page, "poolnode why 1.0", (await why(pool, "1.0")).lines())
        await pool.run_until(lambda: running(pool) == {"1.0"}, within=10 * MINUTE)
        await pool.run_until(lambda: pool.queued("head") == 0, within=2 * day)
        alices: dict[str, Any] = next(one for one in await pool.ended("head") if one["ClusterId"] == 1)
        assert alices.get("LostTime", 0) == 0
        assert alices["CommittedTime"] < day + 5 * MINUTE

    run(page, story, stateful=True)
