"""A disk that is full for a while: the queue waits and loses nothing, and jobs are held in words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.policy.queue import HELD
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


def carried(directory: Path) -> dict[str, Any]:
    (directory / "input").write_bytes(b"input")
    ways = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "TransferInput": "input"}
    return {"Iwd": str(directory), **ways}


async def held(pool: SimPool, why: str) -> None:
    """Wait until the one job is held, for that reason."""
    (job,) = pool.role("head", "schedd").queue.jobs()
    await pool.run_until(lambda: job.status == HELD, within=3000)  # it is tried five times, after growing pauses
    assert why in job.get("HoldReason")
    assert "No space left" in job.get("HoldReason")


def test_a_queue_on_a_full_disk_acknowledges_nothing_until_there_is_space(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(30.0))
            await pool.submit("s1")
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            pool.fill_disk("s1")
            second = asyncio.create_task(pool.submit("s1"))
            await asyncio.sleep(60.0)
            assert len(pool.witness.ends) == 1
            assert not second.done() or second.exception() is not None
            assert not await pool.ended("s1"), "the end of the first is not durable yet"
            pool.free_disk("s1")
            await asyncio.gather(second, return_exceptions=True)
            await pool.run_until(lambda: not pool.queued("s1"), within=300)
            await asyncio.sleep(5.0)
            assert len(await pool.ended("s1")) == len(pool.witness.starts)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_end_that_never_became_durable_is_not_acknowledged_when_it_is_told_again(tmp_path: Path, jobs: int) -> None:
    """It is told again over a new connection; then the schedd fails, still with a full disk, and starts again.

    With a second job, the answer would also have carried a start that was never durable.
    """

    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))
            for _ in range(jobs):
                await pool.submit("s1")
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            pool.fill_disk("s1")
            await pool.run_until(lambda: pool.traps.called.get("schedd.ended") == 1, within=60)
            pool.network.cut("s1", "m1")
            await asyncio.sleep(1.0)
            pool.network.restore_links()
            await pool.run_until(lambda: pool.traps.called.get("schedd.ended") == 2, within=60)
            await pool.restart_role("s1", "schedd")
            await asyncio.sleep(5.0)
            pool.free_disk("s1")
            await pool.run_until(lambda: not pool.queued("s1"), within=300)
            await asyncio.sleep(5.0)
            assert len(pool.witness.starts) == jobs
            assert len(await pool.ended("s1")) == jobs
            pool.assert_sound()

    run_virtual(work())


def test_a_job_without_space_for_its_input_waits_for_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))
            pool.fill_disk("m1")
            await pool.submit("head", ad=carried(tmp_path))
            await held(pool, "prepare the job's scratch directory")
            assert not pool.witness.starts
            pool.free_disk("m1")
            await pool.act("head", "alice", action="release", all=True)
            await pool.run_until(lambda: not pool.queued("head"), within=900)
            pool.fill_disk("m1")
            await pool.submit("head", ad=carried(tmp_path))
            await held(pool, "5 starts failed, on m1")
            assert len(pool.witness.starts) == 1
            pool.free_disk("m1")
            await pool.act("head", "alice", action="release", all=True)
            await pool.run_until(lambda: not pool.queued("head"), within=900)
            assert len(pool.witness.starts) == 2
            pool.assert_sound()

    run_virtual(work())


def test_a_start_is_not_sent_before_it_is_durable_whatever_happens_to_the_connection(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))

            async def fill() -> None:
                pool.fill_disk("s1")

            pool.run_at("startd.claim", TrapPhase.AFTER, fill)
            await pool.submit("s1")
            await pool.run_until(lambda: pool.nodes["s1"].disk.full, within=60)
            await asyncio.sleep(1.0)
            pool.network.cut("s1", "m1")
            await asyncio.sleep(1.0)
            pool.network.restore_links()
            await asyncio.sleep(20.0)
            assert pool.traps.called.get("startd.resume"), "the claim was reached for"
            assert not pool.witness.starts
            pool.free_disk("s1")
            await pool.run_until(lambda: not pool.queued("s1"), within=900)
            pool.assert_sound()

    run_virtual(work())


def test_a_claim_may_be_lost_while_its_start_is_being_written(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(4, settings={**QUICK, "CLAIM_LEASE": "10"}, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(5.0))

            async def fill() -> None:
                pool.fill_disk("s1")

            pool.run_at("startd.claim", TrapPhase.AFTER, fill)
            await pool.submit("s1")
            await pool.run_until(lambda: pool.nodes["s1"].disk.full, within=60)
            await pool.crash("m1")
            await asyncio.sleep(60.0)
            pool.free_disk("s1")
            await pool.restart("m1")
            await pool.run_until(lambda: not pool.queued("s1"), within=900)
            pool.assert_sound()

    run_virtual(work())
