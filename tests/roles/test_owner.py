"""The owner of a machine and the pool's jobs on it: the papers' desktop policy through the four real roles (A4, A5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pool.errors import PoolError
from pool.jobs.activation import Activation
from pool.policy import slots
from pool.policy.slots import SlotCondition
from pool.roles.startd.running.shadow_link import ClaimLink
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour, FakeKeeper
from pool.testing.pool import SimNode, SimPool
from tests.roles.support import QUICK, told

DESKTOP = {**QUICK, "POLICY": "desktop"}
MINUTE = 60.0
#: Seconds within which what is looked at every five seconds has been seen and acted upon.
LOOK = 6.0
LONG = Behaviour(100_000.0)


def now() -> float:
    return asyncio.get_running_loop().time()


class Story:
    """A desktop with a long job on it that was started because nobody is there."""

    def __init__(self, pool: SimPool, node: SimNode) -> None:
        self.pool = pool
        self.node = node
        self.sensors = node.sensors

    def slot(self) -> Any:
        return next(iter(self.pool.role("m1", "startd").slots.values()))

    def is_at(self, condition: SlotCondition) -> Callable[[], bool]:
        return lambda: self.slot().condition == condition

    def touch(self) -> None:
        self.sensors.touched = self.pool.wall()

    def keeper(self) -> FakeKeeper:
        (keeper,) = self.node.machine.keepers.values()
        return keeper

    def status(self) -> int:
        (job,) = self.pool.role("head", "schedd").queue.jobs()
        return int(job.status)

    async def begun(self) -> None:
        await self.pool.run_until(self.is_at(slots.BUSY), within=LOOK + 60)
        await asyncio.sleep(1.0)

    async def took(self, condition: SlotCondition, within: float = 86400.0) -> float:
        """Seconds until the slot came into this condition."""
        before = now()
        await self.pool.run_until(self.is_at(condition), within=within)
        return now() - before


def tell(
    story: Callable[[Story], Coroutine[Any, Any, None]],
    *,
    settings: dict[str, str] | None = None,
    behave: Behaviour = LONG,
    ad: dict[str, Any] | None = None,
    submit: int = 1,
) -> None:
    async def work() -> None:
        async with SimPool(7, settings={**DESKTOP, **(settings or {})}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd", behave=lambda spec: behave)
            if submit:
                await pool.submit("head", count=submit, ad=ad)
            await story(Story(pool, node))
            pool.assert_sound()

    run_virtual(work())


# --- the papers' times


def test_a_job_starts_only_after_fifteen_idle_minutes() -> None:
    async def story(it: Story) -> None:
        it.touch()
        await it.pool.run_until(it.is_at(slots.OWNER), within=LOOK)
        await it.pool.submit("head")
        took = await it.took(slots.BUSY)
        assert 15 * MINUTE - LOOK < took < 15 * MINUTE + 2 * LOOK

    tell(story, submit=0)


def test_it_is_suspended_at_a_touch_and_goes_on_after_five_quiet_minutes() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.touch()
        assert await it.took(slots.SUSPENDED) <= LOOK
        await asyncio.sleep(0.1)
        assert it.keeper().suspended
        assert it.status() == 7
        took = await it.took(slots.BUSY)
        assert 5 * MINUTE - LOOK < took < 5 * MINUTE + 2 * LOOK
        await asyncio.sleep(0.1)
        assert not it.keeper().suspended
        assert it.status() == 2
        assert len(it.pool.witness.starts) == 1

    tell(story)


def test_it_leaves_after_ten_suspended_minutes_and_runs_elsewhere() -> None:
    async def story(it: Story) -> None:
        await it.begun()

        async def type_on() -> None:
            while True:
                it.touch()
                await asyncio.sleep(20.0)

        typing = asyncio.create_task(type_on())
        await it.took(slots.SUSPENDED, within=LOOK)
        await it.pool.add("m2", "startd", behave=lambda spec: Behaviour(30.0))
        took = await it.took(slots.OWNER)
        assert 10 * MINUTE <= took < 10 * MINUTE + 2 * LOOK
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=600)
        assert [machine for _, machine, _ in it.pool.witness.starts] == ["m1", "m2"]
        (ad,) = await it.pool.ended("head")
        assert (ad["NumJobStarts"], ad["ExitCode"]) == (2, 0)
        assert it.slot().condition == slots.OWNER
        typing.cancel()

    tell(story)


def test_a_stubborn_one_is_killed_after_ten_minutes_more() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.touch()
        it.sensors.owners_load = 4.0  # whoever came stays, and does not type
        await it.took(slots.SUSPENDED, within=LOOK)
        await it.took(slots.VACATING)
        assert "1.0" in it.pool.witness.running
        took = await it.took(slots.OWNER)
        assert 10 * MINUTE <= took < 10 * MINUTE + 2 * LOOK
        assert not it.pool.witness.running
        assert it.pool.queued("head") == 1

    # The job's own wish to have hours for leaving does not bind the owner.
    tell(story, behave=Behaviour(100_000.0, stubborn=True), ad={"JobMaxVacateTime": 36_000})


def test_a_suspended_job_that_ends_by_a_signal_is_rid_of() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.touch()
        await it.took(slots.SUSPENDED, within=LOOK)
        await it.pool.act("head", "alice", action="remove", all=True, force=True)
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=60)
        await it.took(slots.OWNER, within=60)

    tell(story)


# --- load (A5)


def test_the_load_of_the_pools_own_jobs_does_not_disturb_them() -> None:
    async def story(it: Story) -> None:
        it.sensors.jobs_load = 8.0
        await it.begun()
        await asyncio.sleep(30 * MINUTE)
        assert it.slot().condition == slots.BUSY
        it.sensors.owners_load = 1.6
        assert await it.took(slots.SUSPENDED) <= LOOK

    tell(story)


def test_no_job_starts_while_the_owners_programs_run() -> None:
    async def story(it: Story) -> None:
        it.sensors.owners_load = 0.5
        await it.took(slots.OWNER, within=LOOK)
        await it.pool.submit("head")
        await asyncio.sleep(60 * MINUTE)
        assert it.pool.witness.starts == []
        it.sensors.owners_load = 0.2
        assert await it.took(slots.BUSY) <= 2 * LOOK

    tell(story, submit=0)


# --- owners' own policies (RL 4.2)


def test_without_suspension_a_job_leaves_at_once() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.touch()
        assert await it.took(slots.OWNER) <= LOOK
        assert it.pool.queued("head") == 1
        assert it.pool.witness.running == {}

    tell(story, settings={"WANT_SUSPEND": "false"})


def test_a_small_job_is_suspended_and_a_big_one_leaves() -> None:
    async def small(it: Story) -> None:
        await it.begun()
        it.touch()
        await it.took(slots.SUSPENDED, within=LOOK)

    async def big(it: Story) -> None:
        await it.begun()
        it.touch()
        await it.took(slots.OWNER, within=LOOK)

    rule = {"WANT_SUSPEND": "TARGET.ImageSize < 100000"}
    tell(small, settings=rule, ad={"ImageSize": 5000})
    tell(big, settings=rule, ad={"ImageSize": 500_000})


@pytest.mark.parametrize("text", ["NoSuchAttribute", '1 + "a"'])
def test_expressions_without_value_keep_work_and_are_told_once(text: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await asyncio.sleep(10 * MINUTE)
        assert it.slot().condition == slots.BUSY

    tell(story, settings={"PREEMPT": text, "SUSPEND": text})
    told = [record for record in caplog.records if "policy has no value" in record.getMessage()]
    assert len(told) == 2


def test_a_start_that_is_an_error_starts_nothing() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(10 * MINUTE)
        assert it.pool.witness.starts == []
        assert it.slot().condition == slots.OWNER

    tell(story, settings={"START": '1 + "a"'})


def test_times_can_be_set_one_by_one() -> None:
    async def story(it: Story) -> None:
        it.touch()
        await it.took(slots.OWNER, within=LOOK)
        await it.pool.submit("head")
        took = await it.took(slots.BUSY)
        assert 5 * MINUTE - LOOK < took < 5 * MINUTE + 2 * LOOK

    tell(story, submit=0, settings={"StartIdleTime": "5 * $(MINUTE)"})


def test_a_job_may_retire_and_none_follows_it() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.sensors.facts["Wanted"] = True
        await it.took(slots.RETIRING, within=LOOK)
        await it.took(slots.OWNER)
        assert len(it.pool.witness.starts) == 1
        assert it.pool.queued("head") == 1
        (ad,) = await it.pool.ended("head")
        assert ad["ExitCode"] == 0
        await asyncio.sleep(10 * MINUTE)
        assert len(it.pool.witness.starts) == 1

    rules = {"PREEMPT": "Wanted =?= true", "START": "Wanted =!= true", "MAX_JOB_RETIREMENT": "1 h"}
    tell(story, settings=rules, behave=Behaviour(1000.0), submit=2)


def test_a_retirement_has_an_end() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.sensors.facts["Wanted"] = True
        await it.took(slots.RETIRING, within=LOOK)
        await it.took(slots.OWNER)
        (_, _, began), (_, _, over) = it.pool.witness.starts[0], it.pool.witness.ends[0]
        assert 60 * MINUTE - 1 <= over - began < 60 * MINUTE + 2 * LOOK
        assert it.pool.queued("head") == 1

    rules = {"PREEMPT": "Wanted =?= true", "START": "Wanted =!= true", "MAX_JOB_RETIREMENT": "1 h"}
    tell(story, settings=rules)


def test_time_in_suspension_is_no_part_of_a_retirement() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.sensors.facts["Paused"] = True
        await it.took(slots.SUSPENDED, within=LOOK)
        await asyncio.sleep(30 * MINUTE)
        it.sensors.facts["Paused"] = False
        it.sensors.facts["Wanted"] = True
        await it.took(slots.BUSY, within=LOOK)
        await it.took(slots.RETIRING, within=2 * LOOK)
        await it.took(slots.OWNER)
        (_, _, began), (_, _, over) = it.pool.witness.starts[0], it.pool.witness.ends[0]
        assert 90 * MINUTE - 1 <= over - began < 90 * MINUTE + 6 * LOOK

    rules = {
        "PREEMPT": 'Activity == "Busy" && Wanted =?= true',
        "START": "Wanted =!= true",
        "MAX_JOB_RETIREMENT": "1 h",
        "SUSPEND": "Paused =?= true",
        "CONTINUE": "Paused =!= true",
    }
    tell(story, settings=rules)


# --- claims


def test_an_owner_between_two_jobs_ends_the_claim() -> None:
    """Jobs of a minute, one after the other on one claim; the owner comes back during one that may end in peace."""

    async def story(it: Story) -> None:
        await it.begun()
        it.sensors.facts["Away"] = False
        await it.took(slots.OWNER)
        started = len(it.pool.witness.starts)
        assert started < 20
        assert not it.pool.role("m1", "startd").claims
        await asyncio.sleep(5 * MINUTE)
        assert len(it.pool.witness.starts) == started
        it.sensors.facts["Away"] = True
        await it.pool.run_until(lambda: it.pool.queued("head") == 0, within=3600)
        assert len(it.pool.witness.starts) == 20

    rules = {"START": "Away =!= false", "SUSPEND": "false"}
    tell(story, settings=rules, behave=Behaviour(60.0), submit=20)


def test_a_start_that_asks_for_something_lets_only_that_in() -> None:
    async def story(it: Story) -> None:
        nice = await it.pool.submit("head", ad={"Nice": True})
        other = await it.pool.submit("head", ad={"Nice": False})
        await it.pool.run_until(lambda: it.pool.queued("head") == 1, within=3600)
        await asyncio.sleep(10 * MINUTE)
        assert [job for job, _, _ in it.pool.witness.starts] == [f"{nice}.0"]
        assert next(iter(it.pool.role("head", "schedd").queue.jobs())).id[0] == other

    tell(story, settings={"START": "TARGET.Nice =?= true"}, behave=Behaviour(60.0), submit=0)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("PREEMPT", "Nothing > 1", "PREEMPT: undefined: no attribute Nothing"),
        ("SUSPEND", '1 + "a"', "SUSPEND: error"),
        ("RANK", "TARGET.Worth", "RANK: undefined: no attribute TARGET.Worth"),
        ("SLOT_WEIGHT", '"heavy"', "SLOT_WEIGHT: 'heavy'"),
    ],
)
def test_an_expression_without_value_is_told_in_the_slots_ad(name: str, text: str, said: str) -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await asyncio.sleep(10 * MINUTE)
        assert it.slot().condition == slots.BUSY
        ad, _ = told(it.pool, "slot1@m1")
        assert ad["PolicyTrouble"] == said
        assert (ad["CurrentRank"], ad["SlotWeight"]) == (0.0, ["Cpus"])

    tell(story, settings={name: text})


def test_what_was_wrong_with_a_policy_is_told_until_it_is_mended() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await asyncio.sleep(MINUTE)
        assert told(it.pool, "slot1@m1")[0]["PolicyTrouble"] == "PREEMPT: undefined: no attribute Wanted"
        it.sensors.facts["Wanted"] = 0
        await asyncio.sleep(MINUTE)
        assert "PolicyTrouble" not in told(it.pool, "slot1@m1")[0]

    tell(story, settings={"PREEMPT": "Wanted > 1"})


def test_a_start_that_names_what_nobody_has_is_told() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        ad, _ = told(it.pool, "slot1@m1")
        assert ad["PolicyTrouble"] == "START: undefined without a job: no attribute KeybordIdle"
        assert it.pool.witness.starts == []

    tell(story, settings={"START": "KeybordIdle > 900"})


def test_the_schedd_is_told_when_the_owner_ends_an_idle_claim() -> None:
    async def story(it: Story) -> None:
        schedd = it.pool.role("head", "schedd")
        schedd.claim_settings.linger = 100.0
        await it.begun()
        await it.took(slots.CLAIMED_IDLE)
        assert schedd.placement.claims
        it.touch()
        await it.took(slots.OWNER, within=LOOK)
        await it.pool.run_until(lambda: not schedd.placement.claims, within=0.5)

    tell(story, settings={"SUSPEND": "false"}, behave=Behaviour(10.0))


# --- startd.vacate


async def vacate(it: Story, **params: Any) -> Any:
    link = await it.pool.network.user("root", "m1", administer=True)
    try:
        return await link.call("startd.vacate", params)
    finally:
        await link.close()


def test_an_administrator_takes_the_machine_back() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        assert await vacate(it, slot="slot1@m1", graceful=True) == {"slots": ["slot1"]}
        await it.pool.run_until(lambda: len(it.pool.witness.ends) == 1, within=LOOK)
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 2, within=120)
        assert it.pool.queued("head") == 1

    tell(story)


def test_vacating_twice_hurries_and_never_goes_back() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        await vacate(it, graceful=True)
        assert it.slot().condition == slots.VACATING
        await vacate(it, graceful=True)
        assert it.slot().condition == slots.VACATING
        since = it.slot().since_activity
        await asyncio.sleep(MINUTE)
        assert it.slot().since_activity == since
        await vacate(it, graceful=False)
        await it.pool.run_until(lambda: not it.pool.witness.running, within=1)

    tell(story, behave=Behaviour(100_000.0, stubborn=True))


def test_nobody_else_may_and_a_slot_must_exist() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        link = await it.pool.network.user("mallory", "m1")
        with pytest.raises(PoolError, match="may not vacate this machine"):
            await link.call("startd.vacate", {})
        await link.close()
        with pytest.raises(PoolError, match="this machine has no slot slot9"):
            await vacate(it, slot="slot9")
        assert it.slot().condition == slots.BUSY

    tell(story)


# --- a node that was away


def test_a_job_that_was_suspended_when_the_node_died_goes_on() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.touch()
        await it.took(slots.SUSPENDED, within=LOOK)
        await asyncio.sleep(1.0)
        await it.pool.kill("m1")
        it.sensors.touched = None
        await it.pool.restart("m1")
        await asyncio.sleep(0.1)
        assert not it.keeper().suspended
        assert it.slot().condition == slots.BUSY
        await it.pool.run_until(lambda: it.status() == 2, within=120)

    tell(story, settings={"CLAIM_LEASE": "600"})


def test_a_clock_that_is_set_does_not_shorten_a_suspension() -> None:
    async def story(it: Story) -> None:
        await it.begun()
        it.sensors.owners_load = 2.0
        await it.took(slots.SUSPENDED, within=LOOK)
        it.pool.wall_shift = 3600.0
        await asyncio.sleep(9 * MINUTE)
        assert it.slot().condition == slots.SUSPENDED
        it.pool.wall_shift = -36000.0
        await asyncio.sleep(MINUTE + 2 * LOOK)
        assert it.slot().condition == slots.OWNER

    tell(story)


def test_a_job_that_is_still_being_started_is_suspended_when_it_is() -> None:
    """The owner comes while the keeper makes the job's process."""

    async def story(it: Story) -> None:
        keepers = it.pool.role("m1", "startd").keepers
        start = keepers.start

        async def slowly(spec: Any, **given: Any) -> FakeKeeper:
            await asyncio.sleep(30.0)
            made: FakeKeeper = await start(spec, **given)
            return made

        keepers.start = slowly
        await it.pool.submit("head")
        await it.took(slots.BUSY)
        it.sensors.owners_load = 3.0
        await it.took(slots.SUSPENDED, within=LOOK)
        await it.pool.run_until(lambda: bool(it.node.machine.keepers), within=60)
        await asyncio.sleep(0.1)
        assert it.keeper().suspended

    tell(story, submit=0)


def test_a_job_whose_files_are_still_on_their_way_leaves_as_one_that_was_evicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is no failed start: five of those would hold it."""
    fetch = ClaimLink.fetch

    async def slowly(link: ClaimLink, start: Activation, executable_wanted: bool) -> Any:
        await asyncio.sleep(30.0)
        return await fetch(link, start, executable_wanted)

    monkeypatch.setattr(ClaimLink, "fetch", slowly)

    async def story(it: Story) -> None:
        await it.pool.submit("head", ad={"ShouldTransferFiles": "YES", "TransferExecutable": False})
        for _ in range(6):
            await it.took(slots.BUSY)
            it.sensors.owners_load = 3.0
            await it.took(slots.OWNER, within=60)
            it.sensors.owners_load = 0.0
        (job,) = it.pool.role("head", "schedd").queue.jobs()
        assert (int(job.status), job.get("VacateReason")) == (1, "the machine's owner is back")
        assert not it.pool.witness.starts

    tell(story, submit=0, settings={"WANT_SUSPEND": "false"})
