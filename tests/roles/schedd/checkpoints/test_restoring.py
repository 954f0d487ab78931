"""Checkpoints that cannot be put back, through the four real roles: none costs more than it must (C7)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from pool.jobs.events import EventKind
from pool.policy.queue import QueuedCluster, QueuedJob
from pool.roles.schedd.core.job_ends import After, end_steps, without_machine
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

HOUR = 3600.0
SAVABLE = Behaviour(2 * HOUR, saving=1.0, rss=1000)
BROKEN = replace(SAVABLE, broken=True)
SETTINGS = {**QUICK, "CHECKPOINT_FIRST": "0"}


def always(behaviour: Behaviour) -> Callable[[Any], Behaviour]:
    return lambda spec: behaviour


def play(story: Callable[[SimPool], Coroutine[Any, Any, None]], lease: str = "600", **machines: Behaviour) -> None:
    """A pool of machines, and one job on it."""

    async def work() -> None:
        async with SimPool(7, settings={**SETTINGS, "CLAIM_LEASE": lease}, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for name, behaviour in machines.items():
                await pool.add(name, "startd", behave=always(behaviour))
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=200)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def the_job(pool: SimPool) -> Any:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return job


async def vacate(pool: SimPool) -> None:
    """Have the job leave its machine with a last checkpoint; it is somewhere else or waits when this returns."""
    (machine,) = pool.witness.running.values()
    startd = pool.role(machine, "startd")
    ends = len(pool.witness.ends)
    await startd.evict(startd.slots["slot1"], True)
    await pool.run_until(lambda: len(pool.witness.ends) > ends, within=100)


async def done(pool: SimPool) -> dict[str, Any]:
    await pool.run_until(lambda: not pool.queued("head"), within=10 * HOUR)
    (ad,) = await pool.ended("head")
    return ad


def ran(pool: SimPool) -> float:
    """Seconds for which its program ran, all its starts together."""
    return sum(end for *_, end in pool.witness.ends) - sum(start for *_, start in pool.witness.starts)


def test_a_machine_that_cannot_put_it_back_costs_time_and_no_work() -> None:
    async def story(pool: SimPool) -> None:
        await asyncio.sleep(HOUR)
        await vacate(pool)
        ad = await done(pool)
        machines = [machine for _, machine, _ in pool.witness.starts]
        assert set(machines[1:]) == {"good"}
        assert ran(pool) < 2 * HOUR + 10
        assert ad["NumCkpts"] == 1
        assert ad["NumRestarts"] == ad["NumJobStarts"] - 1

    play(story, good=SAVABLE, bad=BROKEN)


def test_after_three_failures_others_have_a_minute_for_it() -> None:
    async def story(pool: SimPool) -> None:
        await asyncio.sleep(HOUR)
        await vacate(pool)
        await pool.run_until(lambda: len(the_job(pool).stored_note("_tries", ())) == 3, within=HOUR)
        assert 'TARGET.Machine =!= "bad" || time() >= ' in the_job(pool).get("Requirements")[0]
        await pool.add("good", "startd", behave=lambda spec: SAVABLE)
        ad = await done(pool)
        assert [machine for _, machine, _ in pool.witness.starts] == ["bad", "good"]
        assert not ad.get("WorkLost")

    play(story, bad=BROKEN)


def test_a_checkpoint_that_nobody_can_restore_does_not_cost_the_job_every_machine() -> None:
    """It begins anew within minutes, on the only machine there is, and the log says so."""

    async def story(pool: SimPool) -> None:
        await asyncio.sleep(HOUR)
        await vacate(pool)
        await pool.run_until(lambda: len(pool.witness.starts) == 2, within=5 * 60)
        ad = await done(pool)
        assert ad["WorkLost"] == pytest.approx(HOUR, abs=10)
        assert ran(pool) > 3 * HOUR - 10

    play(story, bad=BROKEN)


def test_on_the_only_machine_there_is_it_begins_anew_in_the_end() -> None:
    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, stateful=True) as pool:
            await pool.add("head", "collector,negotiator,schedd,startd", behave=lambda spec: BROKEN)
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=200)
            await asyncio.sleep(HOUR)
            await vacate(pool)
            ad = await done(pool)
            assert ad["WorkLost"] == pytest.approx(HOUR, abs=10)
            assert ad["CommittedTime"] == pytest.approx(2 * HOUR, abs=10)
            assert len(pool.witness.starts) == 2
            assert ran(pool) > 3 * HOUR - 10
            pool.assert_sound()

    run_virtual(work())


# -- one end at a time ---------------------------------------------------------------------------------------

FAILED = {"cause": "start", "where": "checkpoint", "error": "the disk is full", "retry": True, "checkpoint": 4}


def job_with(**state: Any) -> QueuedJob:
    return QueuedJob(QueuedCluster(1, "alice", {"Owner": "alice"}), 0, 2, None, state)


def after(following: int | None) -> After:
    return After(lambda tries: following, "head")


@pytest.mark.parametrize(
    ("following", "said"),
    [
        (4, "the disk is full"),
        (3, "the disk is full; it goes on from checkpoint 3"),
        (None, "the disk is full; it begins anew"),
    ],
)
def test_the_log_says_what_it_falls_back_to(following: int | None, said: str) -> None:
    (step,) = end_steps(job_with(), "slot1@one", FAILED, 0.0, after(following))
    assert step.event is EventKind.SHADOW_EXCEPTION
    assert step.data["why"] == f"it could not go on from checkpoint 4: {said}"
    assert step.changes["_tries"] == [["one", 4]]
    assert "Requirements" not in step.changes


def test_after_the_third_failure_a_machine_is_left_alone_for_a_minute() -> None:
    tries = [["one", 3], ["two", 3], ["one", 4]]
    (step,) = end_steps(job_with(_tries=tries), "slot1@one", FAILED, 0.0, after(3))
    assert step.changes["Requirements"] == ['(TARGET.Machine =!= "one" || time() >= 60)']
    assert step.data["why"].endswith("; it is not sent to one for a minute")
    (step,) = end_steps(job_with(_tries=[["head", 4]] * 2), "slot1@head", FAILED, 0.0, after(3))
    assert "Requirements" not in step.changes


def test_a_machine_that_can_never_put_it_back_is_no_fault_of_the_checkpoint() -> None:
    (step,) = end_steps(job_with(), "slot1@one", {**FAILED, "unfit": True}, 0.0, after(4))
    assert "_tries" not in step.changes
    assert step.changes["Requirements"] == ['TARGET.Machine =!= "one"']


def test_requirements_keep_what_they_said() -> None:
    other = 'TARGET.Machine =!= "one"'
    assert without_machine(None, "one") == without_machine(True, "one") == [other]
    assert without_machine(False, "one") == [f"(false) && {other}"]
    assert without_machine(["A || B"], "one") == [f"(A || B) && {other}"]
    assert without_machine([f"(A) && {other}"], "one") == [f"(A) && {other}"]
    assert without_machine(None, 'o"ne\\') == ['TARGET.Machine =!= "o\\"ne\\\\"']


def test_a_restore_that_takes_longer_than_the_lease() -> None:
    async def story(pool: SimPool) -> None:
        await asyncio.sleep(HOUR)
        await vacate(pool)
        ad = await done(pool)
        assert (ad["NumJobStarts"], ad["NumRestarts"]) == (2, 1)
        assert ran(pool) < 2 * HOUR + 10

    play(story, lease="20", one=replace(SAVABLE, restoring=200.0))


def test_a_restore_that_comes_to_no_end() -> None:
    """The slot is not its own for ever, and the checkpoint stays."""

    async def story(pool: SimPool) -> None:
        await asyncio.sleep(HOUR)
        await vacate(pool)
        startd = pool.role("one", "startd")
        await pool.run_until(lambda: startd.slots["slot1"].claim is not None, within=100)
        assert not pool.witness.running
        await pool.run_until(lambda: len(the_job(pool).stored_note("_start_failures", ())) == 1, within=1000)
        assert the_job(pool).get("NumCkpts") == 1

    play(story, lease="20", one=replace(SAVABLE, restoring=1e6))
