"""Jobs on several machines in simulated pools: all parts start together or none, and their ends are one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.jobs.gangs import GangPart, attributes_of
from pool.jobs.pipes.model import PipelineProcess
from pool.jobs.pipes.model import attributes_of as processes_ad
from pool.policy.why.findings import GangFinding
from pool.policy.why.standing import Standing
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

SETTINGS = {**QUICK, "GANG_PATIENCE": "30"}


def gang(size: int, *, apart: bool = True, **more: Any) -> dict[str, Any]:
    """The ad of a job of so many processes, each a part; nothing flows between them."""
    processes = [PipelineProcess(f"p{number}", "/bin/true", carried=False) for number in range(size)]
    parts = [GangPart((process.name,)) for process in processes]
    return {**processes_ad(processes, ()), **attributes_of(parts, apart=apart), **more}


async def machines(pool: SimPool, number: int, seconds: float = 20.0, **settings: str) -> None:
    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(seconds)

    await pool.add("head", "collector,negotiator,schedd")
    for index in range(number):
        await pool.add(f"m{index}", "startd", behave=behave, settings=settings)


async def ended(pool: SimPool, name: str = "head", jobs: int = 1, within: float = 3000.0) -> list[dict[str, Any]]:
    await pool.run_until(lambda: pool.queued(name) == 0, within)
    ads = await pool.ended(name)
    assert len(ads) == jobs
    pool.assert_sound()
    return ads


def test_all_parts_run_at_the_same_time_on_machines_of_their_own() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3)
            await pool.submit("head", ad=gang(3))
            (ad,) = await ended(pool)
            assert (ad["ExitCode"], ad["NumJobStarts"]) == (0, 1)
            starts = {job: (machine, when) for job, machine, when in pool.witness.starts}
            assert sorted(starts) == ["1.0.0", "1.0.1", "1.0.2"]
            assert sorted(machine for machine, _ in starts.values()) == ["m0", "m1", "m2"]
            moments = [when for _, when in starts.values()]
            assert max(moments) - min(moments) < 0.01
            assert not pool.role("head", "schedd").placement.claims

    run_virtual(work())


def test_parts_may_share_a_machine_where_that_is_not_forbidden() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 1, SLOTS="3")
            await pool.submit("head", ad=gang(3, apart=False))
            (ad,) = await ended(pool)
            assert ad["NumJobStarts"] == 1

    run_virtual(work())


def test_each_part_has_its_own_requirements() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3)
            ad = gang(2)
            parts = [GangPart((f"p{n}",), {"Requirements": [f'TARGET.Machine == "m{2 - n}"']}) for n in range(2)]
            await pool.submit("head", ad={**ad, **attributes_of(parts, apart=False)})
            await ended(pool)
            assert sorted((job, machine) for job, machine, _ in pool.witness.starts) == [
                ("1.0.0", "m2"),
                ("1.0.1", "m1"),
            ]

    run_virtual(work())


def test_each_part_takes_from_its_own_slot() -> None:
    seen: dict[str, str] = {}

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await pool.add("head", "collector,negotiator,schedd")

            def behave(spec: KeeperSpec) -> Behaviour:
                seen[spec.id] = spec.env["WHERE"]
                return Behaviour(5.0)

            for index in range(2):
                await pool.add(f"m{index}", "startd", behave=behave)
            await pool.submit("head", ad=gang(2, Environment="WHERE=$$(Machine)"))
            await ended(pool)
            assert sorted(seen.values()) == ["m0", "m1"]

    run_virtual(work())


def test_a_gang_that_cannot_get_whole_holds_nothing_for_long() -> None:
    """Two machines, a gang of three: others' jobs run, and when a third machine comes so does the gang."""

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(3))
            await asyncio.sleep(1.0)
            async with asking(pool) as asker:
                explained = await asker.why("1.0")
            assert explained.standing is Standing.GATHERING
            assert explained.lines()[0].endswith("it needs 3 machines at the same time; 2 in the pool can suit it")
            assert next(found for found in explained.findings if isinstance(found, GangFinding)) == GangFinding(
                3, 2, ("p2",)
            )
            await pool.submit("head", owner="bob", count=4)
            await pool.run_until(lambda: pool.queued("head") == 1, 300.0)
            assert pool.witness.starts
            await pool.add("m2", "startd", behave=lambda spec: Behaviour(5.0))
            await ended(pool, jobs=5)

    run_virtual(work())


