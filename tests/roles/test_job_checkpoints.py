"""Checkpoints through the four real roles, of jobs that do not exist: when, what the owner says, what it costs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pool.classad import ClassAd
from pool.errors import PoolError
from pool.jobs.notice import notice
from pool.policy import slots
from pool.roles.schedd.core.notes import Notes
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

HOUR, MINUTE, LOOK = 3600.0, 60.0, 6.0
#: A job of two hours whose checkpoint takes a second.
SAVABLE = Behaviour(2 * HOUR, saving=1.0, rss=1000)
#: No periodic checkpoints, so that a story has only those that it is about.
RARE = {**QUICK, "CHECKPOINT_FIRST": "0"}


class Story:
    """A machine m1 with one job, and another one."""

    def __init__(self, pool: SimPool) -> None:
        self.pool = pool

    @property
    def slot(self) -> Any:
        return self.pool.role("m1", "startd").slots["slot1"]

    @property
    def job(self) -> Any:
        (job,) = self.pool.role("head", "schedd").queue.jobs()
        return job

    def load(self, load: float) -> None:
        self.pool.nodes["m1"].sensors.owners_load = load

    async def begun(self) -> None:
        await self.pool.run_until(lambda: self.slot.condition == slots.BUSY, within=100)
        await asyncio.sleep(1.0)

    async def left(self, within: float = 100.0) -> float:
        """Seconds until the job has left m1."""
        before = asyncio.get_running_loop().time()
        await self.pool.run_until(lambda: self.slot.claim is None, within=within)
        return asyncio.get_running_loop().time() - before

    async def ad(self) -> dict[str, Any]:
        await self.pool.run_until(lambda: not self.pool.queued("head"), within=10 * HOUR)
        (ad,) = await self.pool.ended("head")
        return ad

    def seconds_run(self) -> float:
        """How long its program ran, all its starts together."""
        starts, ends = self.pool.witness.starts, self.pool.witness.ends
        return sum(end for _, _, end in ends) - sum(start for _, _, start in starts)


def play(
    story: Callable[[Story], Coroutine[Any, Any, None]],
    *,
    behave: Behaviour = SAVABLE,
    ad: dict[str, Any] | None = None,
    **settings: str,
) -> None:
    async def work() -> None:
        async with SimPool(5, settings={**RARE, **settings}, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: behave)
            await pool.submit("head", ad=ad)
            it = Story(pool)
            await it.begun()
            await story(it)
            pool.assert_sound()

    run_virtual(work())


def wanted_back(
    story: Callable[[Story], Coroutine[Any, Any, None]], *, behave: Behaviour = SAVABLE, **settings: str
) -> None:
    """On machines whose owners want them back as soon as they do something themselves."""
    play(story, behave=behave, ad=None, PREEMPT="LoadAvg > 2", START="LoadAvg < 1", **settings)


def test_a_job_that_leaves_is_saved_and_goes_on_from_there() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        it.load(3.0)
        assert await it.left() < LOOK + 2.0
        assert (it.job.get("NumCkpts"), it.job.status) == (1, 1)
        it.load(0.0)
        ad = await it.ad()
        assert ad["NumJobStarts"] == 2
        assert 2 * HOUR <= it.seconds_run() < 2 * HOUR + 10.0

    wanted_back(story)


def test_a_complete_run_that_is_to_run_again_begins_anew() -> None:
    """A checkpoint of the run that has ended by itself is of no use to the next one."""

    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.pool.act("head", "alice", action="vacate", ids=[[1, 0]])
        images = it.pool.role("head", "schedd").images
        await it.pool.run_until(lambda: images.newest(it.job) == 1, within=HOUR)
        await it.pool.run_until(lambda: it.job.get("NumJobCompletions") == 1, within=3 * HOUR)
        # A schedd that is restarted in the second run finds none, either.
        assert (images.newest(it.job), it.job.stored_note("_complete")) == (None, 1)
        ad = await it.ad()
        assert (ad["NumCkpts"], ad["NumJobCompletions"], ad["NumJobStarts"]) == (1, 2, 3)
        assert 4 * HOUR <= it.seconds_run() < 4 * HOUR + 10.0

    play(story, ad={"OnExitRemove": ["NumJobCompletions >= 2"]})


@pytest.mark.parametrize("action", ["vacate", "hold"])
def test_what_a_user_takes_off_is_saved_from_its_first_second(action: str) -> None:
    async def story(it: Story) -> None:
        await it.pool.act("head", "alice", action=action, ids=[[1, 0]])
        await it.pool.run_until(lambda: it.job.get("NumCkpts") == 1, within=10.0)

    play(story)


def test_what_is_not_worth_the_owners_time_is_not_saved() -> None:
    async def story(it: Story) -> None:
        it.load(3.0)
        await it.left()
        assert it.job.get("NumCkpts") is None

    wanted_back(story)


@pytest.mark.parametrize(
    ("wish", "saved"),
    [
        ("false", False),
        ("TARGET.ImageSize < 100", False),
        ("TARGET.ImageSize > 100", True),
        ("$(LastCkpt) > 10 * 60", True),
        ("$(LastCkpt) > 2 * 60 * 60", False),
        ("$(ActivationTimer) > 10 * 60 && JobCanCheckpoint", True),
        ("TARGET.NoSuchThing", True),  # a fault, and work is kept
    ],
)
def test_the_owner_says_whether_there_is_a_last_checkpoint(wish: str, saved: bool) -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        it.load(3.0)
        await it.left()
        assert bool(it.job.get("NumCkpts")) is saved

    wanted_back(story, WANT_CHECKPOINT=wish)


def test_the_last_checkpoint_has_its_time_and_no_more() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        it.load(3.0)
        took = await it.left(HOUR)
        assert 5 * MINUTE < took < 5 * MINUTE + 4 * LOOK
        assert not it.job.get("NumCkpts")

    wanted_back(story, behave=replace(SAVABLE, saving=HOUR), MachineMaxVacateTime="5 min")


def test_its_time_is_over_whatever_the_owners_kill_says() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        it.load(3.0)
        took = await it.left(HOUR)
        assert 5 * MINUTE < took < 5 * MINUTE + 4 * LOOK

    wanted_back(story, behave=replace(SAVABLE, saving=HOUR), KILL="false", MAX_VACATE="5 min")


def test_its_time_is_its_own_where_a_checkpoint_beside_its_run_comes_home_meanwhile() -> None:
    """The last one begins after that; the time of the next periodic one is no end of anything."""

    async def story(it: Story) -> None:
        await asyncio.sleep(105.0)
        it.load(3.0)
        await asyncio.sleep(LOOK)
        (keeper,) = it.pool.nodes["m1"].machine.keepers.values()
        keeper._behaviour = replace(SAVABLE, saving=HOUR)
        took = await it.left(HOUR)
        assert 5 * MINUTE - LOOK < took < 5 * MINUTE + 4 * LOOK

    slow, often = replace(SAVABLE, saving=20.0), "100"
    wanted_back(story, behave=slow, KILL="false", MAX_VACATE="5 min", CHECKPOINT_FIRST=often, CHECKPOINT_MOST=often)


def test_the_last_one_is_tried_again_where_it_came_to_nothing_for_what_passes() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        it.load(3.0)
        await it.left()
        assert it.job.get("NumCkpts") == 1

    wanted_back(story, behave=replace(SAVABLE, failing=2))


def test_what_does_not_pass_ends_with_the_third_try() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        it.load(3.0)
        assert await it.left() < LOOK + 10.0
        assert not it.job.get("NumCkpts")

    wanted_back(story, behave=replace(SAVABLE, failing=1000))


def test_a_periodic_one_that_came_to_nothing_for_what_passes_is_tried_again_soon() -> None:
    async def story(it: Story) -> None:
        begun = asyncio.get_running_loop().time()

        async def is_at(minutes: float, made: int | None) -> None:
            await asyncio.sleep(begun + minutes * MINUTE - asyncio.get_running_loop().time())
            assert it.job.get("NumCkpts") == made

        await is_at(32.0, None)  # twice: after 30 and 31
        await is_at(34.0, 1)  # after 33
        await is_at(92.0, 1)
        await is_at(94.0, 2)

    behave = replace(SAVABLE, seconds=3 * HOUR, failing=2)
    play(story, behave=behave, CHECKPOINT_FIRST="30 min", CHECKPOINT_MOST="2 h")


@pytest.mark.parametrize(("refused", "seconds"), [((), 60.0), (("it has a socket",), 1800.0)])
def test_an_owner_may_let_what_cannot_be_saved_wait_for_longer(refused: tuple[str, ...], seconds: float) -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(MINUTE)
        await it.pool.act("head", "alice", action="checkpoint", ids=[[1]])
        it.load(3.0)
        await it.pool.run_until(lambda: it.slot.condition == slots.SUSPENDED, within=LOOK)
        assert seconds < await it.left(HOUR) < seconds + 3 * LOOK

    play(
        story,
        behave=replace(SAVABLE, refused=refused),
        START="LoadAvg < 1",
        SUSPEND="LoadAvg > 2",
        CONTINUE="LoadAvg < 1",
        WANT_SUSPEND="true",
        PREEMPT='Activity == "Suspended" && $(ActivityTimer) > (JobCanCheckpoint ? 60 : 1800)',
    )


def test_a_periodic_checkpoint_is_what_the_next_start_goes_on_from() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(100 * MINUTE)  # one after 30 minutes, the next an hour later
        assert it.job.get("NumCkpts") == 2
        await it.pool.crash("m1")
        await it.pool.restart("m1")
        ad = await it.ad()
        assert ad["NumJobStarts"] == 2
        # Work since then was lost, and no more.
        assert 2 * HOUR + 9 * MINUTE < it.seconds_run() < 2 * HOUR + 11 * MINUTE

    play(story, CHECKPOINT_FIRST="30 min")


def test_a_periodic_checkpoint_does_not_kill_a_job_that_was_just_asked_to_leave() -> None:
    """Both come at the same moment; the papers' alarm has another meaning for a job that leaves."""

    async def story(it: Story) -> None:
        startd = it.pool.role("m1", "startd")
        await asyncio.sleep(30 * MINUTE - 1.5)
        running = it.slot.claim.running
        running.saving._due()
        await startd.evict(it.slot, True)
        await asyncio.sleep(9 * MINUTE)
        assert not it.pool.witness.ends  # it has its grace
        await it.pool.run_until(lambda: bool(it.pool.witness.ends), within=3 * MINUTE)

    play(story, behave=replace(SAVABLE, stubborn=True), ad={"JobCheckpoint": "off"}, CHECKPOINT_FIRST="30 min")


