"""The start contract: either side dies at each step, and no job is lost, doubled, or reported twice.

Every message between the roles is the last thing that one of them sees: before it is acted upon, or after that and
before the answer. The node that died comes back after a while, or its machine is gone with it. In the end every job
that was accepted has ended exactly once, and never did two copies of one run at a time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from pool.testing import run_virtual
from pool.testing.faults import Trap, TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import ConnectionLost
from tests.roles.support import QUICK

#: Each step of submit, match, claim, activate, end and report: the call, and the two nodes that take part in it.
STEPS = [
    ("collector.update", ("head", "submit", "m1")),
    ("schedd.requests", ("head", "submit")),
    ("startd.matched", ("head", "m1")),
    ("schedd.matched", ("head", "submit")),
    ("startd.claim", ("submit", "m1")),
    ("startd.activate", ("submit", "m1")),
    ("schedd.report", ("submit", "m1")),
    ("schedd.renew", ("submit", "m1")),
    ("schedd.ended", ("submit", "m1")),
    ("startd.release", ("submit", "m1")),
]
CASES = [
    (method, phase, victim, count)
    for method, victims in STEPS
    for victim in victims
    for phase in TrapPhase
    for count in (1, 2)
]
JOBS = 4


async def through(pool: SimPool, set_trap: Callable[[], Trap], *, restart_after: float) -> Trap:
    """Four nodes, a few accepted jobs, then a trap; whoever died comes back; everything ends well."""
    await pool.add("head", "collector,negotiator")
    await pool.add("submit", "schedd")
    await pool.add("m1", "startd", behave=lambda spec: Behaviour(30.0))
    await pool.add("m2", "startd", behave=lambda spec: Behaviour(30.0))
    await pool.submit("submit", count=JOBS)
    trap = set_trap()
    ended: list[dict[str, object]] = []
    loop = asyncio.get_running_loop()
    deadline = loop.time() + 4000.0
    while loop.time() < deadline:
        await asyncio.sleep(1.0)
        dead = [name for name, node in pool.nodes.items() if not node.running]
        for name in dead:
            await asyncio.sleep(restart_after)
            await pool.restart(name)
        if not dead and pool.queued("submit") == 0 and not pool.role("submit", "schedd").placement.claims:
            ended = await pool.ended("submit")
            break
    assert Counter(ad["ProcId"] for ad in ended) == Counter(range(JOBS)), [
        (job.id, job.status, job.state, job.notes) for job in pool.role("submit", "schedd").queue.jobs()
    ]
    assert all(ad["ExitCode"] == 0 for ad in ended)
    pool.assert_sound()
    return trap


@pytest.mark.parametrize(("method", "phase", "victim", "count"), CASES)
def test_killed_at_this_step_and_back_soon(
    method: str, phase: TrapPhase, victim: str, count: int, tmp_path: Path
) -> None:
    async def work() -> bool:
        async with SimPool(20, settings=QUICK, directory=tmp_path) as pool:
            trap = await through(pool, lambda: pool.trap(method, phase, victim, count=count), restart_after=5.0)
            return trap.sprung

    sprung = run_virtual(work())
    assert sprung or count > 1


@pytest.mark.parametrize("phase", list(TrapPhase))
def test_a_submit_that_was_not_answered_is_there_whole_or_not_at_all(phase: TrapPhase, tmp_path: Path) -> None:
    async def work() -> int:
        async with SimPool(19, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            pool.trap("schedd.submit", phase, "head")
            with pytest.raises(ConnectionLost):
                await pool.submit("head", count=JOBS)
            await asyncio.sleep(1.0)
            await pool.restart("head")
            return pool.queued("head")

    assert run_virtual(work()) == (0 if phase is TrapPhase.BEFORE else JOBS)


@pytest.mark.parametrize(
    ("method", "phase"), [(method, phase) for method, who in STEPS if "m1" in who for phase in TrapPhase]
)
def test_the_machine_is_gone_with_its_jobs(method: str, phase: TrapPhase, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(21, settings=QUICK, directory=tmp_path) as pool:
            await through(pool, lambda: pool.trap(method, phase, "m1", machine_too=True), restart_after=300.0)

    run_virtual(work())


@pytest.mark.parametrize("victim", ["submit", "m1"])
@pytest.mark.parametrize("method", ["startd.activate", "schedd.ended", "schedd.renew"])
def test_away_for_longer_than_the_lease(method: str, victim: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(22, settings=QUICK, directory=tmp_path) as pool:
            await through(pool, lambda: pool.trap(method, TrapPhase.AFTER, victim), restart_after=200.0)

    run_virtual(work())


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("silent", [False, True])
def test_cut_off_at_any_time(seed: int, silent: bool, tmp_path: Path) -> None:
    """The submit and execute sides lose each other for a time shorter or longer than the lease, twice."""

    async def work() -> None:
        async with SimPool(100 + seed, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            for number in range(3):
                await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(40.0))
            await pool.submit("submit", count=9)
            for _ in range(2):
                await asyncio.sleep(pool.chance.uniform(0.0, 60.0))
                machine = f"m{pool.chance.randrange(3)}"
                pool.network.partition({"submit"}, {machine}, silent=silent)
                await asyncio.sleep(pool.chance.uniform(1.0, 150.0))
                pool.network.restore_links()
            await pool.run_until(lambda: pool.queued("submit") == 0, within=4000)
            ended = await pool.ended("submit")
            assert Counter(ad["ProcId"] for ad in ended) == Counter(range(9))
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("jump", [-86400.0, 86400.0])
def test_a_clock_that_jumps_ends_no_lease(jump: float) -> None:
    async def work() -> None:
        async with SimPool(30, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(100.0))
            await pool.submit("head", count=2)
            await pool.run_until(lambda: len(pool.witness.running) == 1, within=30)
            pool.wall_shift = jump
            await pool.run_until(lambda: pool.queued("head") == 0, within=1000)
            assert len(pool.witness.starts) == 2
            pool.assert_sound()

    run_virtual(work())


def test_two_schedds_of_one_name_do_not_mix() -> None:
    async def work() -> None:
        async with SimPool(31, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("one", "schedd", settings={"NODE_NAME": "same"})
            await pool.add("two", "schedd", settings={"NODE_NAME": "same"})
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(1.0))
            await pool.submit("one", count=3)
            await pool.run_until(lambda: pool.queued("one") == 0, within=300)
            assert len(await pool.ended("one")) == 3
            pool.assert_sound()

    run_virtual(work())


def test_ended_jobs_leave_no_claims_behind() -> None:
    async def work() -> None:
        async with SimPool(32, settings={**QUICK, "SLOTS": "partitionable"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(1.0))
            await pool.submit("head", count=5)
            await pool.run_until(lambda: pool.queued("head") == 0, within=300)
            startd, schedd = pool.role("m1", "startd"), pool.role("head", "schedd")
            await pool.run_until(lambda: not startd.claims, within=30)
            assert not schedd.placement.claims
            assert set(startd.slots) == {"slot1"}
            assert not pool.nodes["m1"].machine.keepers
            pool.assert_sound()

    run_virtual(work())
