"""Checkpoints of jobs on several machines, in simulated pools: of all parts or none, whatever is lost on the way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_gangs import ended, gang
from tests.roles.schedd.parallel.test_parallel_jobs import parallel
from tests.roles.support import QUICK

SETTINGS = {**QUICK, "GANG_PATIENCE": "30", "CHECKPOINT_FIRST": "100", "CHECKPOINT_MOST": "100"}
#: Seconds that a part runs, and that its checkpoint takes.
LENGTH, SAVING = 330.0, 2.0


def part_of(spec: KeeperSpec) -> int:
    return int(spec.id.rpartition(".")[2])


async def machines(pool: SimPool, number: int, behave: Any = lambda spec: Behaviour(LENGTH, saving=SAVING)) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    for index in range(number):
        await pool.add(f"m{index}", "startd", behave=behave)


async def runs(pool: SimPool, parts: int = 2) -> None:
    await pool.run_until(lambda: len(pool.witness.running) == parts, 300.0)


def ran(pool: SimPool, part: str) -> list[float]:
    """How long each start of a part ran."""
    starts = [when for job, _, when in pool.witness.starts if job == part]
    ends = [when for job, _, when in pool.witness.ends if job == part]
    return [end - start for start, end in zip(starts, ends, strict=True)]


def test_all_parts_go_on_from_the_same_checkpoint() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 3)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(250.0)
            await pool.crash("m1")
            await pool.restart("m1")
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["NumCkpts"], ad["ExitCode"]) == (2, 3, 0)
            for part in ("1.0.0", "1.0.1", "1.0.2"):
                first, second = ran(pool, part)
                assert first + second == pytest.approx(LENGTH + first - 202.0, abs=3.0)
            assert ad["WorkLost"] == pytest.approx(ran(pool, "1.0.0")[0] - 200.0, abs=5.0)
            assert ad["CommittedTime"] == pytest.approx(LENGTH, abs=5.0)
            assert ad["CheckpointBytes"] > 0

    run_virtual(work())


def test_a_part_that_had_ended_is_not_started_again() -> None:
    """It needs no machine either: there is one fewer."""

    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(50.0 if part_of(spec) == 0 else LENGTH, saving=SAVING)

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 3, behave)
            await pool.submit("head", ad=gang(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            idle = next(name for name in ("m0", "m1", "m2") if name not in pool.witness.running.values())
            await pool.crash(pool.witness.running["1.0.1"])
            await pool.restart(next(name for name, node in pool.nodes.items() if not node.running))
            await pool.kill(idle)
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["NumCkpts"], ad["ExitCode"]) == (2, 3, 0)
            assert [len(ran(pool, part)) for part in ("1.0.0", "1.0.1", "1.0.2")] == [1, 2, 2]
            assert ad["RemoteUserCpu"] == pytest.approx(
                sum(seconds for part in ("1.0.0", "1.0.1", "1.0.2") for seconds in ran(pool, part)), rel=0.5
            )

    run_virtual(work())


@pytest.mark.parametrize(("lost", "starts", "code"), [(True, 2, 0), (False, 1, 1)])
def test_a_part_fails_because_another_was_killed_with_its_keeper(lost: bool, starts: int, code: int) -> None:
    """Its connection to that part breaks, and its own end is reported first. Without a lost part it is the job's."""

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 3)
            await pool.submit("head", ad=parallel(3))
            await runs(pool, 3)
            await asyncio.sleep(150.0)
            keepers = {part_of(one.spec): one for node in pool.nodes.values() for one in node.machine.keepers.values()}
            keepers[0].exit(1)
            if lost:
                keepers[1].lose()
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (starts, code)
            if lost:
                assert ad["VacateReason"] == "its keeper was killed"
                for part in ("1.0.0", "1.0.1", "1.0.2"):
                    assert ran(pool, part)[1] == pytest.approx(LENGTH - 100.0, abs=3.0)

    run_virtual(work())


def test_one_part_that_cannot_be_saved_leaves_the_checkpoint_before() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            await asyncio.sleep(150.0)
            job = next(iter(pool.role("head", "schedd").queue.jobs()))
            for node in pool.nodes.values():
                for keeper in node.machine.keepers.values():
                    if part_of(keeper.spec) == 1:
                        keeper.refused = ("descriptor 5 of process 2 is a TCP connection",)
            await asyncio.sleep(100.0)
            assert job.get("NumCkpts") == 1
            assert job.get("CheckpointTrouble") == "p1: descriptor 5 of process 2 is a TCP connection"
            await pool.crash(pool.witness.running["1.0.0"])
            await pool.restart(next(name for name, node in pool.nodes.items() if not node.running))
            await ended(pool)
            for part in ("1.0.0", "1.0.1"):
                assert ran(pool, part)[1] == pytest.approx(LENGTH - 100.0, abs=2.0)

    run_virtual(work())


def test_a_checkpoint_that_one_part_cannot_go_on_from_gives_way_to_the_one_before() -> None:
    broken: list[int] = []

    def behave(spec: KeeperSpec) -> Behaviour:
        return Behaviour(LENGTH, saving=SAVING, broken=part_of(spec) in broken)

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 2, behave)
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            await asyncio.sleep(250.0)
            broken.append(1)
            await pool.crash(pool.witness.running["1.0.0"])
            await pool.restart(next(name for name, node in pool.nodes.items() if not node.running))
            schedd = pool.role("head", "schedd")
            job = next(iter(schedd.queue.jobs()))
            await pool.run_until(lambda: len(job.stored_note("_tries") or ()) >= 1, 2000.0)
            broken.clear()
            (ad,) = await ended(pool)
            assert ad["NumJobStarts"] >= 3
            assert ad["ExitCode"] == 0

    run_virtual(work())


