"""Machines reserved for a time, and the plan, in simulated pools (WR 6.3, 6.9)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.client.dedicated import cancel_reservation, dedicated_plan, reservations, reserve_machines
from pool.errors import PoolError
from pool.policy.why.standing import Standing
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play, serial
from tests.roles.support import asking


async def reserve(at: DedicatedStory, machines: int, after: float, duration: float, **more: Any) -> dict[str, Any]:
    async with asking(at.pool) as pool:
        return await reserve_machines(pool, machines, at.pool.wall() + after, duration, **more)


def test_at_its_time_the_machines_are_free_and_what_ran_there_was_saved() -> None:
    """W53, without a duration of anybody's."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 2000.0
        await at.pool.submit("head", owner="carol", ad=parallel(2))
        await at.pool.submit("head", owner="dave", count=2)
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 4)
        made = await reserve(at, 3, 300.0, 600.0)
        begins = made["start"]
        at.seconds["3.0"] = 100.0
        await at.pool.submit("head", ad=parallel(3, ReservationId=made["id"]))
        await at.pool.run_until(lambda: at.pool.wall() >= begins - 30.0, 400.0)
        assert "3.0" not in at.running()
        await at.pool.run_until(lambda: at.pool.wall() >= begins + 2.0, 60.0)
        busy = at.running() - {"3.0"}
        assert "3.0" in at.running(), "exactly at its time"
        assert len(at.pool.witness.running) <= 4, busy
        await at.pool.run_until(lambda: "3.0" not in at.running(), 200.0)
        await pause(200.0)
        assert len([name for name in at.pool.witness.running if not name.startswith("3.")]) <= 1, "kept until its end"
        ads = await at.done(4, 9000.0)
        lost = [ad for ad in ads if ad["ClusterId"] == 1 and not ad.get("NumCkpts")]
        assert not lost, "the gang was saved"

    play(story, machines=4, stateful=True)


def test_it_lasts_over_a_restart_and_can_be_cancelled(tmp_path: Path) -> None:
    async def story(at: DedicatedStory) -> None:
        made = await reserve(at, 2, 1000.0, 600.0)
        await at.pool.kill("head")
        await at.pool.restart("head")
        async with asking(at.pool, "bob") as pool:
            (kept,) = await reservations(pool)
            assert kept == made
            with pytest.raises(PoolError, match="reservation r1 is alice's"):
                await cancel_reservation(pool, "r1")
        async with asking(at.pool) as pool:
            await cancel_reservation(pool, "r1")
            assert await reservations(pool) == []
            with pytest.raises(PoolError, match="there is no reservation r1"):
                await cancel_reservation(pool, "r1")
        assert (await reserve(at, 2, 1000.0, 600.0))["id"] == "r2", "no id is given twice"

    play(story, directory=tmp_path)


@pytest.mark.parametrize(
    ("machines", "after", "duration", "more", "said"),
    [
        (5, 60.0, 60.0, {}, "and the configured ones that fit are 2"),
        (2, 60.0, 7200.0, {}, "a user may reserve 1.0"),
        (1, 9e6, 60.0, {}, "users may reserve"),
        (1, -500.0, 60.0, {}, "its end has passed"),
        (0, 60.0, 60.0, {}, "cannot reserve 0 machines"),
        (1, 60.0, 0.0, {}, "for that time"),
        (1, 60.0, 60.0, {"requirements": "Memory >"}, "are no expression"),
        (1, 60.0, 60.0, {"requirements": "Memory > 1e12"}, "that fit are 0"),
        (1, 60.0, 60.0, {"user": "bob"}, "only an administrator reserves for others"),
        (1, 60.0, 60.0, {"group": "physics"}, "only an administrator reserves for others"),
    ],
)
def test_what_cannot_be_promised_is_refused(
    machines: int, after: float, duration: float, more: dict[str, Any], said: str
) -> None:
    async def story(at: DedicatedStory) -> None:
        await pause(1.0)
        with pytest.raises(PoolError, match=said):
            await reserve(at, machines, after, duration, **more)

    play(story, RESERVATION_MACHINE_HOURS="1")


def test_two_reservations_of_the_same_machines_at_one_time_are_refused() -> None:
    async def story(at: DedicatedStory) -> None:
        await reserve(at, 2, 600.0, 600.0)
        with pytest.raises(PoolError, match="reservation r1 has too many of these machines"):
            await reserve(at, 1, 900.0, 600.0)
        await reserve(at, 1, 1300.0, 600.0)
        async with asking(at.pool, "admin", administer=True) as pool:
            made = await reserve_machines(pool, 1, at.pool.wall() + 9e5, 3600.0, user="bob")
            assert (made["user"], made["asked_by"]) == ("bob", "")

    play(story)