def test_a_checkpoint_of_a_job_that_ends_before_it_is_home_is_none_and_stays_nowhere() -> None:
    async def story(it: Story) -> None:
        startd, schedd = it.pool.role("m1", "startd"), it.pool.role("head", "schedd")
        await asyncio.sleep(2 * HOUR - 10.0)
        startd.share.rate = 1.0
        await startd.share.wait_for_bytes(25)  # of another checkpoint, which has the network for so many seconds
        acted = await it.pool.act("head", "alice", action="checkpoint", ids=[[1]])
        why = "job 1.0 has ended before its checkpoint was on the submit side"
        assert [one["why"] for one in acted["refused"]] == [why]
        assert not (await it.ad()).get("NumCkpts")
        await asyncio.sleep(1.0)
        images, stored = startd.images("head"), schedd.placement.images.store
        assert (stored.jobs(), stored.used, images.jobs(), images.used) == ([], 0, [], 0)

    play(story)


# --- rm --checkpoint


def test_a_removed_jobs_checkpoint_is_kept_and_another_job_begins_with_it() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.pool.act("head", "alice", action="remove", ids=[[1]], checkpoint=True)
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=MINUTE)
        (ad,) = await it.pool.ended("head")
        assert (ad["JobStatus"], ad["CheckpointKept"], ad["NumCkpts"]) == (3, "1.0", 1)
        await it.pool.submit("head", ad={"StartFromCheckpoint": "1.0"})
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=2 * HOUR)
        assert 2 * HOUR <= it.seconds_run() < 2 * HOUR + 10.0
        images = it.pool.role("head", "schedd").placement.images
        await asyncio.sleep(10.0)
        assert images.store.jobs() == ["kept-1.0"]
        await asyncio.sleep(3 * HOUR)
        assert images.store.jobs() == []

    play(story, KEPT_CHECKPOINTS="3 h")


