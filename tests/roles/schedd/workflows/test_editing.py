"""Work flows edited, tried again and submitted twice while they run, with kills of the schedd."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.workflow import WorkflowPlan
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.schedd.workflows.test_workflows import Machines, node, plan
from tests.roles.support import QUICK, asking


def named(name: str, **more: Any) -> dict[str, Any]:
    return node(name, source="one", **more)


async def edit(pool: SimPool, number: int, wire: dict[str, Any], **more: Any) -> dict[str, Any]:
    workflow = pool.role("head", "schedd").workflows.owned(number, "alice")
    answer: dict[str, Any] = await workflow.edits.edit(WorkflowPlan.from_wire(wire), **more)
    return answer


@pytest.mark.parametrize("moment", ["none", "before", "after"])
def test_an_edit_is_one_durable_step(moment: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK | {"CLAIM_LEASE": "600"}, directory=tmp_path) as pool:
            machines = Machines(pool, seconds=60.0)
            await machines.start()
            number = await machines.submit(plan([named("A"), named("B"), named("C")], [[0], [1]], [[1], [2]]))
            await asyncio.sleep(20)
            new = plan([named("A"), named("C", priority=5), named("D"), named("E")], [[0], [1, 2]], [[1, 2], [3]])
            if moment == "before":
                ledger = pool.role("head", "schedd").ledger
                write, calls = ledger.write_changes, 0

                async def never(*changes: Any) -> None:
                    nonlocal calls
                    calls += 1
                    await asyncio.Event().wait()

                ledger.write_changes = never
                task = asyncio.create_task(edit(pool, number, new))
                await asyncio.sleep(1)
                assert calls == 1
                ledger.write_changes = write
                await pool.kill("head")
                task.cancel()
            else:
                found = await edit(pool, number, new)
                assert (found["added"], found["removed"]) == (["D", "E"], ["B"])
                assert found["changed"] == [["C", ["priority", "parents"]]]
                if moment == "after":
                    await pool.kill("head")
            if moment != "none":
                await pool.restart("head")
            ad = await machines.end(number)
            names = [name for name, _, _ in await machines.effects()]
            assert ad["ExitCode"] == 0
            assert names == (["A", "B", "C"] if moment == "before" else ["A", "C", "D", "E"])
            assert pool.role("head", "schedd").ledger.meta.keys().isdisjoint({f"dag.{number}"})

    run_virtual(work())


def test_nothing_begins_while_an_edit_is_made_and_refused_edits_change_nothing() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([named("A"), named("B")], [[0], [1]]))
            await asyncio.sleep(1)
            found = await edit(pool, number, plan([named("B"), named("X")]))
            assert found["counts"]["refused"] == 1
            assert found["refused"][0][0] == "A"
            assert "cannot be taken out" in found["refused"][0][1]
            dry = await edit(pool, number, plan([named("A"), named("B"), named("X")], [[0], [1]]), dry=True)
            assert dry["added"] == ["X"]
            kept = await edit(pool, number, plan([named("B"), named("X")], [[0], [1]]), keeps_begun=True)
            assert (kept["kept"], kept["added"]) == (["A"], ["X"])
            assert (await machines.end(number))["DAG_NodesDone"] == 3
            with pytest.raises(PoolError, match="no work flow"):
                await edit(pool, number, plan([named("A")]))

    run_virtual(work())


def test_an_open_work_flow_waits_for_more_nodes(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK, directory=tmp_path) as pool:
            machines = Machines(pool)
            await machines.start()
            number = await machines.submit(plan([named("A")], open=True))
            await asyncio.sleep(300)
            assert pool.queued("head") == 1
            await pool.kill("head")
            await pool.restart("head")
            await asyncio.sleep(30)
            assert pool.queued("head") == 1
            await edit(pool, number, plan([named("A"), named("B")], [[0], [1]], open=True))
            await asyncio.sleep(300)
            status = await pool.role("head", "schedd").workflows.status(number, nodes=True)
            assert (status["counts"]["DONE"], status["open"]) == (2, True)
            await edit(pool, number, plan([named("A"), named("B")], [[0], [1]]))
            assert (await machines.end(number))["ExitCode"] == 0

    run_virtual(work())


def test_failed_nodes_are_tried_again_while_others_run() -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK) as pool:
            machines = Machines(pool, lambda name, _, attempt: int(name == "A" and attempt < 1))
            await machines.start()
            number = await machines.submit(plan([named("A"), named("B"), named("L")], [[0], [1]], open=True))
            await asyncio.sleep(200)
            schedd = pool.role("head", "schedd")
            status = await schedd.workflows.status(number, nodes=False)
            assert (status["counts"]["ERROR"], status["counts"]["FUTILE"]) == (1, 1)
            async with asking(pool) as client:
                with pytest.raises(PoolError, match="node B of work flow"):
                    await client.call("schedd.retry_dag", {"cluster": number, "names": ["B"]})
                assert await client.call("schedd.retry_dag", {"cluster": number}) == {"revived": ["A"]}
                with pytest.raises(PoolError, match="no node of work flow"):
                    await client.call("schedd.retry_dag", {"cluster": number})
            await edit(pool, number, plan([named("A"), named("B"), named("L")], [[0], [1]]))
            assert (await machines.end(number))["ExitCode"] == 0
            assert ("A", "", 1) in await machines.effects()

    run_virtual(work())


def test_only_its_owner_edits_it_over_the_network() -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            numbers = {owner: await machines.submit(plan([named("A")]), owner) for owner in ("alice", "bob")}
            whole = plan([], [[0], [1]])
            del whole["nodes"]
            async with asking(pool) as client:
                for owner, number in numbers.items():
                    sent = {"plan": whole, "cluster": number}
                    async with client.streaming("schedd.edit_dag", sent) as stream:
                        await stream.send(["nodes", [named("A"), named("Z")]])
                        await stream.send("done")
                        if owner == "alice":
                            assert [one["added"] async for one in stream] == [["Z"]]
                        else:
                            with pytest.raises(PoolError, match="belongs to bob"):
                                [one async for one in stream]

    run_virtual(work())


def test_two_runs_of_one_file_have_files_of_their_own(tmp_path: Path) -> None:
    async def work() -> int:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            machines = Machines(pool, lambda name, *_: int(name == "B"))
            await machines.start()
            files = {"status": f"{tmp_path}/it.status", "jobstate": f"{tmp_path}/it.log"}
            wire = plan([named("A"), named("B")], [[0], [1]], folder=str(tmp_path), files=files)
            schedd = pool.role("head", "schedd")
            first, second = await asyncio.gather(machines.submit(wire), machines.submit(wire))
            named_apart = [number for number in (first, second) if schedd.workflows.beside_which(number)]
            assert len(named_apart) == 1
            number = named_apart[0]
            assert schedd.workflows.beside_which(number) == {
                "beside": first + second - number,
                "files": f"{tmp_path}/it.dag.{number}",
            }
            await pool.kill("head")
            await pool.restart("head")
            await machines.end(number)
            third = await machines.submit(wire)
            assert pool.role("head", "schedd").workflows.beside_which(third) == {}
            await machines.end(third)
            return number

    number = run_virtual(work())
    names = {path.name for path in tmp_path.glob("it.*")}
    own = {f"it.dag.{number}.{end}" for end in ("dagman.out", "metrics", "rescue001")}
    assert own | {f"it.status.{number}", f"it.log.{number}"} <= names
    assert {"it.dag.rescue001", "it.dag.rescue002", "it.dag.metrics", "it.status", "it.log"} <= names
    assert (tmp_path / f"it.log.{number}").read_text().count("DAGMAN_FINISHED") == 1
