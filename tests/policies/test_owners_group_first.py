"""docs/policies/owners-group-first.md: a stranger runs, the group comes and takes its machines."""

from __future__ import annotations

import asyncio

from pool.testing.pool import SimPool
from tests.policies.support import LONG, run, shown, why, why_machine

PAGE = "owners-group-first"


def owners(pool: SimPool) -> list[str]:
    """The owners of the jobs that run, one for each machine."""
    clusters = pool.role("head", "schedd").queue.clusters
    return sorted(clusters[int(job.split(".")[0])].owner for job in pool.witness.running)


def test_the_group_takes_its_machines_and_a_stranger_does_not() -> None:
    async def story(pool: SimPool) -> None:
        for name in ("group1", "group2"):
            await pool.add(name, "startd", behave=lambda spec: LONG)
        stranger = await pool.submit("head", count=3, owner="dave")
        await pool.run_until(lambda: owners(pool) == ["dave", "dave"], within=60)
        await asyncio.sleep(30)
        group = await pool.submit("head", owner="ann")
        await pool.run_until(lambda: owners(pool) == ["ann", "dave"], within=120)
        await pool.submit("head", owner="ann")
        await pool.run_until(lambda: owners(pool) == ["ann", "ann"], within=120)
        other = await pool.submit("head", owner="eve")
        await asyncio.sleep(120)
        assert owners(pool) == ["ann", "ann"]
        queue = pool.role("head", "schedd").queue
        assert [queue.find(stranger, proc).status for proc in range(3)] == [1, 1, 1]

        seen = (await why(pool, f"{other}.0")).lines()
        page = [line.replace("7.0", f"{other}.0") for line in shown(PAGE, "poolnode why 7.0")]
        assert seen[: len(page)] == page
        machine = next(name for job, name, _ in pool.witness.starts if job == f"{group}.0")
        said = (await why_machine(pool, f"slot1_1@{machine}")).lines()
        assert said[0].endswith(f"with job {group}.0 of ann")
        assert said[1:3] == shown(PAGE, "poolnode why slot1_1@group1")[1:3]

    run(PAGE, story)
