"""Running jobs that are matched again and move to better machines (RL 4.1): off by default, and never two at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

SLOWLY = {**QUICK, "EVALUATE_INTERVAL": "60", "UPDATE_INTERVAL": "300", "AD_LIFETIME": "900", "CLAIM_LEASE": "300"}
ON = {"REMATCH": "true", "REMATCH_PAUSE": "10 min"}
LONG = Behaviour(5000.0)


class Story:
    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    async def machine(self, name: str, speed: float, behave: Behaviour = LONG) -> None:
        node = await self.pool.add(name, "startd", behave=lambda spec: behave)
        node.sensors.facts["Speed"] = speed
        await self.pool.kill(name)
        await self.pool.restart(name)

    def job(self) -> Any:
        (job,) = self.pool.role("head", "schedd").queue.jobs()
        return job

    def where(self) -> str:
        return self.pool.witness.running.get("1.0", "")

    async def runs_on(self, name: str, within: float = 60.0) -> None:
        await self.pool.run_until(lambda: self.where() == name, within=within)

    def path(self) -> list[str]:
        return [machine for _, machine, _ in self.pool.witness.starts]

    async def ends_well(self) -> None:
        await self.pool.run_until(lambda: self.pool.queued("head") == 0, within=30000)
        (ad,) = await self.pool.ended("head")
        assert ad["ExitCode"] == 0
        await self.pool.run_until(lambda: not self.pool.role("head", "schedd").placement.claims, within=300)


def tell(
    story: Callable[[Story], Coroutine[Any, Any, None]],
    settings: dict[str, str] | None = None,
    rank: Any = ("TARGET.Speed",),
    directory: Path | None = None,
) -> None:
    async def work() -> None:
        rules = {**SLOWLY, **(ON if settings is None else settings)}
        async with SimPool(71, settings=rules, directory=directory) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            it = Story(pool)
            await it.machine("slow", 10)
            await pool.submit("head", ad={"Rank": list(rank) if isinstance(rank, tuple) else rank})
            await it.runs_on("slow")
            await story(it)
            pool.assert_sound()

    run_virtual(work())


def test_a_job_moves_to_a_better_machine_once_it_has_run_for_a_while() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(60.0)
        await it.machine("fast", 20)
        await asyncio.sleep(400.0)
        assert it.where() == "slow"
        await it.runs_on("fast", within=300)
        (_, _, left), (_, _, began) = it.pool.witness.ends[0], it.pool.witness.starts[1]
        assert left <= began < left + 0.1
        job = it.job()
        assert (job.get("NumMoves"), job.get("MovedFrom"), job.get("NumJobStarts")) == (1, "slow", 2)
        assert job.get("VacateReason") == "moved to a better machine: slot1@fast (20 over 10)"
        await it.ends_well()
        assert it.path() == ["slow", "fast"]

    tell(story)


@pytest.mark.parametrize(
    ("settings", "rank"),
    [
        ({}, ("TARGET.Speed",)),
        ({**ON, "REMATCH_GAIN": "10"}, ("TARGET.Speed",)),
        (ON, 1.0),
        (ON, ("0 - TARGET.Speed",)),
    ],
)
def test_a_job_stays_where_it_is(settings: dict[str, str], rank: Any) -> None:
    """It is not asked to move; the gain is too small; it likes all machines alike; it likes its own better."""

    async def story(it: Story) -> None:
        await it.machine("fast", 20)
        await it.ends_well()
        assert it.path() == ["slow"]

    tell(story, settings, rank)


def test_jobs_do_not_wander() -> None:
    """Of many better machines a job takes the best, once."""

    async def story(it: Story) -> None:
        for number in range(6):
            await it.machine(f"m{number}", 20 + number)
        await it.ends_well()
        assert it.path() == ["slow", "m5"]

    tell(story)


def test_a_job_that_likes_idle_machines_does_not_go_to_and_fro() -> None:
    """Its own load makes each machine that it is on look worse; what counts is what the machine was before it came."""

    async def story(it: Story) -> None:
        await it.machine("other", 10)
        for node in ("slow", "other"):
            it.pool.nodes[node].sensors.jobs_load = 4.0
        await it.ends_well()
        assert it.path() == ["slow"]

    tell(story, rank=("0 - TARGET.TotalLoadAvg",))


def test_it_moves_no_more_than_it_may() -> None:
    """A better machine comes every quarter of an hour; three moves are in a job's life, ten minutes apart."""

    async def story(it: Story) -> None:
        names = ["slow"]
        for number in range(6):
            name = f"m{number}"
            names.append(name)
            await it.machine(name, 20 + number)
            await asyncio.sleep(900.0)
        await it.ends_well()
        assert it.path() == names[:4]
        begins = [when for _, _, when in it.pool.witness.starts]
        assert all(later - before >= 599 for before, later in pairwise(begins))

    tell(story)


def test_a_user_who_takes_the_job_back_while_it_moves_gets_it() -> None:
    async def story(it: Story) -> None:
        await it.machine("fast", 20)
        await it.pool.run_until(lambda: it.job().stored_note("_wish") is not None, within=1200, step=0.0005)
        await it.pool.act("head", "alice", action="remove", all=True, force=True)
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=60)
        await it.pool.run_until(lambda: not it.pool.role("head", "schedd").placement.claims, within=60)
        assert it.path() == ["slow"]

    async def main() -> None:
        async with SimPool(72, settings={**SLOWLY, **ON}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            it = Story(pool)
            await it.machine("slow", 10, Behaviour(7200.0, stubborn=True))
            await pool.submit("head", ad={"Rank": ["TARGET.Speed"]})
            await it.runs_on("slow")
            await story(it)
            pool.assert_sound()

    run_virtual(main())


def test_a_job_that_does_not_want_to_leave_moves_when_it_has_left() -> None:
    async def main() -> None:
        async with SimPool(73, settings={**SLOWLY, **ON}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            it = Story(pool)
            await it.machine("slow", 10, Behaviour(7200.0, stubborn=True))
            await pool.submit("head", ad={"Rank": ["TARGET.Speed"], "JobMaxVacateTime": 300})
            await it.runs_on("slow")
            await it.machine("fast", 20)
            await pool.run_until(lambda: it.job().stored_note("_wish") is not None, within=1200)
            await asyncio.sleep(200.0)
            assert it.where() == "slow"
            assert pool.role("fast", "startd").slots["slot1"].claim is not None
            await it.runs_on("fast", within=200)
            await it.ends_well()
            assert it.path() == ["slow", "fast"]
            pool.assert_sound()

    run_virtual(main())


@pytest.mark.parametrize("victim", ["head", "slow", "fast"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", ["startd.claim", "startd.deactivate", "schedd.ended", "startd.activate"])
def test_whoever_dies_while_it_moves_it_runs_once_at_a_time_and_ends(
    method: str, phase: TrapPhase, victim: str, tmp_path: Path
) -> None:
    async def story(it: Story) -> None:
        await it.machine("fast", 20)
        it.pool.trap(method, phase, victim)
        await asyncio.sleep(1000.0)
        for name, node in it.pool.nodes.items():
            if not node.running:
                await it.pool.restart(name)
        await it.ends_well()

    tell(story, directory=tmp_path)
