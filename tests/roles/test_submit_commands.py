"""The effect of submit commands on a pool, each seen from outside: the fate of the jobs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import RemoteError
from tests.jobs.description.support import attributes
from tests.roles.support import QUICK, asking, lasting


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
            await pool.run_until(lambda: only_job(pool).status == 5, within=300)
            assert only_job(pool).get("HoldReasonCode") == code
            assert "= 200 seconds" in only_job(pool).get("HoldReason")
            pool.assert_sound()

    run_virtual(work())


def test_a_job_leaves_its_machine_when_periodic_vacate_becomes_true() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={"PeriodicVacate": ["NumJobStarts < 2"]})
            await pool.run_until(lambda: only_job(pool).get("NumJobStarts") == 2, within=300)
            assert only_job(pool).get("VacateReason") == "the job's periodic_vacate became true"
            await pool.run_until(lambda: pool.queued("head") == 0, within=2000)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("ad", [{"JobUniverse": 9}, {"JobUniverse": "5"}])
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
            await pool.run_until(lambda: only_job(pool).status == 5, within=60)
            assert only_job(pool).get("HoldReasonCode") == 32
            await pool.act("head", "alice", action="remove", all=True)
            await pool.submit("head", ad=inputs | {"TransferOutput": "in", "MaxTransferOutputMB": 2})
            await pool.run_until(lambda: only_job(pool).status == 5, within=60)
            assert only_job(pool).get("HoldReasonCode") == 33
            await pool.act("head", "alice", action="remove", all=True)
            await pool.submit("head", ad=inputs | {"MaxTransferInputMB": 3, "MaxTransferOutputMB": 3})
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(("keep", "negotiated"), [(0, 2), (100, 1)])
def test_a_claim_is_kept_idle_as_long_as_a_job_asks(keep: int, negotiated: int) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await one_machine(pool, 5.0)
            await pool.submit("head", ad={"KeepClaimIdle": [f"{keep}"]})
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            ended = pool.wall()
            await pool.run_until(lambda: pool.wall() > ended + 50)
            claims = len(pool.role("head", "schedd").placement.claims)
            assert claims == 2 - negotiated
            await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=200)
            pool.assert_sound()

    run_virtual(work())


def test_a_job_remembers_attributes_of_its_machines() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await one_machine(pool)
            attributes = {"JobMachineAttrs": "Machine, Nothing", "JobMachineAttrsHistoryLength": 2}
            await pool.submit("head", ad=attributes | {"PeriodicVacate": ["NumJobStarts < 2"]})
            await pool.run_until(lambda: only_job(pool).get("NumJobStarts") == 2, within=300)
            job = only_job(pool)
            assert (job.get("MachineAttrMachine0"), job.get("MachineAttrMachine1")) == ("m1", "m1")
            assert job.get("MachineAttrNothing0") == ["undefined"]

    run_virtual(work())


@pytest.mark.parametrize("attribute", ["AllowedJobDuration", "AllowedExecuteDuration"])
def test_a_job_that_runs_too_long_is_held_when_that_is_due(attribute: str) -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={attribute: 3})
            await pool.run_until(lambda: only_job(pool).status == 2, within=60)
            began = pool.wall()
            await pool.run_until(lambda: only_job(pool).status == 5, within=60, step=0.01)
            assert 2.0 < pool.wall() - began < 4.5
            pool.assert_sound()

    run_virtual(work())


def test_a_duration_counts_on_over_a_restart_of_the_schedd(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK, directory=tmp_path) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={"AllowedExecuteDuration": 40})
            await pool.run_until(lambda: only_job(pool).get("JobCurrentStartExecutingDate") is not None, within=60)
            began = pool.wall()
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: only_job(pool).status == 5, within=60, step=0.01)
            assert 38.0 < pool.wall() - began < 47.0
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(("needs", "asked", "held"), [(1500, [1000, 2000], False), (9000, [1000, 2000, 4000], True)])
def test_a_job_over_its_memory_runs_again_with_more(needs: int, asked: list[int], held: bool) -> None:
    async def work() -> None:
        settings = {**QUICK, "ENFORCE_MEMORY": "true", "SLOTS": "partitionable"}
        async with SimPool(9, settings=settings) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(30.0, rss=needs << 10))
            text = f"executable = /bin/true\nrequest_memory = {asked[0]}\nretry_request_memory = 2000, 4000\nqueue\n"
            await pool.submit("head", ad=attributes(text))
            requests = []

            def over() -> bool:
                jobs = list(pool.role("head", "schedd").queue.jobs())
                for job in jobs:
                    if job.get("RequestMemory") not in requests:
                        requests.append(job.get("RequestMemory"))
                return not jobs or jobs[0].status == 5

            await pool.run_until(over, within=600)
            assert requests == asked
            if held:
                job = only_job(pool)
                assert (job.get("HoldReasonCode"), job.get("HoldReasonSubCode")) == (34, 102)
            else:
                (ended,) = await pool.ended("head")
                assert ended["NumJobStarts"] == len(asked)
                assert "it runs again with RequestMemory = 2000" in ended["VacateReason"]
            pool.assert_sound()

    run_virtual(work())


def starts(pool: SimPool) -> list[float]:
    return [at for _, _, at in pool.witness.starts]


def test_starts_of_a_cluster_lie_as_far_apart_as_it_says(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(10, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(4):
                await pool.add(f"m{number}", "startd", behave=lambda spec: lasting(300.0))
            await pool.submit("head", count=4, ad={"NextJobStartDelay": 20})
            await pool.run_until(lambda: len(starts(pool)) == 2, within=100)
            async with asking(pool) as user:
                explained = "\n".join((await user.why("1.3")).lines())
            assert "next_job_start_delay = 20, and one has just started" in explained
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: len(starts(pool)) == 4, within=200)
            at = starts(pool)
            assert all(19.0 < later - earlier < 30.0 for earlier, later in pairwise(at))
            await pool.run_until(lambda: pool.queued("head") == 0, within=2000)
            pool.assert_sound()

    run_virtual(work())


def test_only_so_many_of_a_cluster_are_asked_for_at_once() -> None:
    async def work() -> None:
        async with SimPool(11, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(6):
                await pool.add(f"m{number}", "startd", behave=lambda spec: lasting(100.0))
            queue = pool.role("head", "schedd").queue
            await pool.submit("head", count=10, ad={"JobMaterializeLimit": 3})
            await pool.submit("head", count=3, ad={"JobMaterializeMaxIdle": 1})
            most = 0

            def over() -> bool:
                nonlocal most
                running = [job for job in queue.jobs() if job.cluster.id == 1 and job.status == 2]
                most = max(most, len(running))
                assert sum(group.idle for group in queue.groups("alice")) <= 4
                return not len(queue)

            await pool.run_until(lambda: queue.count("alice", 2) == 6, within=100)
            waiting = [job for job in queue.jobs() if job.status == 1]
            assert len(waiting) == 7
            assert all(job.negotiation_answer() == {"WaitsForTurn": True} for job in waiting)
            async with asking(pool) as user:
                assert "max_materialize = 3" in "\n".join((await user.why("1.9")).lines())
            await pool.act("head", "alice", action="hold", ids=[[1, 0]])
            await pool.run_until(lambda: queue.find(1, 0).status == 5)
            await pool.act("head", "alice", action="release", ids=[[1, 0]])
            await pool.run_until(over, within=2000)
            assert most == 3
            pool.assert_sound()

    run_virtual(work())


def gpu(name: str, capability: float, memory: int) -> list[str]:
    return [f'[ Id = "{name}"; Capability = {capability}; GlobalMemoryMb = {memory} ]']


def test_a_job_gets_the_gpu_that_it_requires() -> None:
    async def work() -> None:
        async with SimPool(12, settings={**QUICK, "SLOTS": "partitionable"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd", behave=lambda spec: lasting(100.0))
            node.sensors.facts |= {
                "Cpus": 4,
                "GPUs": 2,
                "DetectedGPUs": "GPU-aaaa,GPU-bbbb",
                "MachineResources": "Cpus Memory Disk GPUs",
                "GPUs_GPU_aaaa": gpu("GPU-aaaa", 7.5, 16000),
                "GPUs_GPU_bbbb": gpu("GPU-bbbb", 8.0, 40000),
            }
            await pool.kill("m1")
            await pool.restart("m1")
            text = "executable = /bin/true\nrequest_memory = 1\nrequest_gpus = 1\n{}\nqueue\n"
            for demand in ("gpus_minimum_capability = 7.9", "require_gpus = GlobalMemoryMb > 20000", ""):
                ad = attributes(text.format(demand))
                await pool.submit("head", ad=ad | {"FileSystemDomain": "simulation"})
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: queue.count("alice", 2) == 2, within=200)
            slots = pool.role("m1", "startd").slots
            assert {slot.gpus for slot in slots.values() if slot.claim} == {("GPU-aaaa",), ("GPU-bbbb",)}
            assert sorted(job.status for job in queue.jobs()) == [1, 2, 2]
            assert next(job.id for job in queue.jobs() if job.status == 1) in ((1, 0), (2, 0))
            ad = attributes(text.format("gpus_minimum_memory = 80G"))
            await pool.submit("head", ad=ad | {"FileSystemDomain": "simulation"})
            await pool.run_until(lambda: len(queue) == 1, within=2000)
            assert only_job(pool).id == (4, 0)
            pool.assert_sound()

    run_virtual(work())
