"""Failures of what the dedicated scheduler runs: WR 5 as a table (docs/dedicated.md), a test for each row."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pool.policy.why.findings import Running
from pool.roles.schedd.parallel.gangs import MEETING_PATIENCE
from pool.testing.faults import TrapPhase
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play, serial
from tests.roles.support import asking

LEASE = 60.0


def test_w34_the_submit_machine_is_away_for_less_than_the_lease(tmp_path: Path) -> None:
    """The gang runs on, and its claims serve the next job afterwards."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 100.0
        await at.pool.submit("head", count=2, ad=parallel(2))
        await at.runs("1.0")
        await pause(5.0)
        await at.pool.kill("head")
        await pause(10.0)
        await at.pool.restart("head")
        await at.done(2, 600.0)
        assert len(at.pool.witness.starts) == 4
        assert {machine for _, machine, _ in at.pool.witness.starts} == {"m0", "m1"}

    play(story, directory=tmp_path)


def test_w34_the_submit_machine_is_away_for_longer(tmp_path: Path) -> None:
    """All parts end, and the job runs again by itself."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 200.0
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("1.0")
        await at.pool.kill("head")
        await pause(LEASE + 10.0)
        assert not at.running()
        await at.pool.restart("head")
        (ad,) = await at.done(1, 900.0)
        assert ad["NumJobStarts"] == 2

    play(story, directory=tmp_path)


def test_w36_a_machine_dies_and_the_others_take_the_next_job_at_once() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 1000.0
        await at.pool.submit("head", ad=parallel(3))
        await at.runs("1.0")
        at.seconds["2.0"] = 10.0
        await at.pool.submit("head", ad=parallel(2))
        await pause(2.0)
        claims = {slot: claim.id for slot, claim in at.held.items()}
        await at.pool.crash("m2")
        await at.runs("2.0", LEASE + 10.0)
        assert "1.0" not in at.running()
        assert {slot: claim.id for slot, claim in at.held.items() if slot != "slot1@m2"} == {
            slot: claim for slot, claim in claims.items() if slot != "slot1@m2"
        }
        assert at.pool.queued("head") >= 1, "the job is idle again, not lost"
        at.seconds["1.0"] = 10.0
        await at.pool.restart("m2")
        await at.done(2, 600.0)

    play(story, machines=3)


def test_w36_no_part_runs_on_when_another_has_lost_its_machine() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 1000.0
        await at.pool.submit("head", ad=parallel(3))
        await at.runs("1.0")
        await at.pool.crash("m2")
        await at.pool.run_until(lambda: not at.running(), LEASE + 5.0)
        assert at.schedd.queue.find(1, 0).status == 1 or at.schedd.queue.find(1, 0).status == 2
        await at.pool.run_until(lambda: at.schedd.queue.find(1, 0).status == 1, LEASE)
        at.pool.assert_sound()

    play(story, machines=3)


def test_w38_the_network_to_a_machine_is_cut_for_less_than_the_lease() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 200.0
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("1.0")
        at.pool.network.cut("head", "m1")
        await pause(20.0)
        assert at.running() == {"1.0"}
        at.pool.network.restore_links("head", "m1")
        (ad,) = await at.done(1, 600.0)
        assert ad["NumJobStarts"] == 1

    play(story)


@pytest.mark.parametrize("method", ["startd.claim", "startd.activate", "schedd.ended"])
def test_w39_the_scheduler_dies_at_each_step_of_a_start(method: str, tmp_path: Path) -> None:
    async def story(at: DedicatedStory) -> None:
        for phase in TrapPhase:
            at.pool.trap(method, phase, "head")
            number = await at.pool.submit("head", ad=parallel(2))
            for _ in range(200):
                await pause(2.0)
                if not at.pool.nodes["head"].running:
                    await pause(3.0)
                    await at.pool.restart("head")
                elif at.pool.queued("head") == 0:
                    break
            assert at.pool.queued("head") == 0, number
        at.pool.assert_sound()

    play(story, directory=tmp_path)


def test_w40_a_claim_that_is_lost_before_the_job_is_whole_is_gathered_anew() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 1000.0}
        await at.claim_all(2)
        startd = at.pool.role("m1", "startd")
        await startd.evict(startd.slots["slot1"], True)
        await pause(1.0)
        assert len(at.held) == 1
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("2.0", 60.0)
        assert len(at.held) == 2

    play(story)


def test_w41_a_slow_machine_is_named_and_given_up_in_the_end() -> None:
    """It renews its leases, but its part is not ready for hours. The other machine's part waits, and not for ever."""

    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 20.0
        at.pool.run_at("schedd.wait_for_parts", TrapPhase.BEFORE, lambda: asyncio.sleep(9 * 3600.0), count=2)
        await at.pool.submit("head", ad=parallel(2))
        await pause(60.0)
        assert not at.running()
        async with asking(at.pool) as user:
            explained = await user.why("1.0")
        (running,) = [one for one in explained.findings if isinstance(one, Running)]
        assert len(running.late) == 1
        assert f"its parts on {running.late[0]} are not ready yet, and the others wait for them" in str(explained)
        (slow,) = running.late
        await at.pool.run_until(lambda: bool(at.running()), MEETING_PATIENCE + 120.0)
        (ad,) = await at.done(1, 600.0)
        assert ad["NumJobStarts"] == 2
        assert slow in {"slot1@m0", "slot1@m1"}

    play(story)


def test_w42_a_drained_machine_is_left_and_the_gang_goes_on_elsewhere() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 300.0
        await at.pool.submit("head", ad=parallel(2))
        await at.runs("1.0")
        await pause(20.0)
        drained = at.pool.witness.running["1.0.1"]
        startd = at.pool.role(drained, "startd")
        startd.given.state.mkdir(parents=True, exist_ok=True)
        await startd.draining.begin("vacate", "new disks")
        await at.pool.run_until(lambda: len(at.started("1.0")) == 4, 200.0)
        assert drained not in at.pool.witness.running.values()
        (ad,) = await at.done(1, 900.0)
        assert ad["NumJobStarts"] == 2

    play(story, machines=3, stateful=True)


def test_a_head_whose_machines_keep_dying_is_never_lost() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 100.0
        await at.pool.submit("head", ad=parallel(2))
        for _ in range(4):
            await at.pool.run_until(lambda: {"1.0.0", "1.0.1"} <= at.pool.witness.running.keys(), 300.0)
            victim = at.pool.witness.running["1.0.0"]
            await at.pool.crash(victim)
            await pause(3.0)
            await at.pool.restart(victim)
        await at.done(1, 900.0)

    play(story, machines=3)


def test_a_flood_of_one_second_gangs_leaves_the_other_user_a_turn() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds["*"] = 1.0
        await at.pool.submit("head", count=200, owner="flood", ad=serial())
        await pause(5.0)
        await at.pool.submit("head", owner="bob", ad=parallel(2))
        await at.runs("2.0", 20.0)
        await at.done(201, 2000.0)

    play(story)
