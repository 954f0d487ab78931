"""The four real roles together, on machines and a network that do not exist."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.testing import pool as simulated
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK


def test_a_job_goes_through() -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            cluster = await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            (ad,) = await pool.ended("head")
            assert (ad["ClusterId"], ad["JobStatus"], ad["ExitCode"], ad["NumJobStarts"]) == (
                cluster,
                4,
                0,
                1,
            )
            assert ad["LastRemoteHost"] == "slot1@m1"
            pool.assert_sound()

    run_virtual(work())


def test_a_hundred_machines_run_a_thousand_jobs() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(100):
                await pool.add(f"m{number}", "startd")
            await pool.submit("head", count=600, owner="alice")
            await pool.submit("head", count=400, owner="bob")
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert len(pool.witness.starts) == 1000
            assert len({machine for _, machine, _ in pool.witness.starts}) == 100
            pool.assert_sound()

    run_virtual(work())


def test_files_whose_names_are_not_utf_8() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd,startd")
            await pool.submit("head", ad={"Cmd": "/tmp/\udcff"})
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert [ad["Cmd"] for ad in await pool.ended("head")] == ["/tmp/\udcff"]
            pool.assert_sound()

    run_virtual(work())


def test_a_claim_serves_job_after_job() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd")
            await pool.submit("head", count=20)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert pool.traps.called["startd.claim"] == 1
            assert pool.traps.called["schedd.ended"] == 20
            pool.assert_sound()

    run_virtual(work())


def test_a_partitionable_slot_is_carved() -> None:
    async def work() -> None:
        async with SimPool(4, settings={**QUICK, "SLOTS": "partitionable"}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            node = await pool.add("m1", "startd")
            node.sensors.facts["Cpus"] = 8
            await pool.kill("m1")
            await pool.restart("m1")
            await pool.submit("head", count=8, ad={"RequestMemory": 1000})
            await pool.run_until(lambda: len(pool.witness.running) == 4, within=60)
            slots = pool.role("m1", "startd").slots
            assert slots["slot1"].resources["Memory"] == 96
            assert len(slots) == 5
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            await pool.run_until(lambda: len(slots) == 1, within=60)
            assert slots["slot1"].resources["Memory"] == 4096
            pool.assert_sound()

    run_virtual(work())


def test_users_share_equally() -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            heavy = await pool.submit("head", count=100, owner="heavy")
            light = await pool.submit("head", count=100, owner="light")
            await asyncio.sleep(1.0)  # virtual: both are known to the negotiator
            for number in range(10):
                await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(1000.0))
            await pool.run_until(lambda: len(pool.witness.running) == 10, within=60)
            mine = [job for job in pool.witness.running if job.startswith(f"{heavy}.")]
            others = [job for job in pool.witness.running if job.startswith(f"{light}.")]
            assert (len(mine), len(others)) == (5, 5)
            await pool.act("head", "heavy", action="remove", all=True, force=True)
            await pool.act("head", "light", action="remove", all=True, force=True)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            pool.assert_sound()

    run_virtual(work())


def test_held_released_and_removed() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(300.0))
            cluster = await pool.submit("head", count=2)
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
            running = next(iter(pool.witness.running))
            proc = int(running.split(".")[1])
            done = await pool.act("head", "alice", action="hold", ids=[[cluster, proc]], reason="later")
            assert done["done"] == 1
            await pool.run_until(lambda: queue.find(cluster, proc).status == 5, within=60)
            assert queue.find(cluster, proc).get("HoldReason") == "later"
            other = await pool.act("head", "bob", action="release", ids=[[cluster, proc]])
            assert "belongs to alice" in other["refused"][0]["why"]
            await pool.act("head", "alice", action="release", ids=[[cluster, proc]])
            assert queue.find(cluster, proc).status in (1, 2)
            await pool.act("head", "alice", action="remove", ids=[[cluster]])
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            assert {ad["JobStatus"] for ad in await pool.ended("head")} == {3}
            pool.assert_sound()

    run_virtual(work())


def test_the_collector_is_relearned_after_a_restart() -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            await pool.add("m1", "startd")
            await pool.submit("submit")
            await pool.run_until(lambda: pool.queued("submit") == 0, within=60)
            await pool.kill("head")
            await pool.submit("submit")
            await pool.restart("head")
            await pool.run_until(lambda: pool.queued("submit") == 0, within=120)
            pool.assert_sound()

    run_virtual(work())


def test_a_dead_central_manager_stops_no_running_job() -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("submit", "schedd")
            await pool.add("m1", "startd")
            await pool.submit("submit", count=5)
            await pool.run_until(lambda: len(pool.witness.running) == 1, within=60)
            await pool.kill("head")
            await pool.run_until(lambda: pool.queued("submit") == 0, within=200)
            assert len(pool.witness.starts) == 5
            pool.assert_sound(["submit", "m1"])

    run_virtual(work())


def test_the_example_of_the_page_runs() -> None:
    """The code in the module's own text."""
    lines = (simulated.__doc__ or "").splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("    async with"))
    code = "\n".join(itertools.takewhile(str.strip, lines[first:]))
    found: dict[str, Any] = {"SimPool": SimPool}
    code += "\n        pool.assert_sound()\n        assert len(await pool.ended('head')) == 10"
    exec(f"async def work() -> None:\n{code}", found)
    run_virtual(found["work"]())