def test_a_checkpoint_may_follow_another_at_once() -> None:
    """The submit side has the images of all parts before the parts know that."""
    by_hand = {**SETTINGS, "CHECKPOINT_FIRST": "10000", "CHECKPOINT_MOST": "10000"}

    async def work() -> None:
        async with SimPool(1, settings=by_hand, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            await runs(pool)
            await asyncio.sleep(10.0)
            pool.network.slow_down("head", "m1", (0.2, 0.3))
            for _ in range(3):
                answer = await pool.act("head", "alice", action="checkpoint", ids=[[1, 0]])
                assert (answer["done"], answer["refused"]) == (1, [])
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["NumCkpts"]) == (1, 3)

    run_virtual(work())


#: The requests to the second of two parts, in order; and its word that its image is on the submit side.
STEPS = [("startd.checkpoint_part", count) for count in (2, 4, 6)] + [("schedd.report", 4)]


@pytest.mark.parametrize("what", ["m1 dies", "head dies", "silence"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize(("method", "count"), STEPS)
def test_a_step_that_is_lost_costs_a_checkpoint_at_most(
    method: str, count: int, phase: TrapPhase, what: str, tmp_path: Path
) -> None:
    """Each step of the first checkpoint is the last that a side sees, or its answer is late; then a machine fails."""

    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, directory=tmp_path, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))

            async def silence() -> None:
                pool.network.drop_silently("head", "m1")
                asyncio.get_running_loop().call_later(20.0, pool.network.restore_links)

            async def death() -> None:
                await pool.kill(what.split()[0])

            trap = pool.run_at(method, phase, silence if what == "silence" else death, count=count)
            crashed = False
            for _ in range(2000):
                await asyncio.sleep(2.0)
                for name in [name for name, node in pool.nodes.items() if not node.running]:
                    await pool.restart(name)
                if trap.sprung and not crashed and len(pool.witness.running) == 2:
                    crashed = True
                    await asyncio.sleep(120.0)
                    if pool.queued("head"):
                        await pool.crash("m1")
                if pool.queued("head") == 0:
                    break
            assert trap.sprung
            (ad,) = await ended(pool)
            assert ad["ExitCode"] == 0
            ends = [[when for job, _, when in pool.witness.ends if job == part][-1] for part in ("1.0.0", "1.0.1")]
            assert abs(ends[0] - ends[1]) < 50.0, "they went on from different checkpoints"
            total = sum(ran(pool, "1.0.0"))
            assert total < 4 * LENGTH

    run_virtual(work())


@pytest.mark.parametrize(("method", "count"), STEPS[:2])
def test_a_set_ends_on_the_machines_when_a_schedd_is_back_that_does_not_know_it(
    method: str, count: int, tmp_path: Path
) -> None:
    """The pipes and the network of all parts stood for a minute otherwise."""

    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, directory=tmp_path, stateful=True) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad=gang(2))
            await runs(pool)

            def holding() -> int:
                claims = [slot.claim for name in ("m0", "m1") for slot in pool.role(name, "startd").claims.values()]
                return sum(bool(claim and claim.running and claim.running.sets.holds) for claim in claims)

            async def death() -> None:
                await pool.kill("head")

            pool.run_at(method, TrapPhase.AFTER, death, count=count)
            await pool.run_until(lambda: not pool.nodes["head"].running, 200.0)
            assert holding() == 2
            await pool.restart("head")
            await pool.run_until(lambda: not holding(), 20.0)
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)

    run_virtual(work())


@pytest.mark.parametrize("kind", [gang, parallel])
def test_a_complete_run_that_is_to_run_again_begins_anew(kind: Any, tmp_path: Path) -> None:
    """Of all parts: also where the run itself went on from a checkpoint, and the head is killed after it."""

    async def work() -> None:
        async with SimPool(2, settings=SETTINGS, stateful=True, directory=tmp_path) as pool:
            await machines(pool, 2)
            await pool.submit("head", ad={**kind(2), "OnExitRemove": ["NumJobCompletions >= 2"]})
            await runs(pool)
            await asyncio.sleep(250.0)
            await pool.crash("m1")
            await pool.restart("m1")
            (job,) = pool.role("head", "schedd").queue.jobs()
            await pool.run_until(lambda: job.get("NumJobCompletions") == 1, 1000.0)
            images = pool.role("head", "schedd").images
            assert (images.newest(job), job.stored_note("_complete")) == (None, images.latest(job))
            await pool.kill("head")
            await pool.restart("head")
            (ad,) = await ended(pool)
            assert (ad["NumJobStarts"], ad["NumJobCompletions"], ad["ExitCode"]) == (3, 2, 0)
            for part in {job for job, _, _ in pool.witness.starts}:
                _, second, third = ran(pool, part)
                assert second == pytest.approx(LENGTH - 200.0, abs=5.0), "that run went on"
                assert third == pytest.approx(LENGTH, abs=15.0), "the next one did not"
            assert len({job for job, _, _ in pool.witness.starts}) == 2

    run_virtual(work())
