"""Flocking pools of real roles in virtual time: what goes wrong between pools, and what each pool then knows."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.flock import SimFlock, head
from tests.roles.support import QUICK, lasting

#: The calls by which a job starts in another pool, in their order (EV 5.5's eight steps, as they are here).
STEPS = (
    "world_machines.matched",
    "schedd.matched",
    "world_machines.claim",
    "world.claim",
    "world_jobs.requests",
    "startd.matched",
    "world_jobs.matched",
    "startd.claim",
    "world_machines.activate",
    "world.pass_call",
    "startd.activate",
)


@asynccontextmanager
async def borrower_and_lender(
    seed: int, *, machines: int = 2, own: int = 0, seconds: float = 10.0, directory: Path | None = None, **settings: str
) -> AsyncIterator[SimFlock]:
    """Physics borrows from chem: each job runs for so many seconds."""
    async with SimFlock(["physics", "chem"], seed, settings={**QUICK, **settings}, directory=directory) as flock:
        flock.agree(lender="chem", borrower="physics")
        await flock.add_pool("chem", machines, behave=lambda spec: lasting(seconds))
        await flock.add_pool("physics", own, behave=lambda spec: lasting(seconds))
        await flock.run_until(lambda: len(flock.machines_shown("physics")) == machines + own, within=60)
        yield flock


def test_a_job_runs_in_another_pool() -> None:
    async def work() -> None:
        async with borrower_and_lender(1) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=60)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert ad["LastRemoteHost"] in ("slot1@chem-m0@chem@physics-head", "slot1@chem-m1@chem@physics-head")
            assert set(STEPS) <= {*flock.pool("physics").traps.called, *flock.pool("chem").traps.called}
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("seed", range(4))
def test_a_claim_is_not_renewed_before_its_schedd_knows_it(seed: int) -> None:
    """Machines that were idle for long, a slow link, claims that are made one after the other: each is made once."""

    async def work() -> None:
        async with borrower_and_lender(60 + seed, machines=6, seconds=300) as flock:
            flock.network.slow_down(head("physics"), head("chem"), (0.0002, 0.3))
            await flock.settle(100)
            for _ in range(6):
                await flock.submit("physics")
                await flock.settle(0.1 * seed)
            await flock.run_until(lambda: flock.running("physics") == 6, within=60)
            await flock.settle(100)
            assert flock.pool("chem").traps.called["startd.claim"] == 6
            assert len(flock.witness.starts) == 6
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("seed", range(3))
def test_own_machines_come_first(seed: int) -> None:
    """No job goes out while a machine of its own pool is idle (EV 8): by chance many or few jobs and machines."""

    async def work() -> None:
        chance = random.Random(seed)
        own, jobs = chance.randint(1, 5), chance.randint(1, 5)
        async with borrower_and_lender(seed, own=own) as flock:
            await flock.submit("physics", count=min(jobs, own))
            await flock.run_until(lambda: flock.queued() == 0, within=120)
            assert {machine.split("-")[0] for machine in flock.runs_by_machine()} == {"physics"}

    run_virtual(work())


def test_a_job_that_its_user_keeps_at_home_waits() -> None:
    async def work() -> None:
        async with borrower_and_lender(3) as flock:
            await flock.submit("physics", ad={"WantFlock": False})
            await flock.settle(300)
            assert (flock.queued(), flock.witness.starts) == (1, [])

    run_virtual(work())


def test_users_of_the_pool_come_before_those_of_another() -> None:
    """Foreign jobs last (EV 8): one machine, and jobs of both pools that wait for it."""

    async def work() -> None:
        async with borrower_and_lender(4, machines=1, seconds=100) as flock:
            await flock.submit("chem", owner="bob")
            await flock.settle(5)
            await flock.submit("physics")
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: flock.queued("chem") == 0, within=1000)
            assert flock.queued("physics") == 1
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("victim", ["physics", "chem"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("step", STEPS)
def test_a_world_that_fails_at_any_step_of_a_start(step: str, phase: TrapPhase, victim: str) -> None:
    """Each message between the pools may be the last that a world saw: the job runs, and one copy of it at a time."""

    async def work() -> None:
        async with borrower_and_lender(5) as flock:

            async def restart() -> None:
                await flock.pool(victim).restart_role(head(victim), "world")

            traps = [pool.run_at(step, phase, restart) for pool in flock.pools.values()]
            await flock.submit("physics", count=2)
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            assert any(trap.sprung for trap in traps)
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("victim", ["physics", "chem"])
@pytest.mark.parametrize("step", STEPS)
def test_a_head_that_is_killed_at_any_step_of_a_start(step: str, victim: str, tmp_path: Path) -> None:
    """The head of either pool dies and comes back a minute later: no job is lost, stuck, or runs twice."""

    async def work() -> None:
        async with borrower_and_lender(6, directory=tmp_path) as flock:

            async def kill() -> None:
                await flock.pool(victim).kill(head(victim))

            traps = [pool.run_at(step, TrapPhase.BEFORE, kill) for pool in flock.pools.values()]
            try:
                await flock.submit("physics", count=2)
            finally:
                await flock.run_until(lambda: any(trap.sprung for trap in traps), within=200)
            for trap in traps:
                trap.sprung = True
            await flock.settle(60)
            await flock.pool(victim).restart(head(victim))
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            flock.assert_sound()

    run_virtual(work())


def _cut(flock: SimFlock) -> None:
    flock.network.cut(head("physics"), head("chem"))


def _silence(flock: SimFlock) -> None:
    flock.network.drop_silently(head("physics"), head("chem"))


def _one_way(flock: SimFlock) -> None:
    flock.network.drop_one_way(head("chem"), head("physics"))


@pytest.mark.parametrize("trouble", [_cut, _silence, _one_way])
def test_an_hour_without_a_link(trouble: Callable[[SimFlock], None]) -> None:
    """Jobs run across the link and wait for it: none is stuck, none runs twice, none is lost."""

    async def work() -> None:
        async with borrower_and_lender(7, machines=5, own=1, seconds=200) as flock:
            await flock.submit("physics", count=20)
            await flock.run_until(lambda: len(flock.witness.running) == 6, within=60)
            trouble(flock)
            await flock.submit("chem", count=3, owner="bob")
            await flock.settle(3600)
            assert flock.queued("chem") == 0
            flock.network.restore_links()
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            assert len(await flock.pool("physics").ended(head("physics"))) == 20
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("shift", [-7200.0, 86400.0])
def test_clocks_that_differ(shift: float) -> None:
    """The lender's wall clock is hours wrong: jobs start as quickly, and none is taken for late."""

    async def work() -> None:
        async with borrower_and_lender(8) as flock:
            flock.pool("chem").wall_shift = shift
            await flock.submit("physics", count=6)
            await flock.run_until(lambda: flock.queued() == 0, within=120)
            flock.assert_sound()

    run_virtual(work())


