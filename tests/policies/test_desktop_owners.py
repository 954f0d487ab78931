"""docs/policies/desktop-owners.md: the owner goes, comes back for a moment, and comes back to stay."""

from __future__ import annotations

import asyncio

from pool.policy import slots
from pool.testing.pool import SimPool
from tests.policies.support import LONG, LOOK, MINUTE, became, run, shown, why, why_machine

PAGE = "desktop-owners"


def test_a_job_comes_waits_and_leaves_as_the_page_says() -> None:
    async def story(pool: SimPool) -> None:
        desk = await pool.add("desk1", "startd", behave=lambda spec: LONG)
        desk.sensors.touched = pool.wall()
        await became(pool, "desk1", slots.OWNER, within=LOOK)
        await pool.submit("head")
        took = await became(pool, "desk1", slots.BUSY)
        assert 15 * MINUTE - 2 * LOOK < took < 16 * MINUTE

        desk.sensors.touched = pool.wall()
        assert await became(pool, "desk1", slots.SUSPENDED) <= LOOK
        took = await became(pool, "desk1", slots.BUSY)
        assert 5 * MINUTE - LOOK < took < 5 * MINUTE + 2 * LOOK

        async def stay() -> None:
            while True:
                desk.sensors.touched = pool.wall()
                await asyncio.sleep(20)

        staying = asyncio.create_task(stay())
        await became(pool, "desk1", slots.SUSPENDED, within=LOOK)
        took = await became(pool, "desk1", slots.OWNER)
        assert 10 * MINUTE <= took < 10 * MINUTE + 2 * LOOK
        assert pool.queued("head") == 1
        assert not pool.witness.running
        staying.cancel()

    run(PAGE, story)


def test_what_one_sees_is_what_the_page_shows() -> None:
    async def story(pool: SimPool) -> None:
        desk = await pool.add("desk1", "startd")
        await pool.run_until(
            lambda: pool.role("desk1", "startd").slots["slot1"].condition == slots.UNCLAIMED, within=60
        )
        desk.sensors.touched = pool.wall()
        await became(pool, "desk1", slots.OWNER, within=LOOK)
        cluster = await pool.submit("head")
        await asyncio.sleep(4 * MINUTE)
        desk.sensors.touched = pool.wall() - 31
        seen = (await why_machine(pool, "desk1")).lines()
        page = shown(PAGE, "poolnode why desk1")
        assert seen[: len(page)] == page
        seen = (await why(pool, f"{cluster}.0")).lines()
        page = [line.replace("12.3", f"{cluster}.0") for line in shown(PAGE, "poolnode why 12.3")]
        assert seen[: len(page)] == page

    run(PAGE, story)
