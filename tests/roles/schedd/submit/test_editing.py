"""`poolnode qedit`: attributes of queued jobs, what may be changed, by whom, and what follows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.jobs.gangs import GangPart, attributes_of, parts_of
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from pool.wire import RemoteError
from tests.roles.support import QUICK, asking, lasting


async def one_machine(pool: SimPool, seconds: float = 10.0) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    await pool.add("m1", "startd", behave=lambda spec: lasting(seconds))


def only(pool: SimPool) -> Any:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return job


def test_a_job_that_asks_for_less_is_matched(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await one_machine(pool)
            ad = {"Requirements": ["TARGET.Memory >= RequestMemory"], "RequestMemory": 10**6}
            await pool.submit("head", ad=ad)
            await pool.run_until(lambda: pool.wall() % 1000 > 300)
            assert only(pool).status == 1
            async with asking(pool) as user:
                acted = await user.cluster(only(pool).cluster.id, 1).edit(RequestMemory="64")
                assert acted.done == 1
            await pool.kill("head")
            await pool.restart("head")
            assert only(pool).get("RequestMemory") == 64
            await pool.run_until(lambda: pool.queued("head") == 0, within=300)
            pool.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"Owner": '"root"'}, "Owner cannot be changed"),
        ({"clusterid": "5"}, "clusterid cannot be changed"),
        ({"JobStatus": "2"}, "JobStatus cannot be changed"),
        ({"AcctGroup": '"physics"'}, "AcctGroup cannot be changed"),
        ({"JobPrio": "1", "User": '"a"'}, "User cannot be changed"),
        ({"_run": "1"}, "no name of an attribute"),
        ({"a b": "1"}, "no name of an attribute"),
        ({"Rank": "1 +"}, "no expression"),
        ({"Rank": 5}, "no expression"),
        ({}, "needs attributes"),
        ([], "needs attributes"),
    ],
)
def test_what_is_not_the_owners_to_say_is_refused_by_name(attributes: Any, said: str) -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head")
            before = only(pool).wire()
            with pytest.raises(RemoteError, match=said):
                await pool.act("head", "alice", action="edit", all=True, edits=attributes)
            assert only(pool).wire() == before

    run_virtual(work())


def test_nobody_edits_anothers_jobs() -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            cluster = await pool.submit("head")
            done = await pool.act("head", "bob", action="edit", ids=[[cluster, 0]], edits={"Rank": "1"})
            assert (done["done"], "belongs to alice" in done["refused"][0]["why"]) == (0, True)

    run_virtual(work())


def test_a_release_by_expression_is_followed_by_a_start_at_once() -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK | {"NEGOTIATION_INTERVAL": "300"}) as pool:
            await one_machine(pool)
            await pool.submit("head", ad={"JobStatus": 5, "PeriodicRelease": ["time() - QDate > 100"]})
            await pool.run_until(lambda: pool.queued("head") == 0, within=250)
            ((_, _, began),) = pool.witness.starts  # looked at each minute
            assert 119.0 < began < 122.0
            pool.assert_sound()

    run_virtual(work())


def test_an_expression_that_came_later_acts_too() -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head")
            await pool.act("head", "alice", action="edit", all=True, edits={"PeriodicHold": "JobStatus == 1"})
            await pool.run_until(lambda: only(pool).status == 5, within=100)

    run_virtual(work())


def test_a_job_takes_from_its_machine_what_it_names() -> None:
    async def work() -> None:
        seen: list[Any] = []

        def behave(spec: Any) -> Any:
            seen.append(spec)
            return lasting(5)

        async with SimPool(6, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=behave)
            takes = {"Arguments": "--on $$(Machine) $$([Memory / 2])", "Out": "/tmp/out.$$(Machine)"}
            await pool.submit("head", ad=takes)
            await pool.run_until(lambda: pool.queued("head") == 0, within=100)
            assert seen[0].argv[1:] == ("--on", "m1", "2048")
            assert seen[0].stdout == "/tmp/out.m1"
            await pool.submit("head", ad={"Arguments": "$$(Nothing)"})
            await pool.run_until(lambda: only(pool).status == 5, within=100)
            assert "$$(Nothing) has no value on its machine" in only(pool).get("HoldReason")
            pool.assert_sound()

    run_virtual(work())


def test_the_ad_says_which_job_it_is_and_what_memory_it_uses() -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            await one_machine(pool, 500.0)
            await pool.submit("head", count=2)
            first = next(iter(pool.role("head", "schedd").queue.jobs()))
            assert first.ad().value("GlobalJobId") == f"head#{first.cluster.id}.0#{first.get('QDate')}"
            await pool.run_until(lambda: first.get("ResidentSetSize") is not None, within=200)
            assert first.ad().value("MemoryUsage") == (first.get("ResidentSetSize") + 1023) // 1024

    run_virtual(work())


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({"RequestMemory": "64"}, "node 2-3 has its own RequestMemory"),
        ({"Arguments": '"-x"', "requestmemory": "64"}, "node 2-3 has its own requestmemory"),
        ({"Out": '"all.out"'}, "4 nodes would write the one file all.out"),
        ({"ParallelShutdownPolicy": '"never"'}, "ParallelShutdownPolicy is one of WAIT_FOR_NODE0"),
        ({"OnProcessFailure": '"shrug"'}, "OnProcessFailure is one of "),
        ({"Out": '"n.#pArAlLeLnOdE#"', "ParallelShutdownPolicy": '"WAIT_FOR_ALL"', "Arguments": '"-x"'}, None),
    ],
)
def test_a_change_that_the_nodes_of_a_job_would_not_follow_is_refused(edits: dict[str, str], said: str | None) -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            parts = [GangPart(count=2), GangPart((), {"RequestMemory": 10}, 2)]
            cluster = await pool.submit("head", ad={"JobUniverse": 11, **attributes_of(parts, apart=False)})
            before = only(pool).wire()
            done = await pool.act("head", "alice", action="edit", ids=[[cluster, 0]], edits=edits)
            if said is None:
                assert (done["done"], only(pool).get("Arguments")) == (1, "-x")
            else:
                assert done["done"] == 0
                assert said in done["refused"][0]["why"]
                assert only(pool).wire() == before

    run_virtual(work())


LONG = "{ " + ", ".join(["[ Count = 1 ]"] * 10_001) + " }"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"GangParts": ['{ [ Count = 3; Owner = "root" ] }']}, "Owner is not for a part"),
        ({"GangParts": ['{ [ Count = 3; AcctGroup = "physics" ] }']}, "AcctGroup is not for a part"),
        ({"GangParts": ["{ [ Count = 3; GangParts = { [ Count = 3 ] } ] }"]}, "GangParts is not for a part"),
        ({"GangParts": ["{ [ Count = 3; JobUniverse = 12 ] }"]}, "JobUniverse is not for a part"),
        ({"GangParts": ['{ [ Count = 3; Cmd = { { "/bin/sh" } } ] }']}, "Cmd is neither a value nor an expression"),
        ({"GangParts": ["{ [ Count = 3; Cmd = [ a = 1 ] ] }"]}, "Cmd of a part is neither"),
        ({"GangParts": ["{ [ Count = 3; Cmd = error ] }"]}, "Cmd of a part is neither"),
        ({"GangParts": ["{ { [ Count = 3 ] } }"]}, "is not a list of ads"),
        ({"GangParts": ["{ [ Count = 0 ] }"]}, "no number of parts"),
        ({"GangParts": ["{ [ Count = -1 ], [ Count = 3 ] }"]}, "no number of parts"),
        ({"GangParts": ["{ [ Count = 9999999999999999999999 ] }"]}, "no number of parts"),
        ({"GangParts": [LONG]}, "more than 20000 names"),
        ({"GangParts": ["{ [ Count = 3 ] }"], "MaxHosts": 4}, "MaxHosts is '4', and GangParts has 3 parts"),
        ({"GangParts": ["{ [ Count = 3 ] }"], "MinHosts": "x"}, "MinHosts is 'x'"),
        ({"GangParts": ['{ [ Processes = "a" ] }']}, "a part has the process 'a'"),
        ({"GangParts": [{"a": 1}]}, "neither a value nor an expression"),
        ({"GangParts": {"a": 1}}, "GangParts"),
    ],
)
def test_lists_of_parts_that_no_description_makes_are_refused(more: dict[str, Any], said: str) -> None:
    async def work() -> None:
        async with SimPool(9, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            with pytest.raises((PoolError, RemoteError), match=said):
                await pool.submit("head", ad={"JobUniverse": 11, **more})
            assert not list(pool.role("head", "schedd").queue.jobs())
            pool.assert_sound()

    run_virtual(work())


def test_a_list_of_parts_that_chance_decides_is_decided_once() -> None:
    async def work() -> None:
        async with SimPool(10, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.submit("head", ad={"JobUniverse": 11, "GangParts": ["{ [ Count = 1 + random(1000) ] }"]})
            assert "random" not in str(only(pool).wire()["GangParts"])
            assert 1 <= len(parts_of(only(pool).ad())) <= 1000

    run_virtual(work())