@pytest.mark.parametrize("seed", range(3))
def test_gangs_of_several_schedds_that_want_the_same_machines_all_run(seed: int) -> None:
    async def work() -> None:
        async with SimPool(seed, settings=SETTINGS) as pool:
            await machines(pool, 3)
            for name in ("s1", "s2"):
                await pool.add(name, "schedd")
            for name, size in (("head", 3), ("s1", 2), ("s2", 2), ("s1", 3)):
                await pool.submit(name, ad=gang(size), owner=f"of_{name}")
            for name in ("head", "s1", "s2"):
                await pool.run_until(lambda name=name: pool.queued(name) == 0, 3000.0)  # type: ignore[misc]
            pool.assert_sound()

    run_virtual(work())


def test_a_machine_that_is_taken_back_takes_all_parts_with_it() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3)
            await pool.submit("head", ad=gang(2))
            await pool.run_until(lambda: len(pool.witness.running) == 2)
            victim = pool.witness.running["1.0.1"]
            startd = pool.role(victim, "startd")
            await startd.evict(next(slot for slot in startd.slots.values() if slot.claim), True)
            (ad,) = await ended(pool)
            assert ad["NumJobStarts"] == 2
            assert "VacateReason" in ad
            ran = [job for job, _, _ in pool.witness.starts]
            assert sorted(ran) == ["1.0.0", "1.0.0", "1.0.1", "1.0.1"]

    run_virtual(work())


def test_a_job_that_is_removed_is_removed_everywhere() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 2, 5000.0)
            await pool.submit("head", ad=gang(2))
            await pool.run_until(lambda: len(pool.witness.running) == 2)
            await pool.act("head", "alice", action="remove", ids=[[1]])
            await pool.run_until(lambda: not pool.witness.running, 60.0)
            (ad,) = await ended(pool, within=60.0)
            assert ad["JobStatus"] == 3

    run_virtual(work())


def test_one_that_is_held_while_it_gathers_gives_its_machines_back() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 1)
            await pool.submit("head", ad=gang(2))
            await pool.run_until(lambda: len(pool.role("head", "schedd").placement.claims) == 1)
            await pool.act("head", "alice", action="hold", ids=[[1]])
            await pool.run_until(lambda: not pool.role("head", "schedd").placement.claims, 5.0)
            await pool.submit("head", owner="bob")
            await pool.run_until(lambda: pool.queued("head") == 1, 100.0)

    run_virtual(work())


STEPS = ["startd.claim", "startd.activate", "schedd.wait_for_parts", "schedd.report", "schedd.ended", "startd.release"]


