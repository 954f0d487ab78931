"""Work flows in a pool that does not exist: nodes in their order, scripts, restarts, holds and removals."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

SCRIPT = {"program": "/bin/script"}
Code = Callable[[str, str, int], int]


def template(count: int = 1) -> dict[str, Any]:
    ad = {"Cmd": "/bin/node", "JobUniverse": 5, "Iwd": "/home/alice", "Requirements": ["true"], "RequestCpus": 1}
    return {"ad": ad, "deltas": None}


def node(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "jobs": [[0, 0, 1]], **more}


def plan(nodes: list[dict[str, Any]], *edges: list[list[int]], folder: str = "/nowhere", **more: Any) -> dict[str, Any]:
    whole = {"file": f"{folder}/it.dag", "iwd": folder, "nodes": nodes, "edges": list(edges)}
    return whole | {"templates": [template()]} | more


DIAMOND = [[0], [1, 2]], [[1, 2], [3]]


class Machines:
    """A pool whose jobs end as a function of their node says.

    Args:
        code: the exit code by node, script's moment or "", and attempt.
    """

    def __init__(self, pool: SimPool, code: Code = lambda *_: 0, seconds: float = 5.0) -> None:
        self.pool = pool
        self.code = code
        self.seconds = seconds
        self.known: dict[tuple[int, int], int] = {}

    def behave(self, spec: Any) -> Behaviour:
        number = tuple(spec.claim["job"])
        if number not in self.known:  # the schedd may be dead when its job is restarted
            job = self.pool.role("head", "schedd").queue.find(*number)
            name, moment = str(job.get("DAGNodeName")), str(job.get("DAGScript") or "")
            self.known[number] = self.code(name, moment, int(job.get("DAGManNodeRetry")))
        return Behaviour(self.seconds + number[0] % 7 * 3, self.known[number])

    async def start(self, machines: int = 2) -> None:
        await self.pool.add("head", "collector,negotiator,schedd", behave=self.behave)
        for number in range(machines):
            await self.pool.add(f"m{number}", "startd", behave=self.behave)

    async def submit(self, wire: dict[str, Any], owner: str = "alice") -> int:
        schedd = self.pool.role("head", "schedd")
        cluster = await schedd.workflows.submit(owner, wire)
        return int(cluster.id)

    async def end(self, number: int) -> dict[str, Any]:
        await self.pool.run_until(lambda: self.pool.queued("head") == 0, within=40000)
        return next(ad for ad in await self.pool.ended("head") if ad["ClusterId"] == number)

    async def effects(self) -> list[tuple[str, str, int]]:
        """Node, script and attempt of each job that ran, in the order of their clusters."""
        ads = [ad for ad in await self.pool.ended("head") if "DAGNodeName" in ad]
        ads.sort(key=lambda ad: ad["ClusterId"])
        return [(ad["DAGNodeName"], ad.get("DAGScript", ""), ad["DAGManNodeRetry"]) for ad in ads]


def test_a_diamond_runs_in_its_order() -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([node(name) for name in "ABCD"], *DIAMOND))
            status = await pool.role("head", "schedd").workflows.status(number, nodes=True)
            assert status["counts"]["NOT_READY"] == 3
            ad = await machines.end(number)
            assert (ad["ExitCode"], ad["DAG_NodesDone"], ad["DAG_NodesTotal"], ad["JobStatus"]) == (0, 4, 4, 4)
            assert [name for name, _, _ in await machines.effects()] == ["A", "B", "C", "D"]
            ads = {ad["DAGNodeName"]: ad for ad in await pool.ended("head") if "DAGNodeName" in ad}
            assert ads["D"]["DAGParentNodeNames"] == "B,C"
            assert {ad["DAGManJobId"] for ad in ads.values()} == {number}
            assert pool.role("head", "schedd").ledger.meta.keys().isdisjoint({f"dag.{number}"})
            pool.assert_sound()

    run_virtual(work())


def test_scripts_run_beside_the_schedd_and_retries_run_all_of_a_node() -> None:
    def code(name: str, moment: str, attempt: int) -> int:
        return int(moment == "POST" and attempt == 0)

    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            machines = Machines(pool, code)
            await machines.start()
            words = {"arguments": ["$JOB", "$RETURN", "$JOBID", "$RETRY", "x=$JOB"]}
            scripts = {"PRE": SCRIPT, "POST": SCRIPT | words}
            number = await machines.submit(plan([node("A", retries=2, scripts=scripts)]))
            assert (await machines.end(number))["ExitCode"] == 0
            parts = [(moment, attempt) for _, moment, attempt in await machines.effects()]
            assert parts == [("PRE", 0), ("", 0), ("POST", 0), ("PRE", 1), ("", 1), ("POST", 1)]
            ads = [ad for ad in await pool.ended("head") if ad.get("DAGScript") == "POST"]
            jobs = [
                ad["ClusterId"] for ad in await pool.ended("head") if ad.get("DAGNodeName") and "DAGScript" not in ad
            ]
            assert ads[0]["Arguments"] == f"A 0 {jobs[0]}.0 1 x=$JOB"
            assert {ad["LastRemoteHost"] for ad in ads} == {"local@head"}

    run_virtual(work())


def test_a_failure_leaves_a_rescue_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            machines = Machines(pool, lambda name, *_: int(name == "B"))
            await machines.start()
            (tmp_path / "it.dag.rescue001").write_text("")
            wire = plan([node(name) for name in "ABCD"], *DIAMOND, folder=str(tmp_path))
            ad = await machines.end(await machines.submit(wire))
            assert (ad["ExitCode"], ad["DAG_Status"], ad["DAG_NodesFailed"], ad["DAG_NodesFutile"]) == (1, 2, 1, 1)

    run_virtual(work())
    text = (tmp_path / "it.dag.rescue002").read_text()
    assert [line for line in text.splitlines() if line.startswith("DONE")] == ["DONE A", "DONE C"]
    assert "#   B,<ENDLIST>" in text
    assert '"exitcode": 1' in (tmp_path / "it.dag.metrics").read_text()
    assert (tmp_path / "it.dag.dagman.out").read_text().endswith("EXITING WITH STATUS 1\n")


def test_a_hold_starts_nothing_new_and_a_release_goes_on() -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([node("A"), node("B")], [[0], [1]]))
            answer = await pool.act("head", "alice", action="hold", ids=[[number]])
            assert answer["done"] == 1
            await pool.run_until(lambda: pool.queued("head") == 1, within=100)
            assert await machines.effects() == [("A", "", 0)]
            assert pool.role("head", "schedd").queue.find(number, 0).status == 5
            await pool.act("head", "alice", action="release", ids=[[number]])
            assert (await machines.end(number))["ExitCode"] == 0
            assert await machines.effects() == [("A", "", 0), ("B", "", 0)]

    run_virtual(work())


@pytest.mark.parametrize("held", [False, True])
def test_removal_takes_its_jobs_along(held: bool, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            machines = Machines(pool, seconds=500.0)
            await machines.start()
            nodes = [node("A"), node("B"), node("C")]
            number = await machines.submit(plan(nodes, [[0, 1], [2]], folder=str(tmp_path)))
            await pool.run_until(lambda: sum(job.status == 2 for job in pool.role("head", "schedd").queue.jobs()) == 3)
            if held:
                await pool.act("head", "alice", action="hold", ids=[[number]])
            await pool.act("head", "alice", action="remove", ids=[[number]])
            ad = await machines.end(number)
            assert ad["JobStatus"] == 3
            assert {ad["JobStatus"] for ad in await pool.ended("head")} == {3}

    run_virtual(work())
    assert "Nodes that failed: 0" in (tmp_path / "it.dag.rescue001").read_text()


def test_an_inner_work_flow_is_one_node() -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            inner = plan([node("X"), node("Y", priority=10)], [[0], [1]])
            nodes = [node("A"), {"name": "B", "kind": "SUBDAG", "plan": inner, "priority": 100}, node("C")]
            number = await machines.submit(plan(nodes, [[0], [1]], [[1], [2]]))
            assert (await machines.end(number))["ExitCode"] == 0
            assert [name for name, _, _ in await machines.effects()] == ["A", "B", "X", "Y", "C"]
            ads = {ad["DAGNodeName"]: ad for ad in await pool.ended("head") if "DAGNodeName" in ad}
            assert (ads["X"]["JobPrio"], ads["Y"]["JobPrio"], ads["Y"]["DAGManJobId"]) == (
                100,
                110,
                ads["B"]["ClusterId"],
            )

    run_virtual(work())


def test_only_its_owner_stops_it_and_what_is_no_plan_is_refused() -> None:
    async def work() -> None:
        async with SimPool(7, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([node("A")]))
            answer = await pool.act("head", "bob", action="remove", ids=[[number]])
            assert "belongs to alice" in answer["refused"][0]["why"]
            for wire in ({}, plan([]), plan([node("A", jobs=[[1, 0, 1]])]), plan([node("A")], [[0], [5]])):
                with pytest.raises(PoolError, match="no work flow"):
                    await machines.submit(wire)
            assert (await machines.end(number))["ExitCode"] == 0

    run_virtual(work())


def test_it_is_submitted_and_seen_over_the_network() -> None:
    async def work() -> None:
        async with SimPool(8, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            whole = plan([], [[0], [1]])
            del whole["nodes"]
            async with asking(pool) as client:
                async with client.streaming("schedd.submit_dag", {"plan": whole}) as stream:
                    await stream.send(["nodes", [node("A"), node("B")]])
                    await stream.send("done")
                    answer = [one async for one in stream]
                assert answer[0]["nodes"] == 2
                status = await client.call("schedd.dag_status", {"cluster": answer[0]["cluster"]})
                assert status["counts"]["SUBMITTED"] == 1
                await machines.end(answer[0]["cluster"])
                with pytest.raises(PoolError, match="there is no work flow"):
                    await client.call("schedd.dag_status", {"cluster": answer[0]["cluster"]})

    run_virtual(work())


def test_killed_at_every_step_each_effect_happens_once(tmp_path: Path) -> None:
    """A work flow of 50 nodes; the schedd's node is killed after each thing that becomes durable."""

    def code(name: str, moment: str, attempt: int) -> int:
        return int(name in ("n7", "n20") and not moment and attempt == 0)

    nodes = []
    for number in range(50):
        scripts = {"PRE": SCRIPT} if number % 10 == 3 else {"POST": SCRIPT} if number % 10 == 6 else {}
        nodes.append(node(f"n{number}", retries=1, scripts=scripts))
    nodes.append(node("F", kind="FINAL"))
    edges = [[[max(0, at - 3)], [at]] for at in range(1, 50)]

    async def work() -> None:
        async with SimPool(9, settings=QUICK | {"CLAIM_LEASE": "600"}, directory=tmp_path) as pool:
            machines = Machines(pool, code, seconds=20.0)
            await machines.start(6)
            number = await machines.submit(plan(nodes, *edges, max_jobs=6))
            kills, seen = 0, set[int]()

            def clusters() -> set[int]:
                return set(pool.role("head", "schedd").queue.clusters)

            def changed() -> bool:
                return clusters() != seen

            while pool.queued("head"):
                seen = clusters()
                await pool.run_until(changed, within=40000)
                if not pool.queued("head"):
                    break
                await pool.kill("head")
                await pool.restart("head")
                kills += 1
            ad = await machines.end(number)
            assert (ad["ExitCode"], ad["DAG_NodesDone"]) == (0, 51)
            found = await machines.effects()
            assert len(found) == len(set(found)), "each effect once"
            assert len(found) == 51 + 2 + 5 + 5
            assert kills > 60
            pool.assert_sound()

    run_virtual(work())


