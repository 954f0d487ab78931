"""GANG_NETWORK in simulated pools: where a machine cannot give the network, the job says so, and runs."""

from __future__ import annotations

from pool.jobs.events import EventKind
from pool.policy.why.findings import Running
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_parallel_jobs import SETTINGS, ended, heard, parallel
from tests.roles.support import asking

WHY = "no job_network = private from slot1@m1 (its administrator has set JOB_NETWORK = none)"


def test_where_a_machine_cannot_the_job_has_the_machines_network_and_says_so() -> None:
    async def work() -> None:
        async with SimPool(1, settings={**SETTINGS, "GANG_NETWORK": "private"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number, network in enumerate(("host", "none")):
                settings = {"JOB_NETWORK": network}
                await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(20.0), settings=settings)
            events = heard(pool)
            await pool.submit("head", ad=parallel(2))
            await pool.run_until(lambda: any(event.kind == EventKind.EXECUTE for event in events), 600.0)
            async with asking(pool) as user:
                findings = (await user.why("1.0")).findings
            (running,) = [one for one in findings if isinstance(one, Running)]
            assert running.network_why == WHY
            (ad,) = await ended(pool)
            assert ad["JobNetworkWhy"] == WHY
            assert "JobNetworkGiven" not in ad
            texts = [event.data.get("text") for event in events if event.kind == EventKind.NOTICE]
            assert f"its network is the machines': {WHY}" in texts

    run_virtual(work())