@pytest.mark.parametrize("victim", ["head", "m1"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", STEPS)
@pytest.mark.parametrize("count", [1, 2])
def test_either_side_dies_at_each_step_and_comes_back(
    method: str, phase: TrapPhase, victim: str, count: int, tmp_path: Path
) -> None:
    """Never two copies of a part at a time, and in the end the job has ended once."""

    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, directory=tmp_path) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            pool.trap(method, phase, victim, count=count)
            for _ in range(400):
                await asyncio.sleep(2.0)
                dead = [name for name, node in pool.nodes.items() if not node.running]
                for name in dead:
                    await asyncio.sleep(3.0)
                    await pool.restart(name)
                if not dead and pool.queued("head") == 0:
                    break
            (ad,) = await ended(pool)
            assert ad["ExitCode"] == 0
            await pool.run_until(lambda: not pool.role("head", "schedd").placement.claims, 300.0)

    run_virtual(work())


# --- machines that others have

BETTER = {**SETTINGS, "RANK": "TARGET.Worth", "EVALUATE_INTERVAL": "5"}


def evictions(pool: SimPool) -> int:
    """Starts that were not the last of their job's part."""
    return len(pool.witness.starts) - len({job for job, _, _ in pool.witness.starts})


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("taken", [1, 3])
def test_those_who_are_in_the_way_of_all_parts_leave_together(apart: bool, taken: int) -> None:
    """Some machines are free, the others have a worse job."""

    async def work() -> None:
        async with SimPool(1, settings=BETTER) as pool:
            await machines(pool, 3, 600.0)
            await pool.submit("head", owner="bob", count=taken, ad={"Worth": 1})
            await pool.run_until(lambda: len(pool.witness.running) == taken)
            await pool.submit("head", ad=gang(3, apart=apart, Worth=5))
            await pool.run_until(lambda: {"2.0.0", "2.0.1", "2.0.2"} <= pool.witness.running.keys(), 30.0)
            await ended(pool, jobs=taken + 1)
            assert evictions(pool) == taken

    run_virtual(work())


def test_nobody_leaves_for_a_gang_that_lacks_another_machine() -> None:
    async def work() -> None:
        async with SimPool(1, settings=BETTER) as pool:
            await machines(pool, 2, 600.0)
            await pool.submit("head", owner="bob", count=2, ad={"Worth": 1})
            await pool.run_until(lambda: len(pool.witness.running) == 2)
            await pool.submit("head", ad=gang(3, Worth=5))
            await pool.run_until(lambda: pool.queued("head") == 1, 3000.0)
            assert evictions(pool) == 0
            await pool.add("m2", "startd", behave=lambda spec: Behaviour(5.0))
            await ended(pool, jobs=3)

    run_virtual(work())


def test_those_who_may_finish_first_are_waited_for_and_stay_when_the_gang_is_gone() -> None:
    """The first machine is kept while the job on the second has its retirement, longer than a gang's patience."""

    async def work() -> None:
        rules = {**BETTER, "MAX_JOB_RETIREMENT": 'ifThenElse(Machine == "m1", 300, 0)'}
        async with SimPool(1, settings=rules) as pool:
            await machines(pool, 2, 3000.0)
            await pool.submit("head", owner="bob", count=2, ad={"Worth": 1})
            await pool.run_until(lambda: len(pool.witness.running) == 2)
            begun = asyncio.get_running_loop().time()
            await pool.submit("head", ad=gang(2, Worth=5))
            await pool.run_until(lambda: "2.0.0" in pool.witness.running, 400.0)
            assert asyncio.get_running_loop().time() - begun >= 250.0
            await pool.act("head", "alice", action="remove", ids=[[2]])
            await pool.run_until(lambda: len(pool.witness.running) == 2, 60.0)
            assert evictions(pool) == 2
            await pool.submit("head", ad=gang(2, Worth=5))
            await asyncio.sleep(100.0)
            await pool.act("head", "alice", action="remove", ids=[[3]])
            await asyncio.sleep(400.0)
            assert evictions(pool) == 3  # not the one that was waited for
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("seed", range(2))
def test_gangs_of_several_schedds_that_take_machines_from_others_all_run(seed: int) -> None:
    async def work() -> None:
        async with SimPool(seed, settings=BETTER) as pool:
            await machines(pool, 3, 100.0)
            await pool.add("s1", "schedd")
            await pool.submit("head", owner="bob", count=6, ad={"Worth": 1})
            await pool.run_until(lambda: len(pool.witness.running) == 3)
            for name, size, worth in (("head", 3, 3), ("s1", 2, 4), ("s1", 3, 3)):
                await pool.submit(name, ad=gang(size, Worth=worth), owner=f"of_{name}")
            for name in ("head", "s1"):
                await pool.run_until(lambda name=name: pool.queued(name) == 0, 5000.0)  # type: ignore[misc]
            pool.assert_sound()

    run_virtual(work())
