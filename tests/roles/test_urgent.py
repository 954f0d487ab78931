"""Computing on demand through the four real roles (D7): an urgent job suspends the one that runs, and hands back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.policy import slots
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour, FakeKeeper
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking, told

SETTINGS = {**QUICK, "VALID_COD_USERS": "bob, carol"}
#: The run times of alice's job and of an urgent one, seconds.
LONG, SHORT = 4000.0, 100.0
LOOK = 6.0


class Story:
    """A machine m1 with a long job of alice's on its only slot."""

    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    @property
    def startd(self) -> Any:
        return self.pool.role("m1", "startd")

    @property
    def slot(self) -> Any:
        return self.startd.slots["slot1"]

    @property
    def urgent(self) -> Any:
        return self.startd.slots.get("slot1_urgent")

    def job(self, owner: str) -> Any:
        (job,) = [job for job in self.pool.role("head", "schedd").queue.jobs() if job.cluster.owner == owner]
        return job

    def keeper(self, owner: str) -> FakeKeeper:
        job = self.job(owner)
        name = f"{job.id[0]}.{job.id[1]}"
        return next(it for id, it in self.pool.nodes["m1"].machine.keepers.items() if id.startswith(f"{name}."))

    async def ask(self, owner: str = "bob", **more: Any) -> None:
        """Submit an urgent job."""
        await self.pool.submit("head", owner=owner, ad={"Urgent": True, **more})

    async def on_top(self, owner: str = "bob", **more: Any) -> None:
        """An urgent job runs, and the one below stands still."""
        await self.ask(owner, **more)
        await self.pool.run_until(lambda: self.urgent is not None and self.urgent.condition == slots.BUSY, within=10)
        await asyncio.sleep(0.5)
        assert self.slot.condition == slots.YIELDING
        assert self.keeper("alice").suspended

    async def handed_back(self, within: float = SHORT + 10) -> None:
        await self.pool.run_until(lambda: self.urgent is None, within=within)
        await self.pool.run_until(lambda: self.slot.condition == slots.BUSY, within=5)
        await asyncio.sleep(0.5)
        assert not self.keeper("alice").suspended
        assert self.job("alice").status == 2


def play(
    story: Callable[[Story], Coroutine[Any, Any, None]],
    *,
    settings: dict[str, str] | None = None,
    urgent: Behaviour | None = None,
    directory: Path | None = None,
) -> None:
    def behave(spec: KeeperSpec) -> Behaviour:
        quick = urgent or Behaviour(SHORT)
        return Behaviour(LONG) if spec.id.startswith("1.") else quick

    async def work() -> None:
        async with SimPool(3, settings={**SETTINGS, **(settings or {})}, directory=directory) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=behave)
            await pool.submit("head", owner="alice")
            it = Story(pool)
            await pool.run_until(lambda: it.slot.condition == slots.BUSY, within=60)
            await asyncio.sleep(1.0)
            await story(it)
            pool.assert_sound()

    run_virtual(work())


def test_an_urgent_job_takes_the_slot_and_hands_it_back() -> None:
    async def story(it: Story) -> None:
        before = asyncio.get_running_loop().time()
        await it.on_top()
        assert asyncio.get_running_loop().time() - before < 3.0
        assert it.job("alice").status == 7
        assert it.job("alice").get("SuspendReason") == "an urgent job of bob@head takes the slot for a while"
        await it.handed_back()
        # It went on where it was: the same start, and its whole time.
        assert [job for job, _, _ in it.pool.witness.starts] == ["1.0", "2.0"]
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=LONG + 100)
        ends = {job: when for job, _, when in it.pool.witness.ends}
        starts = {job: when for job, _, when in it.pool.witness.starts}
        assert LONG + SHORT < ends["1.0"] - starts["1.0"] < LONG + SHORT + 5.0
        (ad,) = [ad for ad in await it.pool.ended("head") if ad["Owner"] == "alice"]
        assert (ad["NumJobStarts"], ad["TotalSuspensions"], ad["ExitCode"]) == (1, 1, 0)

    play(story)


def test_only_whom_the_owner_lets_in() -> None:
    async def story(it: Story) -> None:
        await it.ask("eve")
        await it.pool.submit("head", owner="bob")  # not urgent
        await asyncio.sleep(200)
        assert it.urgent is None
        assert it.slot.condition == slots.BUSY
        async with asking(it.pool, "eve") as pool:
            text = str(await pool.why("2.0"))
        assert "its owner lets no such urgent job in (START_URGENT)" in text

    play(story)


def test_start_urgent_may_ask_anything() -> None:
    async def story(it: Story) -> None:
        await it.ask("bob", RequestMemory=300)
        await asyncio.sleep(100)
        assert it.urgent is None
        await it.on_top("carol", RequestMemory=100)

    play(story, settings={"VALID_COD_USERS": "", "START_URGENT": "TARGET.RequestMemory < 200"})


def test_whoever_asks_sees_who_stands_still_for_whom() -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await asyncio.sleep(1.0)
        below, private = told(it.pool, "slot1@m1")
        above, _ = told(it.pool, "slot1_urgent@m1")
        assert (below["State"], below["Activity"], below["UrgentUser"]) == ("Claimed", "Yielding", "bob@head")
        assert (above["State"], above["Activity"], above["RemoteOwner"]) == ("Claimed", "Busy", "bob")
        assert not private
        async with asking(it.pool, "alice") as pool:
            text = str(await pool.why("1.0"))
            assert "it stands still because an urgent job of bob@head takes the slot for a while" in text

    play(story)