def test_an_idle_jobs_checkpoint_is_kept_too() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        it.load(3.0)
        await it.left()
        await it.pool.act("head", "alice", action="remove", ids=[[1]], checkpoint=True)
        it.load(0.0)
        await it.pool.submit("head", ad={"StartFromCheckpoint": "1.0"})
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=2 * HOUR)
        assert 2 * HOUR <= it.seconds_run() < 2 * HOUR + 10.0

    wanted_back(story)


def test_a_job_that_is_removed_without_more_is_not_saved_for_nothing() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.pool.act("head", "alice", action="remove", ids=[[1]])
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=1.0)
        (ad,) = await it.pool.ended("head")
        assert not ad.get("NumCkpts")
        assert "CheckpointKept" not in ad

    play(story, behave=replace(SAVABLE, saving=MINUTE))


def test_nobody_begins_with_what_is_not_his_or_not_there() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.pool.act("head", "alice", action="remove", ids=[[1]], checkpoint=True)
        await it.pool.run_until(lambda: not it.pool.queued("head"), within=MINUTE)
        for owner, origin, why in (
            ("bob", "1.0", "job 1.0 was not one of bob's"),
            ("alice", "7.0", "no checkpoint of such a job is kept here"),
            ("alice", "../../etc", "no checkpoint of such a job is kept here"),
        ):
            with pytest.raises(PoolError, match=why):
                await it.pool.submit("head", owner=owner, ad={"StartFromCheckpoint": origin})
        assert not it.pool.queued("head")

    play(story)


