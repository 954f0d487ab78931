"""docs/policies/preempt-after-an-hour.md: no preemption before an hour, and then yes, up to an equal share."""

from __future__ import annotations

import asyncio

from pool.testing.pool import SimPool
from tests.policies.support import HOUR, LONG, MINUTE, run, shown, why

PAGE = "preempt-after-an-hour"


def test_nobody_is_thrown_out_in_the_first_hour() -> None:
    async def story(pool: SimPool) -> None:
        loop = asyncio.get_running_loop()
        for name in ("node1", "node2"):
            await pool.add(name, "startd", behave=lambda spec: LONG)
        heavy = await pool.submit("head", count=4, owner="bob")
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        began = loop.time()
        await asyncio.sleep(20 * MINUTE)
        light = await pool.submit("head", count=2, owner="alice")
        await asyncio.sleep(10 * MINUTE)
        assert not pool.witness.ends

        seen = (await why(pool, f"{light}.0")).lines()
        page = [line.replace("2.0", f"{light}.0") for line in shown(PAGE, "poolnode why 2.0")]
        assert seen[: len(page)] == page

        await pool.run_until(lambda: bool(pool.witness.ends), within=HOUR)
        assert HOUR <= loop.time() - began < HOUR + 10 * MINUTE
        await asyncio.sleep(2 * HOUR)
        running = sorted(job.split(".")[0] for job in pool.witness.running)
        assert running == [str(heavy), str(light)], "an equal share, and no more"
        assert len(pool.witness.ends) == 1, "and nobody is thrown out for it again"

    run(PAGE, story)