def test_time_below_counts_for_nobody_but_the_urgent_user() -> None:
    async def story(it: Story) -> None:
        usage = it.pool.role("head", "negotiator").accounting.usage
        assert usage.held_by("alice@head") == 1.0
        weight = it.pool.role("head", "negotiator").pool_view.weight
        await it.on_top()
        await asyncio.sleep(1.0)
        assert (usage.held_by("alice@head"), usage.held_by("bob@head")) == (0.0, 1.0)
        assert it.pool.role("head", "negotiator").pool_view.weight == weight
        await it.handed_back()
        await asyncio.sleep(1.0)
        assert (usage.held_by("alice@head"), usage.held_by("bob@head")) == (1.0, 0.0)

    play(story)


def test_the_claim_below_outlives_its_lease_many_times() -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await it.handed_back(within=2000)
        assert len(it.pool.witness.starts) == 2

    play(story, urgent=Behaviour(1500.0))


def test_one_urgent_job_at_a_time() -> None:
    async def story(it: Story) -> None:
        await it.on_top("bob")
        await it.ask("carol")
        await asyncio.sleep(50.0)
        assert len(it.startd.slots) == 2
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 3, within=SHORT + 100)
        await it.handed_back(within=2 * SHORT + 100)

    play(story)


def test_where_memory_is_short_the_job_leaves_instead() -> None:
    async def story(it: Story) -> None:
        it.pool.nodes["m1"].sensors.facts |= {"AvailableMemory": 100, "VirtualMemory": 0}
        await asyncio.sleep(LOOK)
        await it.ask(RequestMemory=200)
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 2, within=60)
        assert it.urgent is None
        assert "do not fit into memory and swap" in it.job("alice").get("VacateReason")
        assert it.job("alice").status == 1
        # The slot was taken for that job, and is not kept for others of its user's.
        claim = it.slot.claim
        await it.pool.submit("head", owner="bob")
        await it.pool.run_until(lambda: it.slot.claim is not claim, within=SHORT + 5)
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 3, within=60)
        assert it.pool.witness.starts[2][0] == "1.0"

    play(story)


def test_the_owner_comes_back_to_both() -> None:
    """The urgent job is suspended, then leaves; the one below does not run for a moment while he is there."""

    async def story(it: Story) -> None:
        await it.on_top()
        it.pool.nodes["m1"].sensors.owners_load = 3.0
        await it.pool.run_until(lambda: it.urgent.condition == slots.SUSPENDED, within=LOOK)
        await it.pool.run_until(lambda: it.urgent is None, within=700)
        assert it.slot.condition in (slots.BUSY, slots.SUSPENDED)
        await asyncio.sleep(0.5)
        assert it.slot.condition == slots.SUSPENDED
        assert it.keeper("alice").suspended
        it.pool.nodes["m1"].sensors.owners_load = 0.0
        await it.pool.run_until(lambda: it.slot.condition == slots.BUSY, within=2 * LOOK)
        await asyncio.sleep(0.5)
        assert not it.keeper("alice").suspended

    play(story, settings={"POLICY": "desktop"})


def test_the_job_below_is_removed_and_the_slot_stays_taken() -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await it.pool.act("head", "alice", action="remove", ids=[[1]])
        await it.pool.run_until(lambda: it.slot.claim is None, within=LOOK)
        assert it.slot.condition == slots.OWNER
        await it.pool.submit("head", owner="dave")
        await asyncio.sleep(SHORT / 2)
        assert it.urgent.condition == slots.BUSY
        assert len(it.pool.witness.starts) == 2
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 3, within=SHORT)

    play(story)


def test_the_urgent_job_is_removed_and_the_slot_handed_back() -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await it.pool.act("head", "bob", action="remove", ids=[[2]])
        await it.handed_back(within=LOOK)

    play(story)


def test_a_drained_machine_is_empty_when_both_have_left() -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await it.startd.draining.begin("vacate", "new disk")
        await it.pool.run_until(lambda: it.slot.condition == slots.DRAINED, within=30)
        assert it.urgent is None

    play(story)


def test_a_node_that_is_killed_finds_both_jobs(tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        await it.on_top()
        await it.pool.kill("m1")
        await asyncio.sleep(5.0)
        await it.pool.restart("m1")
        await it.pool.run_until(lambda: it.urgent is not None, within=5)
        await asyncio.sleep(2.0)
        assert it.slot.condition == slots.YIELDING
        assert it.keeper("alice").suspended
        assert not it.keeper("bob").suspended
        await it.handed_back()
        assert len(it.pool.witness.starts) == 2

    play(story, directory=tmp_path)


@pytest.mark.parametrize("victim", ["head", "m1"])
@pytest.mark.parametrize("method", ["startd.preempt", "startd.activate", "startd.release"])
def test_whoever_dies_at_whichever_step_nothing_is_lost(victim: str, method: str, tmp_path: Path) -> None:
    async def story(it: Story) -> None:
        for phase in TrapPhase:
            trap = it.pool.trap(method, phase, victim)
            await it.ask()
            await it.pool.run_until(lambda trap=trap: trap.sprung, within=400)  # type: ignore[misc]
            await asyncio.sleep(2.0)
            await it.pool.restart(victim)
            await it.pool.run_until(lambda: it.pool.queued("head") == 1, within=1000)
            await it.pool.run_until(lambda: it.urgent is None and it.slot.condition == slots.BUSY, within=400)
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=2 * LONG)

    play(story, directory=tmp_path)
