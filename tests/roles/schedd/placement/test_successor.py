"""Jobs that leave their machines have the next one before they are gone, and never two at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

HOUR = 3600.0
#: A job of two hours whose checkpoint takes a minute.
SLOWLY = Behaviour(2 * HOUR, saving=60.0, rss=1000)
RULES = {**QUICK, "CHECKPOINT_FIRST": "0", "CLAIM_LEASE": "300"}


class Story:
    """A job on m1; m2 is there as well."""

    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    @property
    def where(self) -> str:
        return self.pool.witness.running.get("1.0", "")

    @property
    def job(self) -> Any:
        (job,) = self.pool.role("head", "schedd").queue.jobs()
        return job

    def claims(self, name: str) -> int:
        return len(self.pool.role(name, "startd").claims)

    async def drain(self, name: str = "m1") -> None:
        startd = self.pool.role(name, "startd")
        startd.given.state.mkdir(parents=True, exist_ok=True)
        await startd.draining.begin("vacate", "a test")

    async def followed(self) -> None:
        """m1 is drained, and before the job has left there m2 is its next."""
        await asyncio.sleep(HOUR)
        await self.drain()
        await self.pool.run_until(lambda: self.claims("m2") == 1, within=20)
        assert (self.where, self.claims("m1")) == ("m1", 1)

    async def ends_well(self, path: list[str]) -> None:
        await self.pool.run_until(lambda: not self.pool.queued("head"), within=10 * HOUR)
        assert [machine for _, machine, _ in self.pool.witness.starts] == path
        await self.pool.run_until(lambda: not self.pool.role("head", "schedd").placement.claims, within=400)


def play(story: Callable[[Story], Coroutine[Any, Any, None]], *, others: int = 0, two: bool = True) -> None:
    async def work() -> None:
        async with SimPool(11, settings=RULES, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: SLOWLY)
            await pool.submit("head")
            it = Story(pool)
            await pool.run_until(lambda: it.where == "m1", within=100)
            if two:
                await pool.add("m2", "startd", behave=lambda spec: SLOWLY)
            for _ in range(others):
                await pool.submit("head")
            await story(it)
            pool.assert_sound()

    run_virtual(work())


def test_it_starts_there_at_once_when_it_has_left() -> None:
    async def story(it: Story) -> None:
        await it.followed()
        await it.ends_well(["m1", "m2"])
        (_, _, left), (_, _, began) = it.pool.witness.ends[0], it.pool.witness.starts[1]
        assert left <= began < left + 0.1

    play(story)


@pytest.mark.parametrize("what", ["remove", "hold"])
def test_a_job_that_does_not_come_back_gives_the_machine_back(what: str) -> None:
    async def story(it: Story) -> None:
        await it.followed()
        schedd = it.pool.role("head", "schedd")
        await schedd.acts.act({"action": what, "ids": [[1, 0]]}, None, "root")
        await it.pool.run_until(lambda: not it.claims("m2") and not it.claims("m1"), within=400)
        assert len(it.pool.witness.starts) == 1

    play(story)


@pytest.mark.parametrize("moment", ["while its checkpoint is made", "while it waits for a machine"])
def test_the_checkpoint_of_a_job_that_is_removed_stays_on_no_machine(moment: str) -> None:
    """It is offered to the job's next machine for ten minutes, and there is no next machine."""
    waits = moment == "while it waits for a machine"

    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.drain()
        images = it.pool.role("m1", "startd").images("head")
        if waits:
            await it.pool.run_until(lambda: not it.claims("m1"), within=400)
            assert images.used
        await it.pool.act("head", "alice", action="remove", ids=[[1]])
        await it.pool.run_until(lambda: not it.claims("m1") and not it.pool.queued("head"), within=400)
        await asyncio.sleep(5.0)
        stored = it.pool.role("head", "schedd").images.store
        assert (images.jobs(), images.used, stored.jobs(), stored.used) == ([], 0, [], 0)

    play(story, two=False)


@pytest.mark.parametrize("name", ["m1", "m2", "head"])
def test_whoever_dies_meanwhile_it_goes_on_and_never_twice(name: str) -> None:
    async def story(it: Story) -> None:
        await it.followed()
        await it.pool.kill(name)
        await asyncio.sleep(30.0)
        await it.pool.restart(name)
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=10 * HOUR)
        assert {job for job, _, _ in it.pool.witness.starts} == {"1.0"}

    play(story)


def test_without_another_machine_it_waits_as_ever() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.drain()
        await it.pool.run_until(lambda: it.job.status == 1, within=200)
        assert it.pool.role("head", "schedd").placement.successors.requests("user") == []
        await it.pool.add("m2", "startd", behave=lambda spec: SLOWLY)
        await it.ends_well(["m1", "m2"])

    play(story, two=False)


def test_jobs_that_wait_come_first() -> None:
    """Another job of its owner waits already: the machine that is free is that one's."""

    async def story(it: Story) -> None:
        await it.pool.run_until(lambda: it.claims("m2") == 1, within=60)
        await asyncio.sleep(60.0)
        await it.drain()
        await it.pool.run_until(lambda: it.claims("m1") == 0, within=200)
        assert it.pool.witness.running == {"2.0": "m2"}
        await it.ends_well(["m1", "m2", "m2"])

    play(story, others=1)