def test_the_same_seed_is_the_same_run() -> None:
    async def work(seed: int) -> list[tuple[str, str, float]]:
        async with SimPool(seed, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(5):
                await pool.add(f"m{number}", "startd")
            await pool.submit("head", count=30)
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            return pool.witness.starts

    first, again, other = run_virtual(work(9)), run_virtual(work(9)), run_virtual(work(10))
    assert first == again
    assert first != other


def test_a_schedd_restarts_with_its_queue(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(11, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            first = await pool.submit("head", count=50)
            await pool.kill("head")
            await pool.restart("head")
            assert pool.queued("head") == 50
            second = await pool.submit("head")
            assert second > first
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(1.0))
            await pool.run_until(lambda: pool.queued("head") == 0, within=600)
            assert len(await pool.ended("head")) == 51
            pool.assert_sound()

    run_virtual(work())


def test_a_client_cannot_say_who_it_is_or_what_became_of_its_jobs() -> None:
    async def work() -> None:
        async with SimPool(12, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            forged = {
                "Owner": "root",
                "User": "root@x",
                "QDate": 1,
                "_run": {"claim": "x"},
                "JobStatus": 4,
                "ProcId": 9,
            }
            link = await pool.network.user("mallory", "head")
            params = {"ad": {"Cmd": "/bin/true", **forged}, "count": 2, "deltas": [forged, None]}
            await link.call("schedd.submit", params)
            await link.close()
            for job in pool.role("head", "schedd").queue.jobs():
                wire = job.wire()
                assert (wire["Owner"], wire["JobStatus"], wire["QDate"] > 1) == ("mallory", 1, True)
                assert wire["ProcId"] in (0, 1)
                assert not job.stored_note("_run")
            pool.assert_sound()

    run_virtual(work())


def test_what_a_simulation_cannot_mean_is_refused() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            with pytest.raises(PoolError, match=r"there is no such setting \(is SLOTS meant"):
                await pool.add("other", "schedd", settings={"SLOST": "4"})
            await pool.add("head", "collector,negotiator,schedd")
            with pytest.raises(PoolError, match="Requirements is a text"):
                await pool.submit("head", ad={"Requirements": "TARGET.Memory > 5"})

    run_virtual(work())


def test_a_client_of_a_simulated_pool_asks_what_a_nodes_answers() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            async with await pool.connect("alice") as user:
                info = await user.info()
                assert (info["node"], info["identity"]) == ("head", "alice")
                assert info["roles"] == ["collector", "negotiator", "schedd"]
                names = {setting["name"] for setting in await user.call("node.settings")}
                assert "CLAIM_LEASE" in names
                (result,) = await (await user.submit({"executable": "/bin/true", "hold": True})).results()
                assert result.state == "held"

    run_virtual(work())
