"""An end whose outputs home will not take: tried again for a while, then the job is held in words."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from pool.errors import PoolError
from pool.roles.startd.running import running_job
from pool.shadow.shadow import Shadow
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


@pytest.mark.parametrize("heals", [True, False])
def test_a_home_that_cannot_take_the_outputs_holds_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heals: bool
) -> None:
    """It was tried for as long as the lease was renewed: for ever, on a slot that stayed claimed."""
    tries = 0
    plain = Shadow.store_outputs

    async def full(self: Shadow, params: object, stream: object) -> None:
        nonlocal tries
        tries += 1
        if heals and tries == 3:
            await plain(self, params, stream)  # type: ignore[arg-type]
            return
        raise PoolError(f"cannot write {tmp_path}/out: too many open files", retry=True)

    monkeypatch.setattr(Shadow, "store_outputs", full)

    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(2.0))
            wish = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "Iwd": str(tmp_path), "Out": "out"}
            cluster = await pool.submit("head", ad=wish)
            job = pool.role("head", "schedd").queue.jobs().__iter__().__next__()
            await pool.run_until(lambda: job.status in (4, 5), within=3 * running_job.OUTPUT_PATIENCE)
            assert job.cluster.id == cluster
            if heals:
                assert (job.status, tries) == (4, 3)
                return
            assert (job.status, job.get("HoldReasonCode")) == (5, 12)
            assert "its output could not be sent to the submit side" in job.get("HoldReason")
            assert "too many open files" in job.get("HoldReason")
            assert job.get("NumJobStarts") == 1
            pool.assert_sound()

    run_virtual(work())


def test_outputs_that_come_before_a_restarted_schedd_has_reached_the_machine_wait_for_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(9, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(20.0))
            files = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "Iwd": str(tmp_path)}
            await pool.submit("s1", ad=files)
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            await asyncio.sleep(18.0)

            async def stand_still() -> None:
                await asyncio.sleep(9.0)

            pool.run_at("startd.resume", TrapPhase.BEFORE, stand_still)
            await pool.restart_role("s1", "schedd")
            await pool.run_until(lambda: not pool.queued("s1"), within=300)
            await asyncio.sleep(1.0)
            (ad,) = await pool.ended("s1")
            assert (ad["NumJobStarts"], ad["NumJobCompletions"]) == (1, 1)
            pool.assert_sound()

    run_virtual(work())


def test_a_scratch_directory_that_is_gone_holds_the_job(tmp_path: Path) -> None:
    """It was taken for a connection that is lost, and tried again for as long as the lease was renewed: for ever."""

    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0))
            wish = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "Iwd": str(tmp_path), "Out": "out"}
            await pool.submit("head", ad=wish)
            await pool.run_until(lambda: bool(pool.witness.running), within=100)
            shutil.rmtree(pool.role("m1", "startd").execute / "slot1")
            job = pool.role("head", "schedd").queue.jobs().__iter__().__next__()
            await pool.run_until(lambda: job.status == 5, within=100)
            assert "cannot open its scratch directory" in job.get("HoldReason")

    run_virtual(work())


@pytest.mark.parametrize("before", [0.2, 0.6, 1.0, 1.4, 1.8])
def test_outputs_that_come_before_a_restarted_schedd_knows_the_start_again(tmp_path: Path, before: float) -> None:
    """It asks the machine for it. The job was held, as if this start of it were not the present one any more."""

    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(20.0))
            wish = {"ShouldTransferFiles": "YES", "TransferExecutable": False, "Iwd": str(tmp_path), "Out": "out"}
            await pool.submit("s1", ad=wish)
            await pool.run_until(lambda: bool(pool.witness.running), within=100)
            pool.network.delay = (1.0, 1.0)
            await asyncio.sleep(20.0 - before)
            await pool.restart_role("s1", "schedd")
            await pool.run_until(lambda: not pool.queued("s1"), within=100)
            assert [ad["ExitCode"] for ad in await pool.ended("s1")] == [0]
            assert len(pool.witness.starts) == 1
            pool.assert_sound()

    run_virtual(work())
