"""The ads of slots while they are claimed (D6), and how often they are sent."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import BEGINNING, SimPool
from tests.roles.support import QUICK, told


def test_a_claimed_slot_goes_on_advertising() -> None:
    async def work() -> None:
        async with SimPool(51, settings={**QUICK, "RANK": "TARGET.Worth", "SLOT_WEIGHT": "Cpus * 2"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0))
            await asyncio.sleep(1.0)
            free, secret = told(pool, "slot1@m1")
            assert (free["State"], free["Activity"]) == ("Unclaimed", "Idle")
            assert "CurrentRank" not in free
            await asyncio.sleep(99.0)
            wants = {"Worth": 2.5, "ConcurrencyLimits": "matlab:2"}
            cluster = await pool.submit("head", ad=wants)
            await asyncio.sleep(10.0)
            ad, id_now = told(pool, "slot1@m1")
            assert {name: ad[name] for name in ("State", "Activity", "RemoteUser", "RemoteOwner", "ScheddName")} == {
                "State": "Claimed",
                "Activity": "Busy",
                "RemoteUser": "alice@head",
                "RemoteOwner": "alice",
                "ScheddName": "head",
            }
            assert (ad["JobId"], ad["CurrentRank"], ad["ConcurrencyLimits"]) == (f"{cluster}.0", 2.5, "matlab:2")
            assert ad["EnteredCurrentState"] == ad["ClaimStart"] == ad["JobStart"] == BEGINNING + 100
            assert (ad["SlotWeight"], ad["MaxJobRetirementTime"], ad["Cpus"]) == (["Cpus * 2"], 0, 1)
            assert id_now["ClaimId"] != secret["ClaimId"]
            pool.assert_sound()

    run_virtual(work())


def test_dynamic_slots_may_be_preempted_and_leaving_ones_not() -> None:
    async def work() -> None:
        async with SimPool(52, settings={**QUICK, "SLOTS": "partitionable"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0, stubborn=True))
            await pool.submit("head", ad={"JobMaxVacateTime": 100})
            await pool.run_until(lambda: bool(pool.witness.running), within=60)
            await asyncio.sleep(1.0)
            ad, private = told(pool, "slot1_1@m1")
            assert ad["Activity"] == "Busy"
            assert private["ClaimId"]
            await pool.act("head", "alice", action="vacate", all=True)
            startd = pool.role("m1", "startd")
            await startd.evict(startd.slots["slot1_1"], True)
            await asyncio.sleep(1.0)
            ad, private = told(pool, "slot1_1@m1")
            assert (ad["State"], private) == ("Preempting", {})
            pool.assert_sound()

    run_virtual(work())


def test_jobs_that_come_and_go_on_a_claim_are_told_once_in_a_while() -> None:
    async def work() -> None:
        async with SimPool(53, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(0.02))
            await asyncio.sleep(1.0)
            await pool.submit("head", count=500)
            said: set[Any] = set()

            def over() -> bool:
                said.add(_known(pool))
                return pool.queued("head") == 0

            await pool.run_until(over, within=600, step=0.02)
            took = asyncio.get_running_loop().time()
            assert len(pool.witness.starts) == 500
            assert 2 < len(said) <= took + 4
            await asyncio.sleep(5.0)
            assert told(pool, "slot1@m1")[0]["State"] == "Unclaimed"
            pool.assert_sound()

    run_virtual(work())


def _known(pool: SimPool) -> Any:
    ad, _ = told(pool, "slot1@m1")
    return ad.get("Activity"), ad.get("JobId")


@pytest.mark.parametrize("kind", ["2", "partitionable"])
def test_each_job_has_gpus_of_its_own_also_after_a_restart(kind: str) -> None:
    async def work() -> None:
        async with SimPool(54, settings={**QUICK, "SLOTS": kind}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0))
            node.sensors.facts.update({"Cpus": 4, "GPUs": 2, "DetectedGPUs": "GPU-a,GPU-b"})
            await pool.kill("m1")
            await pool.restart("m1")
            await pool.submit("head", count=2, ad={"RequestGPUs": 1})
            await pool.run_until(lambda: len(pool.witness.running) == 2, within=60)
            for _ in range(2):
                await asyncio.sleep(2.0)
                claimed = [slot for slot in pool.role("m1", "startd").slots.values() if slot.claim is not None]
                ads = [told(pool, f"{slot.name}@m1")[0] for slot in claimed]
                assert sorted(ad["AssignedGPUs"] for ad in ads) == ["GPU-a", "GPU-b"]
                await pool.kill("m1")
                await pool.restart("m1")
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            await pool.run_until(lambda: not pool.role("m1", "startd").claims, within=60)
            whole = [slot for slot in pool.role("m1", "startd").slots.values() if slot.gpus]
            assert sorted(name for slot in whole for name in slot.gpus) == ["GPU-a", "GPU-b"]
            pool.assert_sound()

    run_virtual(work())


def test_what_changes_all_the_time_is_told_with_each_regular_update() -> None:
    async def work() -> None:
        async with SimPool(55, settings={**QUICK, "UPDATE_INTERVAL": "30"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd")
            node.sensors.touched = pool.wall()
            await asyncio.sleep(305.0)
            assert 270 <= told(pool, "slot1@m1")[0]["KeyboardIdle"] <= 305

    run_virtual(work())


def test_a_slots_load_is_its_jobs_and_the_owners() -> None:
    async def work() -> None:
        async with SimPool(56, settings={**QUICK, "SLOTS": "2", "UPDATE_INTERVAL": "30"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd", behave=lambda spec: Behaviour(500.0))
            node.sensors.jobs_load, node.sensors.owners_load = 3.0, 0.5
            await pool.submit("head")
            await asyncio.sleep(100.0)
            ads = [told(pool, f"slot{number}@m1")[0] for number in (1, 2)]
            ads.sort(key=lambda ad: ad["State"])
            assert [(ad["CondorLoadAvg"], ad["LoadAvg"], ad["TotalLoadAvg"]) for ad in ads] == [
                (3.0, 3.5, 3.5),
                (0.0, 0.5, 3.5),
            ]

    run_virtual(work())
