"""Jobs that stay in the queue after their end, wait in it from the beginning, and have leases of their own."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.client.descriptions import describe
from pool.jobs.states import JobStatus
from pool.outside import OutsideWorld
from pool.roles.schedd.core.claims import UNASKED, lease_for
from pool.roles.schedd.core.validation import SUBMITTED_ON_HOLD, holding, split_held
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

TEN_MINUTES = ["JobStatus == 4 && time() - CompletionDate < 600"]


def test_a_job_stays_completed_in_the_queue_until_its_expression_is_false(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            cluster = await pool.submit("head", ad={"LeaveJobInQueue": TEN_MINUTES})
            other = await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 1 and len(pool.witness.ends) == 2, within=60)
            assert [ad["ClusterId"] for ad in await pool.ended("head")] == [other]
            async with asking(pool) as user:
                (ad,) = await user.jobs()
                assert (ad.value("ClusterId"), ad.value("JobStatus"), ad.value("ExitCode")) == (cluster, 4, 0)
                (result,) = await user.cluster(cluster).wait(5)
                assert result.ok, "whoever waits for its end need not wait until it has left"
                for action in ("hold", "release", "vacate", "prio"):
                    done = await user.act(action, ids=[(cluster,)], value=1)
                    assert [why for _, why in done.refused] == ["it has completed"]
            await pool.kill("head")
            await pool.restart("head")
            assert pool.queued("head") == 1, "it stays through a restart"
            await pool.run_until(lambda: pool.queued("head") == 0, within=900)
            assert {ad["ClusterId"]: ad["JobStatus"] for ad in await pool.ended("head")} == {cluster: 4, other: 4}
            assert len(pool.witness.starts) == 2
            async with asking(pool) as user:
                ends = []
                async for batch in user.events(cluster=cluster):
                    ends += [event["kind"] for event in batch if event["kind"] in ("TERMINATED", "ABORTED")]
                    if not batch:
                        break
            assert ends == ["TERMINATED"], "its end is told once"
            pool.assert_sound()

    run_virtual(work())


def test_its_user_takes_a_completed_job_out() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            cluster = await pool.submit("head", ad={"LeaveJobInQueue": True})
            await pool.run_until(lambda: len(pool.witness.ends) == 1, within=60)
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: queue.find(cluster, 0).status == JobStatus.COMPLETED, within=60)
            done = await pool.act("head", "alice", action="remove", ids=[[cluster]])
            assert done["done"] == 1
            (ad,) = await pool.ended("head")
            assert (ad["JobStatus"], ad["ExitCode"]) == (4, 0)
            assert pool.queued("head") == 0

    run_virtual(work())


def test_some_processes_of_a_cluster_wait_for_a_release_from_the_beginning(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            async with asking(pool) as user:
                text = "executable = /bin/true\nhold = $(back)\nqueue back in (true, false, true)\n"
                (draft,) = describe(text, outside=OutsideWorld(), iwd="/").clusters
                ad = {**draft.attributes, "Requirements": True, "RequestMemory": 1, "RequestDisk": 1}
                asked = {"ad": ad, "count": 3, "deltas": draft.wire_deltas()}
                cluster = (await user.call("schedd.submit", asked))["cluster"]
            await pool.run_until(lambda: len(pool.witness.ends) == 1, within=60)
            await pool.kill("head")
            await pool.restart("head")
            queue = pool.role("head", "schedd").queue
            jobs = queue.clusters[cluster].jobs
            assert sorted(jobs) == [0, 2]
            assert {job.status for job in jobs.values()} == {5}
            assert jobs[0].get("HoldReasonCode") == 15
            await pool.act("head", "alice", action="release", ids=[[cluster]])
            assert jobs[0].get("HoldReason") is None
            await pool.run_until(lambda: len(pool.witness.ends) == 3, within=60)
            pool.assert_sound()

    run_virtual(work())


def test_who_is_held() -> None:
    reason = {"HoldReason": "r", "HoldReasonCode": 15}
    ad = {"JobStatus": 5, **reason, "Cmd": "/bin/true"}
    deltas = [None, {"JobStatus": 1}, {"Args": "x"}]
    assert holding(ad) == (True, reason)
    assert ad == {"Cmd": "/bin/true"}
    assert split_held(deltas, True, reason) == {0: reason, 2: reason}
    assert deltas == [None, {}, {"Args": "x"}]
    assert holding({"JobStatus": 1}) == (False, SUBMITTED_ON_HOLD)
    assert split_held([None, {"JobStatus": 5, **reason}], False, SUBMITTED_ON_HOLD) == {1: reason}


@pytest.mark.parametrize(
    ("asked", "lease"),
    [(None, 600.0), (UNASKED, 600.0), (True, 600.0), ("x", 600.0), (3, 20.0), (90, 90.0), (10**9, 86400.0)],
)
def test_a_jobs_own_lease_is_bounded(asked: object, lease: float) -> None:
    assert lease_for(asked, 600.0, 86400.0) == lease


def idle(queue: Any, cluster: int) -> bool:
    return bool(queue.find(cluster, 0).status == 1)


def test_a_lost_job_waits_for_its_own_lease_and_no_longer() -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(10000.0))
            await pool.add("m2", "startd", behave=lambda spec: Behaviour(10000.0))
            leases = {await pool.submit("head", ad={"JobLeaseDuration": lease}): lease for lease in (30, 1200)}
            await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
            queue = pool.role("head", "schedd").queue
            for machine in ("m1", "m2"):
                await pool.crash(machine)
            lost = pool.wall()
            found = {}
            for cluster in leases:
                await pool.run_until(partial(idle, queue, cluster), within=2000, step=0.5)
                found[cluster] = pool.wall() - lost
            for cluster, lease in leases.items():
                assert lease * 0.6 < found[cluster] < lease * 1.1 + 10
            pool.assert_sound()

    run_virtual(work())


def test_a_short_lease_is_renewed_in_time_whatever_came_before() -> None:
    async def work() -> None:
        async with SimPool(5, settings={**QUICK, "CLAIM_LEASE": "9"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(300.0))
            await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=1000)
            assert len(pool.witness.starts) == 1
            pool.assert_sound()

    run_virtual(work())
