"""The last set of a job on several machines, in simulated pools: one machine is wanted back, and nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.policy.queue import HELD
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_gangs import ended, gang
from tests.roles.schedd.parallel.test_parallel_checkpoints import machines, part_of, ran, runs
from tests.roles.support import QUICK, asking

#: No periodic checkpoints but where a test is about them.
SETTINGS = {**QUICK, "GANG_PATIENCE": "30", "CHECKPOINT_FIRST": "0"}
WANTED_BACK = {"PREEMPT": "LoadAvg > 2", "START": "LoadAvg < 1"}
LENGTH, SAVING, LOOK = 330.0, 2.0, 6.0


def job_of(pool: SimPool) -> Any:
    return next(iter(pool.role("head", "schedd").queue.jobs()))


async def act(pool: SimPool, action: str, **more: Any) -> None:
    async with asking(pool) as user:
        await user.call("schedd.act", {"action": action, "ids": [[1, 0]], **more})


def load(pool: SimPool, part: str, load: float) -> None:
    pool.nodes[pool.witness.running[part]].sensors.owners_load = load


async def gone(pool: SimPool, parts: int = 3, within: float = 100.0) -> float:
    """Seconds until all parts have left their machines."""
    before = asyncio.get_running_loop().time()
    await pool.run_until(lambda: len(pool.witness.ends) == parts, within)
    return asyncio.get_running_loop().time() - before


def nothing_lost(pool: SimPool, ad: dict[str, Any], parts: int) -> None:
    """All went on from where they stood, and that is what the job's accounts say."""
    for part in range(parts):
        assert sum(ran(pool, f"1.0.{part}")) == pytest.approx(LENGTH + SAVING, abs=0.1)
    assert (ad["NumJobStarts"], ad["NumCkpts"], ad["ExitCode"]) == (2, 1, 0)
    assert ad.get("WorkLost", 0.0) == pytest.approx(0.0, abs=0.1)
    assert ad["CommittedTime"] == pytest.approx(LENGTH + SAVING, abs=0.5)
    assert ad["CheckpointBytes"] > 0
    assert ad["CheckpointSeconds"] > 0


def test_the_owner_of_one_machine_is_back_and_no_work_of_any_part_is_lost() -> None:
    async def work() -> None:
        async with SimPool(1, settings={**SETTINGS, **WANTED_BACK}, stateful=True) as pool:
            await machines(pool, 4)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            load(pool, "1.0.1", 3.0)
            assert await gone(pool) < LOOK + SAVING + 1.0
            job = job_of(pool)
            await pool.run_until(lambda: job.get("VacateReason") is not None, 10.0)
            assert job.get("NumCkpts") == 1
            (ad,) = await ended(pool)
            nothing_lost(pool, ad, 3)

    run_virtual(work())


@pytest.mark.parametrize("how", ["vacate", "hold"])
def test_a_user_takes_all_parts_off_their_machines(how: str) -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 3)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(100.0)
            await act(pool, how)
            assert await gone(pool) < SAVING + 1.0
            if how == "hold":
                await pool.run_until(lambda: job_of(pool).status == HELD, 10.0)
                await act(pool, "release")
            (ad,) = await ended(pool)
            nothing_lost(pool, ad, 3)

    run_virtual(work())


def test_a_checkpoint_of_the_whole_job_is_kept_of_one_that_is_removed() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            await asyncio.sleep(100.0)
            await act(pool, "remove", checkpoint=True)
            (ad,) = await ended(pool)
            assert (ad["CheckpointKept"], ad["NumCkpts"]) == ("1.0", 1)

    run_virtual(work())


def test_a_grace_that_is_too_short_leaves_the_checkpoint_before() -> None:
    settings = {**SETTINGS, **WANTED_BACK, "CHECKPOINT_FIRST": "100", "CHECKPOINT_MOST": "100"}

    async def work() -> None:
        async with SimPool(1, settings={**settings, "MAX_VACATE": "20"}, stateful=True) as pool:
            await machines(pool, 4)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            for node in pool.nodes.values():
                for keeper in node.machine.keepers.values():
                    keeper._behaviour = Behaviour(LENGTH, saving=1000.0)
            load(pool, "1.0.1", 3.0)
            assert 20.0 < await gone(pool) < 20.0 + 6 * LOOK
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (2, 0)
            for part in range(3):
                assert ran(pool, f"1.0.{part}")[1] == pytest.approx(LENGTH - 100.0, abs=2.0)
            assert ad["WorkLost"] == pytest.approx(ran(pool, "1.0.1")[0] - 100.0, abs=10.0)

    run_virtual(work())