# --- before work is lost

SOCKET = "descriptor 5 of process 2 is a TCP connection to 192.0.2.7:5432"


def test_what_cannot_be_saved_is_told_soon_after_the_start() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(12.0)
        assert (it.job.status, it.job.get("CheckpointTrouble")) == (2, SOCKET)
        async with asking(it.pool, "alice") as pool:
            text = str(await pool.why("1.0"))
        assert f"it cannot be checkpointed, and begins anew if it loses its machine: {SOCKET}" in text
        assert it.slot.claim.running.saving.resumable is False
        ad = await it.ad()
        assert f"It could not be checkpointed: {SOCKET}" in notice(ClassAd.from_wire(ad))

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)))


def test_what_a_program_was_refused_for_is_kept_for_its_owner() -> None:
    """Also after a restart, and until a run of it can be saved again; other users hear nothing of it."""

    async def told(it: Story, owner: str) -> Any:
        program = str(it.job.get("Cmd"))
        async with asking(it.pool, owner) as pool:
            return program, await pool.call("schedd.refusals", {"programs": [program, "/else"]})

    async def story(it: Story) -> None:
        await asyncio.sleep(12.0)
        program, found = await told(it, "alice")
        assert found == {program: SOCKET}
        assert (await told(it, "bob"))[1] == {}
        await asyncio.sleep(MINUTE)
        schedd = it.pool.role("head", "schedd")
        again = Notes(schedd.store, schedd.log, schedd.spawn)
        again.restore(schedd.store.load().meta, lambda cluster, digest: None)
        assert again.refusals("alice", [program]) == {program: SOCKET}

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)))


def test_it_is_told_again_when_it_is_so_no_more() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(12.0)
        (keeper,) = it.pool.nodes["m1"].machine.keepers.values()
        keeper.refused = ()
        await asyncio.sleep(31 * MINUTE)
        assert (it.job.get("NumCkpts"), it.job.get("CheckpointTrouble")) == (1, None)

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)), CHECKPOINT_FIRST="30 min")


def test_it_is_looked_at_again_until_it_is_so_no_more() -> None:
    """A job whose connection ends after its checkpoint was due has that soon afterwards, not an hour later."""

    async def story(it: Story) -> None:
        (keeper,) = it.pool.nodes["m1"].machine.keepers.values()
        await asyncio.sleep(31 * MINUTE)
        assert (it.job.get("NumCkpts"), it.job.get("CheckpointTrouble")) == (None, SOCKET)
        keeper.refused = ()
        await asyncio.sleep(3 * MINUTE)
        assert (it.job.get("NumCkpts"), it.job.get("CheckpointTrouble")) == (1, None)
        assert it.slot.claim.running.saving.resumable

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)), CHECKPOINT_FIRST="30 min")


