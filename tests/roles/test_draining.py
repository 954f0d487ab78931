"""Machines that are taken out of use, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy import slots
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, told


class Story:
    """A machine with a job of 100 seconds on it, and two more in the queue."""

    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    def slot(self) -> Any:
        return self.pool.role("m1", "startd").slots["slot1"]

    async def tell(self, verb: str, user: str = "root", **params: Any) -> Any:
        link = await self.pool.network.user(user, "m1", administer=user == "root")
        try:
            return await link.call(f"startd.{verb}", params)
        finally:
            await link.close()

    async def drained(self, within: float = 10.0) -> None:
        await self.pool.run_until(lambda: self.slot().condition == slots.DRAINED, within=within)
        await asyncio.sleep(1.0)
        ad, private = told(self.pool, "slot1@m1")
        assert (ad["State"], ad["Draining"], private) == ("Drained", True, {})


def play(
    story: Callable[[Story], Coroutine[Any, Any, None]], behave: Behaviour = Behaviour(100.0), kind: str = "1"
) -> None:
    async def work() -> None:
        async with SimPool(81, settings={**QUICK, "SLOTS": kind}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: behave)
            await pool.submit("head", count=3)
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            await asyncio.sleep(1.0)
            await story(Story(pool))
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("kind", ["1", "partitionable"])
def test_what_runs_finishes_and_nothing_new_comes(kind: str) -> None:
    async def story(it: Story) -> None:
        running = "slot1" if kind == "1" else "slot1_1"
        assert await it.tell("drain", reason="more memory") == {"running": [running]}
        await asyncio.sleep(1.0)
        ad, _ = told(it.pool, f"{running}@m1")
        assert (ad["Activity"], ad["Draining"], ad["DrainReason"]) == ("Busy", True, "more memory")
        await it.pool.run_until(lambda: it.pool.queued("head") == 2, within=120)
        await it.drained()
        assert [ad["ExitCode"] for ad in await it.pool.ended("head")] == [0]
        await asyncio.sleep(1000.0)
        assert len(it.pool.witness.starts) == 1
        await it.tell("undrain")
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=400)
        assert "Draining" not in told(it.pool, "slot1@m1")[0]

    play(story, kind=kind)


@pytest.mark.parametrize(
    ("how", "stubborn", "within"), [("vacate", False, 2.0), ("fast", True, 2.0), ("vacate", True, 700.0)]
)
def test_what_runs_leaves(how: str, stubborn: bool, within: float) -> None:
    async def story(it: Story) -> None:
        await it.tell("drain", how=how)
        await it.drained(within)
        jobs = list(it.pool.role("head", "schedd").queue.jobs())
        assert len(jobs) == 3
        assert jobs[0].get("VacateReason") == "the machine is taken out of use"
        await it.tell("undrain")
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 2, within=10)

    play(story, Behaviour(10_000.0, stubborn=stubborn))


def test_a_machine_that_is_wanted_after_all_goes_on_as_before() -> None:
    async def story(it: Story) -> None:
        await it.tell("drain")
        await asyncio.sleep(10.0)
        await it.tell("undrain")
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=400)
        assert it.pool.traps.called["startd.claim"] == 1

    play(story)


def test_the_owner_and_drained_slots_do_not_mix() -> None:
    async def story(it: Story) -> None:
        await it.tell("drain", how="fast")
        await it.drained()
        await asyncio.sleep(60.0)  # the policy is evaluated meanwhile
        assert it.slot().condition == slots.DRAINED
        await it.tell("vacate")
        await it.tell("drain")
        assert it.slot().condition == slots.DRAINED

    play(story)


def test_only_administrators_may_and_only_in_a_way_there_is() -> None:
    async def story(it: Story) -> None:
        with pytest.raises(PoolError, match=r"may not call startd\.drain"):
            await it.tell("drain", user="alice")
        with pytest.raises(PoolError, match="cannot drain by 'gently'"):
            await it.tell("drain", how="gently")
        assert it.slot().condition == slots.BUSY

    play(story)