def test_a_part_that_cannot_be_saved_leaves_the_checkpoint_before() -> None:
    settings = {**SETTINGS, **WANTED_BACK, "CHECKPOINT_FIRST": "100", "CHECKPOINT_MOST": "100"}

    async def work() -> None:
        async with SimPool(1, settings=settings, stateful=True) as pool:
            await machines(pool, 4)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            for node in pool.nodes.values():
                for keeper in node.machine.keepers.values():
                    if part_of(keeper.spec) == 2:
                        keeper.refused = ("descriptor 5 of process 2 is a TCP connection",)
            load(pool, "1.0.1", 3.0)
            await gone(pool)
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (2, 0)
            for part in range(3):
                assert ran(pool, f"1.0.{part}")[1] == pytest.approx(LENGTH - 100.0, abs=2.0)

    run_virtual(work())


def test_a_part_that_cannot_be_saved_at_once_is_tried_again() -> None:
    """Nothing of its work meanwhile comes to another part."""

    async def work() -> None:
        async with SimPool(1, settings={**SETTINGS, **WANTED_BACK}, stateful=True) as pool:
            await machines(pool, 4)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            for node in pool.nodes.values():
                for keeper in node.machine.keepers.values():
                    if part_of(keeper.spec) == 2:
                        keeper.failing = 2
            load(pool, "1.0.1", 3.0)
            await gone(pool)
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["NumCkpts"], ad["ExitCode"]) == (2, 1, 0)
            for part in range(3):
                assert ran(pool, f"1.0.{part}")[1] == pytest.approx(LENGTH - 150.0, abs=15.0)

    run_virtual(work())


def test_one_that_comes_while_the_parts_are_saved_beside_their_run_waits_for_that() -> None:
    settings = {**SETTINGS, **WANTED_BACK, "CHECKPOINT_FIRST": "100"}

    async def work() -> None:
        async with SimPool(1, settings=settings, stateful=True) as pool:
            await machines(pool, 3, lambda spec: Behaviour(LENGTH, saving=20.0))
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            await asyncio.sleep(99.0)
            load(pool, "1.0.1", 3.0)
            await gone(pool, 2)
            (ad,) = await ended(pool)
            assert ad["NumCkpts"] == 2
            assert sum(ran(pool, "1.0.0")) == pytest.approx(LENGTH + 20.0, abs=1.0)

    run_virtual(work())


#: The first and second question to the second part; the first part's word that it leaves; the first end of one.
STEPS = [("startd.checkpoint_part", 2), ("startd.checkpoint_part", 4), ("schedd.report", 1), ("schedd.ended", 1)]


@pytest.mark.parametrize("what", ["m1 dies", "head dies", "silence"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize(("method", "count"), STEPS)
def test_a_step_that_is_lost_costs_the_last_set_at_most(
    method: str, count: int, phase: TrapPhase, what: str, tmp_path: Path
) -> None:
    """Each step of it is the last that a side sees, or its answer is late: all go on from the same, or begin anew."""

    async def work() -> None:
        settings = {**SETTINGS, **WANTED_BACK}
        async with SimPool(8, settings=settings, directory=tmp_path, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            starts = sorted((job, machine) for job, machine, _ in pool.witness.starts)
            assert starts == [("1.0.0", "m0"), ("1.0.1", "m1")], "the steps are those of the second part on m1"

            async def silence() -> None:
                pool.network.drop_silently("head", "m1")
                asyncio.get_running_loop().call_later(20.0, pool.network.restore_links)

            async def death() -> None:
                await pool.kill(what.split()[0])

            await asyncio.sleep(150.0)
            trap = pool.run_at(method, phase, silence if what == "silence" else death, count=count)
            node = pool.nodes["m0"]
            node.sensors.owners_load = 3.0
            for _ in range(1000):
                await asyncio.sleep(2.0)
                for name in [name for name, node in pool.nodes.items() if not node.running]:
                    await pool.restart(name)
                if not pool.witness.running:
                    node.sensors.owners_load = 0.0
                if pool.queued("head") == 0:
                    break
            assert trap.sprung
            (ad,) = await ended(pool)
            assert ad["ExitCode"] == 0
            last = [ran(pool, part)[-1] for part in ("1.0.0", "1.0.1")]
            assert abs(last[0] - last[1]) < 1.0, "they went on from different checkpoints"
            assert sum(ran(pool, "1.0.0")) < 2 * LENGTH

    run_virtual(work())
