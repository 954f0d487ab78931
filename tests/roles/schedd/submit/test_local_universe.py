"""Jobs of the local and scheduler universes: they run beside the schedd, in no slot, under the same start contract."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour, FakeKeepers
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting

LOCAL = {"JobUniverse": 12, "Requirements": ['TARGET.OpSys == "LINUX" && TARGET.Memory >= RequestMemory']}


async def submit_side(
    pool: SimPool, seconds: float = 30.0, code: int = 0, settings: dict[str, str] | None = None
) -> None:
    """A node that has no slot at all."""
    await pool.add("head", "collector,negotiator,schedd", behave=lambda spec: lasting(seconds, code), settings=settings)


def jobs(pool: SimPool) -> list[Any]:
    return list(pool.role("head", "schedd").queue.jobs())


def running(pool: SimPool) -> int:
    return sum(job.status == 2 for job in jobs(pool))


@pytest.mark.parametrize("universe", [7, 12])
def test_they_run_where_no_machine_is(universe: int) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await submit_side(pool)
            await pool.submit("head", count=3, ad=LOCAL | {"JobUniverse": universe})
            await pool.run_until(lambda: running(pool) == 3, within=5)
            assert {job.get("RemoteHost") for job in jobs(pool)} == {"local@head"}
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            ads = await pool.ended("head")
            assert [(ad["ExitCode"], ad["NumJobStarts"]) for ad in ads] == [(0, 1)] * 3
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(("setting", "iwd"), [("true", "/home/alice"), ("false", "/home/alice"), ("true", "/tmp/x")])
def test_they_have_a_tmp_of_their_own_as_vanilla_jobs(setting: str, iwd: str) -> None:
    async def work() -> None:
        specs: list[Any] = []

        def behave(spec: Any) -> Behaviour:
            specs.append(spec)
            return lasting(5.0)

        async with SimPool(1, settings=QUICK | {"PRIVATE_TMP": setting}) as pool:
            await pool.add("head", "collector,negotiator,schedd,startd", behave=behave)
            for universe in (5, 12):
                await pool.submit("head", ad={"JobUniverse": universe, "Iwd": iwd})
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
        assert [spec.isolation for spec in specs] == ["shared", "shared"]
        assert [spec.private_tmp for spec in specs] == [setting == "true" and iwd != "/tmp/x"] * 2

    run_virtual(work())


def test_no_slot_is_taken_for_them_and_others_are_not_kept_waiting() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await submit_side(pool, 5000.0)
            await pool.add("m1", "startd", behave=lambda spec: lasting(10))
            await pool.submit("head", count=2, ad=LOCAL)
            await pool.submit("head", count=2)
            await pool.run_until(lambda: pool.queued("head") == 2, within=120)
            assert running(pool) == 2
            pool.assert_sound()

    run_virtual(work())


def test_only_so_many_run_at_once() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await submit_side(pool, settings={"MAX_LOCAL_JOBS": "2"})
            await pool.submit("head", count=5, ad=LOCAL)
            most = 0

            def over() -> bool:
                nonlocal most
                most = max(most, running(pool))
                return pool.queued("head") == 0

            await pool.run_until(over, within=200)
            assert most == 2
            pool.assert_sound()

    run_virtual(work())


def test_a_restart_of_the_node_finds_them_running(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK | {"CLAIM_LEASE": "60"}, directory=tmp_path) as pool:
            await submit_side(pool, 100.0)
            await pool.submit("head", count=2, ad=LOCAL)
            await pool.run_until(lambda: running(pool) == 2, within=5)
            await pool.kill("head")
            await pool.restart("head")
            assert running(pool) == 2
            await pool.run_until(lambda: pool.queued("head") == 0, within=120)
            assert [ad["NumJobStarts"] for ad in await pool.ended("head")] == [1, 1]
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("away", [False, True], ids=["the node alone", "the machine"])
def test_one_that_is_gone_with_its_machine_is_started_again(tmp_path: Path, away: bool) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK, directory=tmp_path) as pool:
            await submit_side(pool, 100.0)
            await pool.submit("head", ad=LOCAL)
            await pool.run_until(lambda: running(pool) == 1, within=5)
            await (pool.crash("head") if away else pool.kill("head"))
            if not away:
                await pool.run_until(
                    lambda: not pool.nodes["head"].beside.witness.running, within=100
                )  # its lease ends
            await pool.restart("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=300)
            (ad,) = await pool.ended("head")
            assert ad["NumJobStarts"] == 2
            pool.assert_sound()

    run_virtual(work())


def test_a_checkpoint_of_one_is_refused_in_words_that_are_right() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await submit_side(pool, 5000.0)
            cluster = await pool.submit("head", ad=LOCAL)
            await pool.run_until(lambda: running(pool) == 1, within=5)
            (refused,) = (await pool.act("head", "alice", action="checkpoint", ids=[[cluster, 0]]))["refused"]
            assert "runs on the submit machine" in refused["why"]
            assert "not running" not in refused["why"]
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("action", ["remove", "hold", "vacate"])
def test_what_people_do_to_them_takes_effect(action: str) -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await submit_side(pool, 5000.0)
            cluster = await pool.submit("head", ad=LOCAL)
            await pool.run_until(lambda: running(pool) == 1, within=5)
            done = await pool.act("head", "alice", action=action, ids=[[cluster, 0]])
            assert done["done"] == 1
            if action == "remove":
                await pool.run_until(lambda: pool.queued("head") == 0, within=30)
            elif action == "hold":
                await pool.run_until(lambda: jobs(pool)[0].status == 5, within=30)
                await pool.act("head", "alice", action="release", ids=[[cluster, 0]])
            if action != "remove":
                await pool.run_until(lambda: jobs(pool)[0].get("NumJobStarts") == 2 and running(pool) == 1, within=30)
            pool.assert_sound()

    run_virtual(work())


def test_one_that_this_machine_cannot_run_is_held_and_says_why() -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await submit_side(pool)
            await pool.submit("head", ad=LOCAL | {"RequestMemory": 10**6})
            await pool.run_until(lambda: jobs(pool)[0].status == 5, within=5)
            assert "its Requirements do not hold there" in jobs(pool)[0].get("HoldReason")

    run_virtual(work())


def test_one_that_is_to_run_again_does_after_its_end() -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            await submit_side(pool, 10.0, code=1)
            await pool.submit("head", ad=LOCAL | {"OnExitRemove": ["ExitCode == 0 || NumJobCompletions >= 3"]})
            await pool.run_until(lambda: pool.queued("head") == 0, within=100)
            (ad,) = await pool.ended("head")
            assert (ad["NumJobStarts"], ad["NumJobCompletions"]) == (3, 3)
            pool.assert_sound()

    run_virtual(work())


def test_nothing_is_started_before_the_jobs_that_run_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open the keepers takes time, and they can be opened once: else the schedd would not start any more."""
    opened = 0

    async def slowly(keepers: FakeKeepers) -> list[Any]:
        nonlocal opened
        opened += 1
        await asyncio.sleep(2)
        return list(keepers.machine.keepers.values())

    async def work() -> None:
        nonlocal opened
        async with SimPool(21, settings=QUICK | {"MAX_LOCAL_JOBS": "1"}, directory=tmp_path) as pool:
            await submit_side(pool)
            await pool.submit("head", count=2, ad=LOCAL)
            await pool.run_until(lambda: running(pool) == 1, within=5)
            await pool.kill("head")
            monkeypatch.setattr(FakeKeepers, "open", slowly)
            await pool.restart("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=200)
            assert opened == 1
            assert [ad["NumJobStarts"] for ad in await pool.ended("head")] == [1, 1]

    run_virtual(work())