def test_a_start_elsewhere_takes_back_what_was_said_of_the_one_before() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(12.0)
        it.pool.nodes["m1"].machine.behave = lambda spec: SAVABLE
        await it.pool.act("head", "alice", action="vacate", ids=[[1]])
        await it.pool.run_until(lambda: len(it.pool.witness.starts) == 2, within=MINUTE)
        assert it.job.get("CheckpointTrouble") == SOCKET
        await asyncio.sleep(12.0)
        assert it.job.get("CheckpointTrouble") is None

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)))


def test_whoever_requires_checkpoints_is_held_before_work_is_lost() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(15.0)
        assert (it.job.status, it.job.get("HoldReasonCode")) == (5, 36)
        assert it.job.get("HoldReason") == f"it cannot be checkpointed: {SOCKET}"
        assert it.seconds_run() < 20.0

    play(story, behave=replace(SAVABLE, refused=(SOCKET,)), ad={"JobCheckpoint": "required"})


# --- accounts


def test_work_done_and_lost_and_what_checkpoints_cost() -> None:
    """Saved after 30 minutes, and lost with its machine 20 minutes later; then run to the end."""

    async def story(it: Story) -> None:
        await asyncio.sleep(50 * MINUTE)
        assert it.job.get("CheckpointSeconds") == pytest.approx(1.0, abs=0.2)
        await it.pool.crash("m1")
        await it.pool.restart("m1")
        ad = await it.ad()
        assert ad["WorkLost"] == pytest.approx(20 * MINUTE, abs=40.0)  # as far as the lease can tell
        assert ad["CommittedTime"] == pytest.approx(2 * HOUR, abs=5.0)
        assert ad["NumCkpts"] == 2
        assert ad["CheckpointSeconds"] == pytest.approx(2.0, abs=0.4)
        assert ad["CheckpointStandstill"] == pytest.approx(0.02)
        assert ad["CheckpointBytes"] > 0
        async with asking(it.pool, "alice") as pool:
            (row,) = await pool.summary()
        assert (row["work"], row["lost"]) == (ad["CommittedTime"], ad["WorkLost"])
        assert row["checkpoint_seconds"] == ad["CheckpointSeconds"]
        text = notice(ClassAd.from_wire(ad))
        assert "Work Done:          0 02:00:0" in text
        assert "Checkpoints:        2: " in text

    play(story, CHECKPOINT_FIRST="30 min")


def test_a_last_checkpoint_loses_nothing_and_suspension_is_no_work() -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        it.load(3.0)
        await it.pool.run_until(lambda: it.slot.condition == slots.SUSPENDED, within=LOOK)
        await it.left(HOUR)
        it.load(0.0)
        ad = await it.ad()
        assert ad.get("WorkLost", 0.0) < 3.0
        assert ad["CommittedTime"] == pytest.approx(2 * HOUR, abs=5.0)
        assert ad["CumulativeSuspensionTime"] == pytest.approx(10 * MINUTE, abs=3 * LOOK)

    play(
        story,
        START="LoadAvg < 1",
        SUSPEND="LoadAvg > 2",
        CONTINUE="LoadAvg < 1",
        WANT_SUSPEND="true",
        PREEMPT='Activity == "Suspended" && $(ActivityTimer) > 600',
    )


@pytest.mark.parametrize(("action", "lost"), [("vacate", HOUR), ("remove", 0.0)])
def test_what_is_taken_away_unsaved_is_lost_and_what_its_user_gives_up_is_not(action: str, lost: float) -> None:
    async def story(it: Story) -> None:
        await asyncio.sleep(HOUR)
        await it.pool.act("head", "alice", action=action, ids=[[1]])
        ad = await it.ad()
        assert ad.get("WorkLost", 0.0) == pytest.approx(lost, abs=5.0)

    play(story, ad={"JobCheckpoint": "off"})