def test_a_node_waits_for_room_in_the_queue() -> None:
    async def work() -> None:
        async with SimPool(10, settings=QUICK | {"MAX_JOBS_PER_OWNER": "2"}) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([node("A"), node("B"), node("C")]))
            assert (await machines.end(number))["ExitCode"] == 0
            assert len(await machines.effects()) == 3

    run_virtual(work())


def test_jobs_of_a_work_flow_that_is_gone_are_removed_after_a_restart(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(11, settings=QUICK, directory=tmp_path) as pool:
            machines = Machines(pool, seconds=500.0)
            await machines.start()
            number = await machines.submit(plan([node("A"), node("B"), node("C")]))
            await pool.run_until(lambda: pool.queued("head") == 4, within=10)
            await pool.act("head", "alice", action="hold", ids=[[number]])
            schedd = pool.role("head", "schedd")
            schedd.workflows.running.clear()  # it dies between the removal and what follows from it
            await pool.act("head", "alice", action="remove", ids=[[number]])
            assert pool.queued("head") == 3
            await pool.kill("head")
            await pool.restart("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=400)
            assert {ad["JobStatus"] for ad in await pool.ended("head")} == {3}

    run_virtual(work())


def test_save_points_and_scripts_about_holds(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(12, settings=QUICK) as pool:
            machines = Machines(pool, seconds=50.0)
            await machines.start()
            nodes = [node("A"), node("B", save=f"{tmp_path}/saves/b.save", scripts={"HOLD": SCRIPT})]
            number = await machines.submit(plan(nodes, [[0], [1]], folder=str(tmp_path)))
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: any(job.get("DAGNodeName") == "B" and job.status == 2 for job in queue.jobs()))
            (job,) = [job for job in queue.jobs() if job.get("DAGNodeName") == "B"]
            await pool.act("head", "alice", action="hold", ids=[list(job.id)])
            await pool.run_until(lambda: job.status == 5 and len(queue) == 2, within=200)
            await pool.act("head", "alice", action="release", ids=[list(job.id)])
            assert (await machines.end(number))["ExitCode"] == 0
            assert ("B", "HOLD", 0) in await machines.effects()

    run_virtual(work())
    assert "DONE A\n" in (tmp_path / "saves" / "b.save").read_text()
