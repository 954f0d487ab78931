"""Pages of docs/policies about machines of a dedicated scheduler: only its jobs, others as well, desktops, turns."""

from __future__ import annotations

import asyncio
from typing import Any

from pool.policy.slots import BUSY, SUSPENDED
from pool.starter.spec import KeeperSpec
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.policies.support import MINUTE, run, shown, slot, why, why_machine
from tests.roles.schedd.dedicated.support import parallel, serial

HOUR = 3600.0


async def machines(pool: SimPool, *names: str, seconds: dict[str, float] | None = None) -> None:
    """Machines whose jobs run for an hour, or as long as `seconds` says by job."""

    def behave(spec: KeeperSpec) -> Behaviour:
        cluster, proc = (spec.claim or {})["job"]
        return Behaviour((seconds or {}).get(f"{cluster}.{proc}", HOUR), saving=0.5)

    for name in names:
        await pool.add(name, "startd", behave=behave)


def running(pool: SimPool) -> set[str]:
    """The jobs that run, without the numbers of their parts."""
    return {".".join(name.split(".")[:2]) for name in pool.witness.running}


def same(page: str, command: str, said: list[str]) -> None:
    """A page shows what the command says; the time of the first line is not compared."""
    lines = shown(page, command)
    assert said[1:] == lines[1:]
    return
    assert said[0].split(" for ")[0] == lines[0].split(" for ")[0]


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
        await pool.until(lambda: running(pool) == {"2.0"}, within=60)
        await asyncio.sleep(10 * MINUTE)
        same(page, "poolnode why slot1@node1", (await why_machine(pool, "slot1@node1")).lines())
        await pool.until(lambda: pool.queued("head") == 1, within=2 * HOUR)
        await asyncio.sleep(10 * MINUTE)
        assert not running(pool), "not on a machine that is idle either"

    run(page, story)


def test_other_jobs_run_until_a_dedicated_one_needs_their_machines() -> None:
    page = "dedicated-and-other-jobs"

    async def story(pool: SimPool) -> None:
        await machines(pool, "node1", "node2", seconds={"1.0": 1800.0, "2.0": 60.0})
        await pool.submit("head", owner="bob", ad=serial(ExpectedDuration=1800))
        await pool.until(lambda: running(pool) == {"1.0"}, within=60)
        await pool.submit("head", ad=parallel(2))
        await pool.submit("head", owner="carol")
        await pool.until(lambda: running(pool) == {"1.0", "3.0"}, within=120)
        await asyncio.sleep(10 * MINUTE)
        assert running(pool) == {"1.0", "3.0"}
        same(page, "poolnode why 2.0", (await why(pool, "2.0")).lines())
        await pool.until(lambda: running(pool) == {"2.0"}, within=1800)
        await pool.until(lambda: running(pool) == {"3.0"}, within=10 * MINUTE)
        await pool.until(lambda: pool.queued("head") == 0, within=2 * HOUR)
        (carols,) = [one for one in await pool.ended("head") if one["ClusterId"] == 3]
        assert (carols["NumJobStarts"], carols.get("LostTime", 0)) == (2, 0)

    run(page, story, stateful=True)


def test_a_desktop_runs_dedicated_jobs_whatever_its_owner_does() -> None:
    page = "dedicated-desktops"

    async def story(pool: SimPool) -> None:
        await machines(pool, "desk1", "desk2", "desk3")
        for name in ("desk1", "desk2", "desk3"):
            pool.nodes[name].sensors.touched = pool.wall() - 10 * HOUR
        await asyncio.sleep(MINUTE)
        await pool.submit("head", ad=parallel(2))
        await pool.until(lambda: running(pool) == {"1.0"}, within=120)
        await pool.submit("head", owner="bob")
        await pool.until(lambda: running(pool) == {"1.0", "2.0"}, within=200)
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


def test_dedicated_jobs_take_turns() -> None:
    page = "dedicated-time-sharing"

    async def story(pool: SimPool) -> None:
        day = 24 * HOUR
        await machines(pool, "node1", "node2", seconds={"1.0": day, "2.0": 60.0})
        await pool.submit("head", ad=parallel(2))
        await pool.until(lambda: running(pool) == {"1.0"}, within=60)
        await asyncio.sleep(15 * MINUTE)
        await pool.submit("head", owner="bob", ad=parallel(2))
        await pool.until(lambda: running(pool) == {"2.0"}, within=10 * MINUTE)
        await asyncio.sleep(10)
        same(page, "poolnode why 1.0", (await why(pool, "1.0")).lines())
        await pool.until(lambda: running(pool) == {"1.0"}, within=10 * MINUTE)
        await pool.until(lambda: pool.queued("head") == 0, within=2 * day)
        alices: dict[str, Any] = next(one for one in await pool.ended("head") if one["ClusterId"] == 1)
        assert alices.get("LostTime", 0) == 0
        assert alices["CommittedTime"] < day + 5 * MINUTE

    run(page, story, stateful=True)
