"""Jobs that ask for a moment: `deferral_time` and `cron_*`, in a pool whose clock is virtual."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.pool import BEGINNING, SimPool
from pool.wire import RemoteError
from tests.roles.support import QUICK, asking, lasting

CLAUSE = (
    "(((time() + ScheddInterval) >= (DeferralTime - DeferralPrepTime)) && (time() < (DeferralTime + DeferralWindow)))"
)


def deferred(after: float, **more: Any) -> dict[str, Any]:
    """The ad of a job that starts so many seconds after the beginning."""
    ad = {"DeferralTime": int(BEGINNING + after), "DeferralWindow": 0, "DeferralPrepTime": 300, "ScheddInterval": 300}
    return ad | {"Requirements": [f"TARGET.HasJobDeferral && {CLAUSE}"]} | more


async def one_machine(pool: SimPool, seconds: float = 20.0, code: int = 0) -> None:
    await pool.add("head", "collector,negotiator,schedd", behave=lambda spec: lasting(seconds, code))
    await pool.add("m1", "startd", behave=lambda spec: lasting(seconds, code))


def only(pool: SimPool) -> Any:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return job


@pytest.mark.parametrize("universe", [5, 12])
def test_it_starts_at_its_moment(universe: int) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad=deferred(2000.0, JobUniverse=universe))
            await pool.run_until(lambda: pool.queued("head") == 0, within=2100)
            ((_, _, at),) = pool.witness.starts
            assert 1999.999 < at < 2000.5
            pool.assert_sound()

    run_virtual(work())


def test_a_machine_is_free_for_others_until_it_prepares() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad=deferred(2000.0))
            await pool.submit("head", count=10)
            await pool.run_until(lambda: pool.queued("head") == 1, within=400)
            assert only(pool).status == 1
            await pool.run_until(lambda: only(pool).status == 2, within=2000)
            assert 1699.0 < pool.wall() - BEGINNING < 1800.0
            pool.assert_sound()

    run_virtual(work())


def test_one_that_waits_on_its_machine_can_be_removed() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await one_machine(pool)
            cluster = await pool.submit("head", ad=deferred(250.0))
            await pool.run_until(lambda: only(pool).status == 2, within=60)
            await pool.act("head", "alice", action="remove", ids=[[cluster, 0]])
            await pool.run_until(lambda: pool.queued("head") == 0, within=30)
            assert pool.witness.starts == []
            await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=100)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("window", [0, 600])
def test_one_that_misses_its_moment_is_held_and_says_so(window: int) -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", ad=deferred(1000.0, DeferralWindow=window))
            await pool.run_until(lambda: only(pool).status == 5, within=2000)
            assert 1000 + window <= pool.wall() - BEGINNING < 1010 + window
            assert only(pool).get("HoldReasonCode") == 28
            assert "that has passed" in only(pool).get("HoldReason")

    run_virtual(work())


def test_a_schedd_that_was_away_remembers_the_moment(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK, directory=tmp_path) as pool:
            await one_machine(pool)
            await pool.submit("head", ad=deferred(3000.0))
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=3100)
            assert 2999.999 < pool.witness.starts[0][2] < 3000.5
            pool.assert_sound()

    run_virtual(work())


def test_an_expression_counts_from_the_submit() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad=deferred(0.0, DeferralTime=["QDate + 500"]))
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert 499.0 <= pool.witness.starts[0][2] < 501.5
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("universe", [5, 12])
def test_a_crontab_starts_it_again_and_again(universe: int) -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await one_machine(pool)
            ad = deferred(0.0, CronMinute="*/10", JobUniverse=universe, OnExitRemove=["NumJobCompletions >= 3"])
            del ad["DeferralTime"]
            await pool.submit("head", ad=ad)
            await pool.run_until(lambda: pool.queued("head") == 0, within=3000)
            assert [round(at / 600.0, 2) for _, _, at in pool.witness.starts] == [1.0, 2.0, 3.0]
            pool.assert_sound()

    run_virtual(work())


def test_a_crontab_that_misses_a_moment_takes_the_next() -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            ad = deferred(0.0, CronMinute="*/10")
            del ad["DeferralTime"]
            await pool.submit("head", ad=ad)
            await pool.run_until(lambda: pool.wall() - BEGINNING > 1300)
            await pool.add("m1", "startd", behave=lambda spec: lasting(20))
            await pool.run_until(lambda: pool.queued("head") == 0, within=700)
            assert round(pool.witness.starts[0][2] / 600.0, 2) == 3.0
            pool.assert_sound()

    run_virtual(work())


def test_a_crontab_that_cannot_be_read_is_refused() -> None:
    async def work() -> None:
        async with SimPool(9, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            with pytest.raises(RemoteError, match="cron_hour"):
                await pool.submit("head", ad={"CronHour": "25"})

    run_virtual(work())


def test_why_says_when_it_is_to_start_and_what_it_waits_for() -> None:
    async def work() -> None:
        settings = QUICK | {"MAX_LOCAL_JOBS": "1"}
        async with SimPool(10, settings=settings) as pool:
            await one_machine(pool, 5000.0)
            cluster = await pool.submit("head", ad=deferred(3600.0))
            other = await pool.submit("head", count=2, ad={"JobUniverse": 12})
            await pool.run_until(lambda: pool.witness.running != {}, within=30)
            async with asking(pool) as user:
                said = str(await user.why((cluster, 0)))
                assert "it is to start in" in said
                assert "a machine is looked for in" in said
                assert "1 job of its kind may run on the submit machine" in str(await user.why((other, 1)))

    run_virtual(work())
