"""docs/policies/small-jobs.md: the owner sits down at two desks; the small job waits, the big one leaves."""

from __future__ import annotations

import asyncio

from pool.policy import slots
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.policies.support import LOOK, MINUTE, became, run, slot, why_machine

PAGE = "small-jobs"
MEGABYTE = 1024


def test_the_small_one_waits_and_the_big_one_leaves() -> None:
    async def story(pool: SimPool) -> None:
        for node in ("desk1", "desk2"):
            await pool.add(node, "startd", behave=lambda spec: Behaviour(1e6, stubborn=False))
        small = await pool.submit("head", ad={"ImageSize": 20 * MEGABYTE, "Requirements": ['Machine == "desk1"']})
        await pool.submit("head", ad={"ImageSize": 500 * MEGABYTE, "Requirements": ['Machine == "desk2"']})
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        for node in ("desk1", "desk2"):
            pool.nodes[node].sensors.touched = pool.wall()
        await became(pool, "desk1", slots.SUSPENDED, within=LOOK)
        await pool.run_until(lambda: slot(pool, "desk2").condition == slots.OWNER, within=LOOK)
        assert list(pool.witness.running) == [f"{small}.0"]
        await asyncio.sleep(40)
        said = str(await why_machine(pool, "slot1_1@desk1"))
        assert "Claimed Suspended" in said
        assert "PREEMPT is false: it would have the job leave" in said
        took = await became(pool, "desk1", slots.BUSY)
        assert took < 5 * MINUTE
        assert len(pool.witness.starts) == 2

    run(PAGE, story)


def test_a_job_that_grows_is_no_small_one() -> None:
    """Nothing was said of its size at submit; what is measured while it runs counts."""

    async def story(pool: SimPool) -> None:
        await pool.add("desk1", "startd", behave=lambda spec: Behaviour(1e6, rss=800 * MEGABYTE))
        await pool.submit("head", ad={"ImageSize": 0})
        await became(pool, "desk1", slots.BUSY, within=60)
        await asyncio.sleep(2 * MINUTE)
        pool.nodes["desk1"].sensors.touched = pool.wall()
        await became(pool, "desk1", slots.OWNER, within=2 * LOOK)
        assert not pool.witness.running

    run(PAGE, story)