def test_the_plan_says_what_runs_what_comes_and_what_is_reserved() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 600.0
        await at.pool.submit("head", ad=parallel(2, ExpectedDuration=600))
        await at.runs("1.0")
        await at.pool.submit("head", owner="bob", ad=parallel(2, ExpectedDuration=300))
        await reserve(at, 1, 86400.0, 600.0)
        await pause(2.0)
        now = at.pool.wall()
        async with asking(at.pool) as pool:
            plan = await dedicated_plan(pool)
            assert (plan.machines, plan.scheduler) == (2, "DedicatedScheduler@head")
            bars = {(bar["label"], bar["what"]): bar for bar in plan.bars}
            assert bars["1.0", "running"]["end"] == pytest.approx(now + 598.0, abs=5.0)
            assert bars["2.0", "planned"]["start"] == pytest.approx(now + 598.0, abs=10.0)
            assert bars["2.0", "planned"]["end"] == pytest.approx(now + 898.0, abs=10.0)
            assert bars["r1", "reserved"]["machines"] == 1
            explained = await pool.why("2.0")
        assert explained.standing is Standing.DEDICATED
        said = explained.lines()
        assert said[0].startswith("2.0 waits for ")
        assert "1.0" in said[1], said
        await at.runs("2.0", 700.0)

    play(story)


def test_why_says_that_it_is_too_big_and_for_whom() -> None:
    """W18, W6."""

    async def story(at: DedicatedStory) -> None:
        await at.pool.submit("head", ad=parallel(8))
        await pause(5.0)
        async with asking(at.pool) as pool:
            said = (await pool.why("1.0")).lines()[0]
        words = "too big: 2 configured machines fit it, and it needs 8 (machines of DedicatedScheduler@head)"
        assert said.endswith(words)

    play(story)


def test_an_expected_start_learns_from_the_users_runs(tmp_path: Path) -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 100.0
        await at.pool.submit("head", count=3, ad=serial())
        await at.done(3)
        await pause(70.0)
        await at.pool.kill("head")
        await at.pool.restart("head")
        await at.pool.submit("head", count=3, ad=serial())
        await at.pool.run_until(lambda: len(at.pool.witness.running) == 2)
        began = at.pool.wall()
        await pause(1.0)
        async with asking(at.pool) as pool:
            plan = await dedicated_plan(pool)
        (waiting,) = plan.starts
        assert waiting["start"] == pytest.approx(began + 100.0, abs=15.0)

    play(story, directory=tmp_path)


def test_two_that_are_asked_for_at_the_same_moment_do_not_get_the_same_machines() -> None:
    """Both had the id of the next one, and each took the other for itself."""

    async def story(at: DedicatedStory) -> None:
        await pause(100.0)  # until the machines are known
        scheduler = at.pool.role("head", "schedd").dedicated
        look_with = scheduler.look_with

        async def look_long(asked: Any) -> Any:
            """As it is with 100,000 machines."""
            state = await look_with(asked)
            await asyncio.sleep(0.5)
            return state

        scheduler.look_with = look_long
        asked = [reserve(at, 3, 300.0, 600.0) for _ in range(3)]
        made = await asyncio.gather(*asked, return_exceptions=True)
        refused = [one for one in made if isinstance(one, PoolError)]
        assert [one["id"] for one in made if isinstance(one, dict)] == ["r1"]
        assert len(refused) == 2
        assert all("too many of these machines" in one.message for one in refused), refused
        both = await asyncio.gather(reserve(at, 2, 3000.0, 60.0), reserve(at, 2, 3000.0, 60.0))
        assert sorted(one["id"] for one in both) == ["r2", "r3"], "there is room for both"

    play(story, machines=4)


def test_a_reservation_that_cannot_be_cancelled_on_disk_stays() -> None:
    async def story(at: DedicatedStory) -> None:
        await pause(100.0)
        await reserve(at, 2, 1000.0, 600.0)
        at.pool.fill_disk("head")
        async with asking(at.pool) as pool:
            with pytest.raises(PoolError):
                await cancel_reservation(pool, "r1")
            assert [one["id"] for one in await reservations(pool)] == ["r1"]
            at.pool.free_disk("head")
            await cancel_reservation(pool, "r1")
            assert await reservations(pool) == []

    play(story, machines=4)
