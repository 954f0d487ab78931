"""A start that fails for a machine's own cause costs the job that machine for a while, and no hold at once."""

from __future__ import annotations

from typing import Any

import pytest

from pool.jobs.events import EventKind
from pool.jobs.reasons import Hold
from pool.policy.queue import HELD, RUNNING, QueuedCluster, QueuedJob
from pool.roles.collector import identifying
from pool.roles.schedd.core.job_ends import After, end_steps, without_machine
from pool.starter.spec import StartFailed
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

LASTING = Behaviour(100.0)


class Failing:
    """A machine that cannot start anything for its own cause."""

    def __init__(self, times: int = 10**6) -> None:
        self.left = times
        self.tries = 0

    def __call__(self, spec: Any) -> Behaviour:
        self.tries += 1
        if self.left:
            self.left -= 1
            raise StartFailed(f"cannot start {spec.id}: no process is to be had", call="fork", retry=True)
        return LASTING


def the_job(pool: SimPool) -> Any:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return job


def test_a_machine_that_fails_is_left_for_one_that_does_not() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            bad = Failing()
            await pool.add("bad", "startd", behave=bad)
            await pool.submit("head")
            await pool.run_until(lambda: bad.tries > 0, within=200)
            await pool.add("good", "startd", behave=lambda spec: LASTING)
            await pool.run_until(lambda: bool(pool.witness.running), within=200)
            assert set(pool.witness.running.values()) == {"good"}
            assert bad.tries <= 3
            await pool.run_until(lambda: not pool.queued("head"), within=500)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(
    ("slot", "machine"),
    [("slot1@donder", "donder"), ("slot1_2@donder", "donder"), ("slot1@donder@physics@gate", "donder@physics")],
)
def test_the_machine_is_left_by_the_name_in_its_ad(slot: str, machine: str) -> None:
    """That of a lent machine is not its pool's way into ours: other machines of that pool may be tried."""
    assert identifying("Machine", slot, slot.rpartition("@")[2])["Machine"] == machine
    job = QueuedJob(QueuedCluster(1, "alice", {"Requirements": ["true"]}), 0, RUNNING, None, None)
    report = {"cause": "start", "where": "start", "error": "no process is to be had", "retry": True}
    (step,) = end_steps(job, slot, report, 1000.0, After(lambda tries: None, "home"))
    assert f'"{machine}"' in str(step.changes["Requirements"])
    assert f"not sent to {machine} for" in step.data["why"]


def test_the_only_machine_is_tried_again_after_growing_pauses() -> None:
    async def work() -> None:
        async with SimPool(3, settings={**QUICK, "NEGOTIATION_INTERVAL": "3000"}) as pool:
            only = Failing(times=2)
            await pool.add("head", "collector,negotiator,schedd,startd", behave=only)
            await pool.submit("head")
            await pool.run_until(lambda: bool(pool.witness.running), within=200)  # 10 s and 60 s, not a whole interval
            assert only.tries == 3
            await pool.run_until(lambda: not pool.queued("head"), within=500)
            pool.assert_sound()

    run_virtual(work())


def test_it_is_held_in_the_end_with_the_last_reason_and_a_release_begins_anew() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            only = Failing(times=5)
            await pool.add("head", "collector,negotiator,schedd,startd", behave=only)
            await pool.submit("head")
            await pool.run_until(lambda: the_job(pool).status == HELD, within=3000)
            job = the_job(pool)
            assert (only.tries, job.get("HoldReasonCode")) == (5, int(Hold.TOO_MANY_STARTS))
            assert "5 starts failed, on head; the last said" in job.get("HoldReason")
            assert "no process is to be had" in job.get("HoldReason")
            async with await pool.connect("alice") as user:
                await user.cluster(job.cluster.id).release()
            await pool.run_until(lambda: bool(pool.witness.running), within=200)
            assert not the_job(pool).stored_note("_start_failures")

    run_virtual(work())


# -- one end at a time ---------------------------------------------------------------------------------------

INPUT = {"cause": "start", "where": "input", "error": "the server answered 503", "retry": True}


def job_with(**state: Any) -> QueuedJob:
    return QueuedJob(QueuedCluster(1, "alice", {"Owner": "alice"}), 0, 2, None, state)


def test_an_input_that_may_come_later_is_tried_again_and_then_holds_the_job() -> None:
    job, now, pauses = job_with(), 1000.0, []
    for _ in range(4):
        (step,) = end_steps(job, "slot1@one", INPUT, now, After())
        assert step.event is EventKind.SHADOW_EXCEPTION
        assert "Requirements" not in step.changes, "another machine would not get it either"
        job.update(step.changes)
        pauses.append(job.stored_note("_start_failures")[-1][2] - now)
        now += pauses[-1]
    assert pauses == [10.0, 60.0, 300.0, 900.0]
    (step,) = end_steps(job, "slot1@two", INPUT, now, After())
    assert step.event is EventKind.HELD
    assert step.changes["HoldReasonCode"] == Hold.TRANSFER_INPUT
    assert step.changes["HoldReason"] == "its input could not be sent, after 5 tries: the server answered 503"


@pytest.mark.parametrize("report", [{**INPUT, "retry": False}, {**INPUT, "where": "start", "retry": False}])
def test_the_jobs_own_fault_holds_it_at_once(report: dict[str, Any]) -> None:
    (step,) = end_steps(job_with(), "slot1@one", report, 0.0, After())
    assert step.event is EventKind.HELD


def test_a_program_that_began_makes_up_for_failed_starts() -> None:
    job = job_with(_start_failures=[["one", 0.0, 10.0]], JobCurrentStartExecutingDate=5)
    (step,) = end_steps(job, "slot1@two", {"cause": "vacated"}, 50.0, After())
    job.update(step.changes)
    assert not job.stored_note("_start_failures")


def test_a_later_pause_takes_the_place_of_an_earlier_one() -> None:
    first = without_machine(["A"], "one", 10)
    assert without_machine(first, "one", 70) == ['(A) && (TARGET.Machine =!= "one" || time() >= 70)']
    assert without_machine(without_machine(None, "one", 10), "one", 70) == without_machine(None, "one", 70)
    both = without_machine(first, "two", 20)
    assert both == [f'({first[0]}) && (TARGET.Machine =!= "two" || time() >= 20)']
