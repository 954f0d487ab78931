"""Holes: machines that the head waits with run other jobs of this queue, which are saved when it can start (WR 4.1)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pool.policy.slots import SUSPENDED
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play, serial
from tests.roles.support import told


def test_holes_are_lent_to_jobs_of_the_queue_and_come_back_for_the_head() -> None:
    """W23: while the head waits with three machines, they run others' jobs; it starts one reclaim after it can."""

    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 100.0, "2.0": 10.0, "*": 1000.0}
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", ad=parallel(4))
        await at.pool.run_until(lambda: len(at.held) == 4 or bool(at.scheduler.decisions.waits), 30.0)
        await at.pool.submit("head", owner="carol", count=5)
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 4, 30.0)
        await pause(1.0)
        assert len(at.running() - {"1.0"}) == 3
        owners = {told(at.pool, f"slot1@m{n}")[0]["RemoteUser"] for n in range(4)}
        assert owners == {"alice@head", "carol@head"}, "each slot counts to the user whose job runs"
        ended = at.started("1.0")[0] + 100.0
        await at.runs("2.0", 200.0)
        assert min(at.started("2.0")) - ended < 10.0
        await at.done(7, 6000.0)

    play(story, machines=4, stateful=True)


def test_nothing_that_was_done_in_a_hole_is_lost() -> None:
    """W24: over many reclaims each job runs for as long as it needs, counted over its runs."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 20.0
        at.seconds |= {f"{n}.0": 5.0 for n in range(2, 40)}
        at.seconds["1.0"] = 400.0
        await at.pool.submit("head", owner="carol", count=1)
        await at.runs("1.0")
        loop = asyncio.get_running_loop()
        for _ in range(10):
            await at.pool.submit("head", ad=serial(), count=1)
            await at.pool.submit("head", ad=parallel(2))
            await at.pool.run_until(lambda: at.pool.queued("head") == 1, 300.0)
            await pause(15.0)
        began = loop.time()
        ads = await at.done(21, 3000.0)
        assert loop.time() - began < 400.0
        (ad,) = [one for one in ads if one["ClusterId"] == 1]
        assert ad["NumJobStarts"] > 3
        work = sum(1 for job, _, _ in at.pool.witness.starts if job == "1.0")
        assert work == ad["NumJobStarts"]
        assert ad["CommittedTime"] == pytest.approx(400.0, abs=2.0 * work)
        assert ad.get("LostTime", 0) == 0

    play(story, stateful=True, CHECKPOINT_WORTH="0", UNUSED_CLAIM_TIMEOUT="1")


def test_what_a_reclaim_takes_is_measured_and_reckoned_with() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.claim_all(2)
        at.seconds |= {"2.0": 60.0, "3.0": 10.0, "*": 1000.0}
        guess = at.scheduler.lending.seconds
        await at.pool.submit("head", ad=serial(ExpectedDuration=60))
        await at.runs("2.0")
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("head", owner="carol", count=2)
        await at.runs("3.0", 200.0)
        assert at.scheduler.lending.reclaims == 1
        assert 0.0 < at.scheduler.lending.seconds < guess

    play(story, stateful=True)


def test_a_hole_that_no_job_of_the_queue_fits_is_released_to_the_pool() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.claim_all(2)
        at.seconds |= {"1.0": 1000.0, "2.0": 100.0, "3.0": 10.0}  # 1.0: dave's, at the other schedd
        await at.pool.add("other", "schedd")
        await at.pool.submit("head", ad=serial(ExpectedDuration=100))
        await at.runs("2.0")
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("other", owner="dave")
        await pause(8.0)
        assert at.running() == {"2.0"}, "it waits a moment for a job of its own queue"
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 2, 100.0)
        assert len(at.held) == 1
        await at.runs("3.0", 200.0)
        assert at.scheduler.lending.reclaims >= 1, "by the negotiator, which counts as well"

    play(story, stateful=True, DEDICATED_BACKFILL="none", DEDICATED_ORDER="fifo")


def test_the_owners_policy_holds_for_a_job_in_a_hole_and_not_for_a_dedicated_one() -> None:
    """W2 on a desktop: a key is touched."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 2000.0
        for name in ("m0", "m1"):
            at.pool.nodes[name].sensors.touched = at.pool.wall() - 10_000
        await pause(10.0)
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("head", owner="carol", ad={"Worth": 1})
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 2, 60.0)
        mine, lent = at.pool.witness.running["1.0"], at.pool.witness.running["3.0"]
        for name in ("m0", "m1"):
            at.pool.nodes[name].sensors.touched = at.pool.wall()
        await pause(8.0)
        assert at.pool.role(lent, "startd").slots["slot1"].condition == SUSPENDED
        assert str(at.pool.role(mine, "startd").slots["slot1"].condition) == "Claimed Busy"

    play(story, stateful=True, POLICY="desktop", DEDICATED_BACKFILL="none", DEDICATED_ORDER="fifo")


def test_jobs_with_limits_that_the_negotiator_counts_get_no_hole() -> None:
    async def story(at: DedicatedStory) -> None:
        await at.claim_all(2)
        at.seconds |= {"2.0": 60.0, "*": 1000.0}
        await at.pool.submit("head", ad=serial())
        await at.runs("2.0")
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("head", owner="carol", ad={"ConcurrencyLimits": "licence"})
        await pause(8.0)
        assert at.running() == {"2.0"}

    play(story)


def test_a_schedd_that_is_restarted_knows_what_it_has_lent(tmp_path: Path) -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 100.0, "2.0": 10.0, "*": 1000.0}
        await at.pool.submit("head", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", ad=parallel(2))
        await at.pool.submit("head", owner="carol", count=1)
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 2, 60.0)
        await pause(5.0)
        await at.pool.kill("head")
        await pause(3.0)
        await at.pool.restart("head")
        await at.runs("2.0", 300.0)
        assert len(at.started("1.0")) == 1
        await at.done(3, 3000.0)

    play(story, stateful=True, directory=tmp_path)