def test_a_slow_link_delays_nobody_at_home() -> None:
    """With a second between the pools jobs at home start as without another pool (F-4)."""

    async def first_start(flock: SimFlock) -> float:
        await flock.submit("physics")
        began = flock.now()
        await flock.run_until(lambda: bool(flock.witness.starts), within=60, step=0.001)
        return flock.witness.starts[0][2] - began

    async def work() -> None:
        async with SimFlock(["physics"], 9, settings=QUICK) as alone:
            await alone.add_pool("physics", 1)
            await alone.settle(30)
            without = await first_start(alone)
        async with borrower_and_lender(9, own=1) as flock:
            flock.network.slow_down(head("physics"), head("chem"), (1.0, 1.2))
            await flock.settle(30)
            assert await first_start(flock) <= without + 0.05

    run_virtual(work())


@pytest.mark.parametrize("call", ["world_jobs.requests", "world_jobs.matched"])
def test_a_world_that_hangs_with_jobs_of_others_delays_nobody(call: str) -> None:
    """The lender's world hangs when its own negotiator asks it for another pool's jobs, or tells it of matches."""

    async def work() -> None:
        async with borrower_and_lender(13, machines=2, seconds=100) as flock:

            async def hang() -> None:
                await asyncio.sleep(7200)

            trap = flock.pool("chem").run_at(call, TrapPhase.BEFORE, hang)
            await flock.submit("physics")
            await flock.run_until(lambda: trap.sprung, within=60)
            began, before = flock.now(), len(flock.witness.starts)
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: len(flock.witness.starts) > before, within=60, step=0.001)
            assert flock.witness.starts[-1][2] - began <= 0.2

    run_virtual(work())


