"""A pool that loses parts: submitters without a central manager, machines that are gone, and where a job goes next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK


def play(
    tmp_path: Path,
    story: Callable[[SimPool], Coroutine[Any, Any, None]],
    seconds: float = 600.0,
    settings: dict[str, str] | None = None,
) -> None:
    async def work() -> None:
        async with SimPool(17, settings={**QUICK, **(settings or {})}, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            for name in ("m1", "m2"):
                await pool.add(name, "startd", behave=lambda spec: Behaviour(seconds))
            await asyncio.sleep(5.0)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def machines(pool: SimPool) -> set[str]:
    return {name for kind, name in pool.role("head", "collector")._registry.entries if kind == "Machine"}


def test_jobs_run_for_hours_without_a_central_manager(tmp_path: Path) -> None:
    """A claim is given back after CLAIM_LIFE so that others get their share: not where nobody could grant another."""

    async def story(pool: SimPool) -> None:
        await pool.submit("submit", count=40)
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        await pool.kill("head")
        await pool.run_until(lambda: pool.queued("submit") == 0, within=4 * 3600.0)

    play(tmp_path, story, settings={"CLAIM_LIFE": "1200"})


def test_claims_are_given_back_when_the_central_manager_is_there_again(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("submit", count=40)
        await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
        claims = set(pool.role("submit", "schedd").placement.claims)
        await pool.kill("head")
        await asyncio.sleep(3600.0)
        assert set(pool.role("submit", "schedd").placement.claims) == claims
        await pool.restart("head")
        await asyncio.sleep(1300.0)
        assert not claims & set(pool.role("submit", "schedd").placement.claims)

    play(tmp_path, story, settings={"CLAIM_LIFE": "1200"})


@pytest.mark.parametrize("silent", [False, True])
def test_a_dead_machine_leaves_the_pool_in_about_a_minute(silent: bool, tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        assert machines(pool) == {"slot1@m1", "slot1@m2"}
        pool.network.crash("m1", silent=silent)
        await pool.kill("m1") if not silent else None
        await pool.run_until(lambda: machines(pool) == {"slot1@m2"}, within=90)

    play(tmp_path, story, settings={"AD_LIFETIME": "900", "UPDATE_INTERVAL": "300"})


def test_a_node_that_is_started_again_stays_in_the_pool(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.kill("m1")
        await asyncio.sleep(5.0)
        await pool.restart("m1")
        for _ in range(30):
            assert "slot1@m1" in machines(pool)
            await asyncio.sleep(1.0)

    play(tmp_path, story)


def test_a_vacated_job_goes_to_another_machine_that_is_idle(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("submit")
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
        for _ in range(3):
            await asyncio.sleep(20.0)
            (before,) = pool.witness.running.values()
            await pool.act("submit", "alice", action="vacate", ids=[[1, 0]])
            await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
            (after,) = pool.witness.running.values()
            assert after != before

    play(tmp_path, story)


def test_a_vacated_job_goes_back_where_there_is_no_other(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.crash("m2")
        await pool.submit("submit")
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=150)
        await asyncio.sleep(20.0)
        await pool.act("submit", "alice", action="vacate", ids=[[1, 0]])
        await pool.run_until(lambda: len(pool.witness.ends) == 1, within=10)
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=3)

    play(tmp_path, story)


def test_a_claim_goes_by_what_the_machine_is_then(tmp_path: Path) -> None:
    """Its owner came back a moment after it was looked at last: the job does not come."""

    async def story(pool: SimPool) -> None:
        node = pool.nodes["m1"]
        await pool.kill("m2")
        look = pool.role("m1", "startd").owner.evaluate
        pool.role("m1", "startd").owner.evaluate = lambda: asyncio.sleep(0)
        assert look is not None
        node.sensors.facts["Speed"] = 1
        await pool.submit("submit", ad={"Requirements": ["TARGET.Speed =?= undefined"]})
        await asyncio.sleep(30.0)
        assert not pool.witness.starts

    play(tmp_path, story)


@pytest.mark.parametrize("ad", [{"JobCheckpoint": "off"}, {"CheckpointTrouble": "a socket"}, {}])
def test_only_jobs_that_can_be_saved_move(ad: dict[str, Any], tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        for speed, name in enumerate(("m1", "m2")):
            pool.nodes[name].sensors.facts["Speed"] = speed
            await pool.kill(name)
        await pool.restart("m1")
        await pool.submit("submit", ad={"Rank": ["TARGET.Speed"], **ad})
        await pool.run_until(lambda: len(pool.witness.running) == 1, within=150)
        await pool.restart("m2")
        await asyncio.sleep(1000.0)
        assert list(pool.witness.running.values()) == (["m1"] if ad else ["m2"])
        await pool.run_until(lambda: pool.queued("submit") == 0, within=10000.0)

    play(tmp_path, story, 3000.0, {"REMATCH": "true", "REMATCH_PAUSE": "60"})
