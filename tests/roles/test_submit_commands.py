"""What the commands of a submit file have a pool do, each seen from outside: what becomes of the jobs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.pool import SimPool
from pool.wire import RemoteError
from tests.roles.support import QUICK, lasting


async def one_machine(pool: SimPool, seconds: float = 1000.0) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    await pool.add("m1", "startd", behave=lambda spec: lasting(seconds))


def only_job(pool: SimPool) -> Any:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return job


@pytest.mark.parametrize(("attribute", "code"), [("AllowedJobDuration", 46), ("AllowedExecuteDuration", 47)])
def test_a_job_that_runs_too_long_is_held_with_the_code_that_says_so(attribute: str, code: int) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={attribute: 200})
            await pool.until(lambda: only_job(pool).status == 5, within=300)
            assert only_job(pool).get("HoldReasonCode") == code
            assert "= 200 seconds" in only_job(pool).get("HoldReason")
            pool.sound()

    run_virtual(work())


def test_a_job_leaves_its_machine_when_periodic_vacate_becomes_true() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={"PeriodicVacate": ["NumJobStarts < 2"]})
            await pool.until(lambda: only_job(pool).get("NumJobStarts") == 2, within=300)
            assert only_job(pool).get("VacateReason") == "the job's periodic_vacate became true"
            await pool.until(lambda: pool.queued("head") == 0, within=2000)
            pool.sound()

    run_virtual(work())


@pytest.mark.parametrize(
    "ad", [{"JobUniverse": 9}, {"JobUniverse": "5"}, {"WantDocker": True}, {"WantContainer": True}]
)
def test_a_client_that_reads_no_description_cannot_queue_what_is_not_started_either(ad: dict[str, Any]) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            with pytest.raises(RemoteError, match="this pool starts no jobs of"):
                await pool.submit("head", ad=ad)

    run_virtual(work())


def test_inputs_and_outputs_are_bounded_and_say_so(tmp_path: Path) -> None:
    async def work() -> None:
        (tmp_path / "in").write_bytes(bytes(3 << 20))
        async with SimPool(4, settings=QUICK) as pool:
            await one_machine(pool, 5.0)
            files = {"Iwd": str(tmp_path), "ShouldTransferFiles": "YES", "TransferExecutable": False}
            inputs = {"TransferInput": "in", **files}
            await pool.submit("head", ad=inputs | {"MaxTransferInputMB": 2})
            await pool.until(lambda: only_job(pool).status == 5, within=60)
            assert only_job(pool).get("HoldReasonCode") == 32
            await pool.act("head", "alice", action="remove", all=True)
            await pool.submit("head", ad=inputs | {"TransferOutput": "in", "MaxTransferOutputMB": 2})
            await pool.until(lambda: only_job(pool).status == 5, within=60)
            assert only_job(pool).get("HoldReasonCode") == 33
            await pool.act("head", "alice", action="remove", all=True)
            await pool.submit("head", ad=inputs | {"MaxTransferInputMB": 3, "MaxTransferOutputMB": 3})
            await pool.until(lambda: pool.queued("head") == 0, within=60)
            pool.sound()

    run_virtual(work())


@pytest.mark.parametrize(("keep", "negotiated"), [(0, 2), (100, 1)])
def test_a_claim_is_kept_idle_as_long_as_a_job_asks(keep: int, negotiated: int) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await one_machine(pool, 5.0)
            await pool.submit("head", ad={"KeepClaimIdle": [f"{keep}"]})
            await pool.until(lambda: pool.queued("head") == 0, within=60)
            ended = pool.wall()
            await pool.until(lambda: pool.wall() > ended + 50)
            claims = len(pool.role("head", "schedd").placement.claims)
            assert claims == 2 - negotiated
            await pool.submit("head")
            await pool.until(lambda: pool.queued("head") == 0, within=200)
            pool.sound()

    run_virtual(work())


def test_a_job_remembers_attributes_of_its_machines() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await one_machine(pool)
            attributes = {"JobMachineAttrs": "Machine, Nothing", "JobMachineAttrsHistoryLength": 2}
            await pool.submit("head", ad=attributes | {"PeriodicVacate": ["NumJobStarts < 2"]})
            await pool.until(lambda: only_job(pool).get("NumJobStarts") == 2, within=300)
            job = only_job(pool)
            assert (job.get("MachineAttrMachine0"), job.get("MachineAttrMachine1")) == ("m1", "m1")
            assert job.get("MachineAttrNothing0") == ["undefined"]

    run_virtual(work())