@pytest.mark.parametrize("call", ["world_machines.matched", "world_machines.claim", "world.claim"])
def test_a_world_that_hangs_delays_nobody_at_home(call: str) -> None:
    """The own world, or the other pool's, takes a call for a lent machine and never answers: jobs at home start as
    quickly as without a world (F-4)."""

    async def start_after(flock: SimFlock, jobs: int) -> float:
        await flock.submit("physics", ad={"WantFlock": False})
        began = flock.now()
        await flock.run_until(lambda: len(flock.witness.starts) > jobs, within=60, step=0.001)
        return flock.witness.starts[-1][2] - began

    async def work() -> None:
        async with SimFlock(["physics"], 12, settings=QUICK) as alone:
            await alone.add_pool("physics", 1)
            await alone.settle(30)
            without = await start_after(alone, 0)
        async with borrower_and_lender(12, own=1) as flock:

            async def hang() -> None:
                await asyncio.sleep(7200)

            traps = [pool.run_at(call, TrapPhase.BEFORE, hang) for pool in flock.pools.values()]
            await flock.settle(30)
            await flock.submit("physics", owner="bob", ad={"Requirements": ['FlockPool =?= "chem"']})
            await flock.run_until(lambda: any(trap.sprung for trap in traps), within=60)
            assert await start_after(flock, 0) <= without + 0.05, "no cycle waits on a world"

    run_virtual(work())


def assert_consistent(flock: SimFlock, names: Sequence[str]) -> None:
    """Summed over the flock, jobs that run by their schedds' word are programs that run (EV 8)."""
    by_schedd = sum(flock.running(name) for name in names)
    assert by_schedd == len(flock.witness.running), (by_schedd, flock.witness.running)


def test_ten_pools_under_trouble() -> None:
    """Ten pools, each lends to each: links lose connections, worlds fail, clocks differ; all jobs run, each once."""
    names = [f"pool{number}" for number in range(10)]

    async def work() -> None:
        chance = random.Random(10)
        async with SimFlock(names, 10, settings=QUICK) as flock:
            flock.agree_all()
            for number, name in enumerate(names):
                flock.pool(name).wall_shift = chance.uniform(-1000, 1000)
                await flock.add_pool(name, 1 + number % 3, behave=lambda spec: lasting(chance.uniform(5, 300)))
            await flock.settle(10)
            jobs = {name: chance.choice([0, 2, 12]) for name in names}
            for name, count in jobs.items():
                if count:
                    await flock.submit(name, count=count)
            flock.network.loss = 0.002
            for _ in range(10):
                one, other = chance.sample(names, 2)
                flock.network.cut(head(one), head(other))
                await flock.pool(one).restart_role(head(one), "world")
                await flock.settle(chance.uniform(1, 30))
                flock.network.restore_links()
            flock.network.loss = 0.0
            await flock.run_until(lambda: flock.queued() == 0, within=20_000)
            ended = {name: len(await flock.pool(name).ended(head(name))) for name in names}
            assert ended == jobs
            flock.assert_sound()

    run_virtual(work())


def test_running_jobs_are_busy_machines_at_every_instant() -> None:
    names = ["a", "b", "c"]

    async def work() -> None:
        chance = random.Random(11)
        async with SimFlock(names, 11, settings=QUICK) as flock:
            flock.agree_all()
            for name in names:
                await flock.add_pool(name, 2, behave=lambda spec: lasting(chance.uniform(20, 60)))
            await flock.settle(10)
            await flock.submit("a", count=12)
            await flock.submit("b", count=3)
            looks = 0
            while flock.queued():
                await flock.settle(0.1)
                if flock.network.in_flight == 0:
                    assert_consistent(flock, names)
                    looks += 1
            assert looks > 100
            away = {job for job, machine, _ in flock.witness.starts if not machine.startswith(job.partition(":")[0])}
            assert len(away) > 3

    run_virtual(work())
