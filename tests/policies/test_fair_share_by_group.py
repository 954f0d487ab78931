"""docs/policies/fair-share-by-group.md: two groups and somebody of none; shares come about, and nothing lies idle."""

from __future__ import annotations

import asyncio

import pytest

from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.policies.support import HOUR, run, why

PAGE = "fair-share-by-group"
MACHINES = 10


def held(pool: SimPool) -> dict[str, int]:
    """How many machines each owner has now."""
    clusters = pool.role("head", "schedd").queue.clusters
    found: dict[str, int] = {}
    for job in pool.witness.running:
        owner = clusters[int(job.split(".")[0])].owner
        found[owner] = found.get(owner, 0) + 1
    return found


async def average(pool: SimPool, hours: float) -> dict[str, float]:
    """Mean number of machines of each owner over so long."""
    total: dict[str, int] = {}
    looks = int(hours * 60)
    for _ in range(looks):
        await asyncio.sleep(60.0)
        for owner, count in held(pool).items():
            total[owner] = total.get(owner, 0) + count
    return {owner: count / looks for owner, count in total.items()}


def test_groups_get_their_shares_and_what_others_leave() -> None:
    async def story(pool: SimPool) -> None:
        for number in range(MACHINES):
            await pool.add(f"node{number}", "startd", behave=lambda spec: Behaviour(1200.0))
        await pool.submit("head", count=1000, owner="cora", ad={"AcctGroup": "chemistry"})
        await asyncio.sleep(HOUR)
        assert held(pool) == {"cora": MACHINES}, "nobody else wants them"

        await pool.submit("head", count=1000, owner="ann", ad={"AcctGroup": "physics"})
        await pool.submit("head", count=1000, owner="bert", ad={"AcctGroup": "physics"})
        await asyncio.sleep(HOUR)
        shares = await average(pool, 4)
        physics = shares["ann"] + shares["bert"]
        assert physics == pytest.approx(0.65 * MACHINES, abs=1.0), "6 and 3 of 10, and part of what is left"
        assert shares["cora"] == pytest.approx(0.35 * MACHINES, abs=1.0)
        assert shares["ann"] == pytest.approx(shares["bert"], abs=1.0)
        assert physics + shares["cora"] > 0.95 * MACHINES
        (cluster,) = [one.id for one in pool.role("head", "schedd").queue.clusters.values() if one.owner == "ann"]
        await pool.run_until(lambda: "ann" in held(pool))
        said = str(await why(pool, f"{cluster}.999"))
        assert "physics/ann (" in said
        assert "group physics: " in said

    run(PAGE, story, EVALUATE_INTERVAL="60", UPDATE_INTERVAL="300", AD_LIFETIME="900")
