"""Files that a work flow writes while it runs, in a pool that does not exist, with the schedd killed at every step."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.schedd.workflows.test_workflows import SCRIPT, Machines, node, plan
from tests.roles.support import QUICK

LINE = re.compile(r"\d+ (?:INTERNAL \*\*\* [A-Z_]+(?: [0-9.]+)? \*\*\*|\S+ [A-Z_]+ (?:-|-?[0-9.]+) \S+ - \d+)")


async def killed_until_the_end(pool: SimPool) -> int:
    """The schedd's node is killed at each change of the queue; how often."""
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
    return kills


@pytest.mark.parametrize("kills", [False, True])
def test_the_job_state_log_has_each_step_once(kills: bool, tmp_path: Path) -> None:
    def code(name: str, moment: str, attempt: int) -> int:
        return int(name == "B" and moment == "POST" and attempt == 0)

    async def work() -> int:
        async with SimPool(1, settings=QUICK | {"CLAIM_LEASE": "600"}, directory=tmp_path) as pool:
            machines = Machines(pool, code)
            await machines.start()
            nodes = [node("A"), node("B", retries=1, scripts={"PRE": SCRIPT, "POST": SCRIPT}), node("C", noop=True)]
            files = {"jobstate": f"{tmp_path}/it.log"}
            wire = plan(nodes, [[0], [1]], [[1], [2]], folder=str(tmp_path), files=files)
            wire["templates"][0]["ad"]["pegasus_site"] = "local"
            number = await machines.submit(wire)
            if kills:
                assert await killed_until_the_end(pool) >= 6
            assert (await machines.end(number))["ExitCode"] == 0
            return number

    number = run_virtual(work())
    lines = (tmp_path / "it.log").read_text().splitlines()
    assert all(LINE.fullmatch(line) for line in lines)
    told = [line.partition(" ")[2] for line in lines]
    inner = [line for line in told if not (line.startswith("INTERNAL") or "_RECONNECTED" in line)]
    if kills:  # a job whose machine lost the schedd for too long begins again
        at = next(at for at, line in enumerate(inner) if "A SHADOW_EXCEPTION" in line)
        assert "A EXECUTE" in inner[at + 1]
        del inner[at : at + 2]
    a, b, again = (int(line.split()[2].partition(".")[0]) for line in inner if " SUBMIT " in line and line[0] in "AB")

    def attempt(cluster: int, sequence: int, result: str) -> list[str]:
        rest = f"local - {sequence}"
        return [
            f"B PRE_SCRIPT_STARTED - {rest}",
            f"B PRE_SCRIPT_SUCCESS - {rest}",
            f"B SUBMIT {cluster}.0 {rest}",
            f"B EXECUTE {cluster}.0 {rest}",
            f"B JOB_TERMINATED {cluster}.0 {rest}",
            f"B JOB_SUCCESS 0 {rest}",
            f"B POST_SCRIPT_STARTED {cluster}.0 {rest}",
            f"B POST_SCRIPT_TERMINATED {cluster}.0 {rest}",
            f"B POST_SCRIPT_{result} {cluster}.0 {rest}",
        ]

    assert inner == [
        *(f"A {event} {a}.0 local - 1" for event in ("SUBMIT", "EXECUTE", "JOB_TERMINATED")),
        "A JOB_SUCCESS 0 local - 1",
        *attempt(b, 2, "FAILURE"),
        *attempt(again, 3, "SUCCESS"),
        *(f"C {event} 0.3 local - 4" for event in ("SUBMIT", "EXECUTE", "JOB_TERMINATED")),
        "C JOB_SUCCESS 0 local - 4",
    ]
    assert told[0] == f"INTERNAL *** DAGMAN_STARTED {number}.0 ***"
    assert told[-1] == "INTERNAL *** DAGMAN_FINISHED 0 ***"
    out = [line[18:] for line in (tmp_path / "it.dag.dagman.out").read_text().splitlines()]
    events = [line.split(" {")[0] for line in out if line.startswith("Event: ") and "Node B" in line]
    events = [line for line in events if "RECONNECTED" not in line]
    assert len(events) == len(set(events)) == 8
    assert [line for line in out if line.startswith("Retrying")] == ["Retrying node B (retry #1 of 1)..."]
    assert sum("POST Script of" in line for line in out) == 2
    assert out[-1].endswith("EXITING WITH STATUS 0")
    assert ("Running in RECOVERY mode" in "\n".join(out)) == kills


def test_a_rescue_numbers_attempts_on(tmp_path: Path) -> None:
    (tmp_path / "it.log").write_text("1 INTERNAL *** DAGMAN_STARTED 3.0 ***\n2 A SUBMIT 4.0 - - 41\n3 A EXEC")

    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            files = {"jobstate": f"{tmp_path}/it.log"}
            await machines.end(await machines.submit(plan([node("A")], folder=str(tmp_path), files=files, rescue=1)))

    run_virtual(work())
    lines = (tmp_path / "it.log").read_text().splitlines()
    assert lines[2] == "3 A EXEC", "a line that was cut short stays by itself"
    assert [line.split()[-1] for line in lines if " SUBMIT " in line] == ["41", "42"]


def test_the_drawing_is_written_as_the_graph_changes(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            machines = Machines(pool)
            await machines.start()
            dot: dict[str, Any] = {"path": f"{tmp_path}/it.dot", "update": True, "overwrite": False}
            wire = plan([node("A"), node("B")], [[0], [1]], folder=str(tmp_path), files={"dot": dot})
            await machines.end(await machines.submit(wire))
            once = {"path": f"{tmp_path}/once.dot"}
            await machines.end(await machines.submit(plan([node("A")], folder=str(tmp_path), files={"dot": once})))

    run_virtual(work())
    pictures = sorted(tmp_path.glob("it.dot.*"))
    assert [path.name for path in pictures] == [f"it.dot.{at}" for at in range(len(pictures))]
    assert len(pictures) >= 3
    assert pictures[-1].read_text().count("(Done)") == 2
    assert "(Done)" not in (tmp_path / "once.dot").read_text()


def test_other_nodes_begin_when_the_provisioner_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(4, settings=QUICK, directory=tmp_path) as pool:
            machines = Machines(pool, seconds=500.0)
            await machines.start()
            number = await machines.submit(plan([node("A"), node("P", kind="PROVISIONER")]))
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: any(job.get("DAGNodeName") == "P" and job.status == 2 for job in queue.jobs()))
            assert len(queue) == 2
            (job,) = [job for job in queue.jobs() if job.get("DAGNodeName") == "P"]
            await pool.act("head", "alice", action="edit", ids=[list(job.id)], edits={"ProvisionerState": "1"})
            await asyncio.sleep(50)
            assert len(queue) == 2
            await pool.act("head", "alice", action="edit", ids=[list(job.id)], edits={"ProvisionerState": "2"})
            await pool.run_until(lambda: pool.queued("head") == 3, within=10)
            await pool.kill("head")
            await pool.restart("head")
            assert (await machines.end(number))["ExitCode"] == 0
            assert [name for name, _, _ in await machines.effects()] == ["P", "A"]

    run_virtual(work())


def test_held_jobs_are_counted_in_the_status_file(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            machines = Machines(pool, seconds=300.0)
            await machines.start()
            files = {"status": f"{tmp_path}/it.status", "seconds": 1}
            number = await machines.submit(plan([node("A"), node("B")], folder=str(tmp_path), files=files))
            queue = pool.role("head", "schedd").queue
            await pool.run_until(lambda: any(job.get("DAGNodeName") == "A" and job.status == 2 for job in queue.jobs()))
            (job,) = [job for job in queue.jobs() if job.get("DAGNodeName") == "A"]
            await pool.act("head", "alice", action="hold", ids=[list(job.id)])
            status = tmp_path / "it.status"
            await pool.run_until(lambda: "  JobProcsHeld = 1;\n]\n[" in status.read_text(), within=20)
            await pool.act("head", "alice", action="release", ids=[list(job.id)])
            await machines.end(number)
            assert "JobProcsHeld = 1" not in status.read_text()

    run_virtual(work())


def test_a_step_that_was_told_and_not_durable_is_told_once(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(6, settings=QUICK, directory=tmp_path) as pool:
            machines = Machines(pool)
            await machines.start()
            files = {"jobstate": f"{tmp_path}/it.log"}
            wire = plan([node("A", scripts={"PRE": SCRIPT})], folder=str(tmp_path), files=files)
            ledger = pool.role("head", "schedd").ledger
            submit, calls = ledger.submit, 0

            async def only_the_first(*args: Any, **named: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls > 1:
                    await asyncio.Event().wait()
                return await submit(*args, **named)

            ledger.submit = only_the_first
            number = await machines.submit(wire)
            log = tmp_path / "it.log"
            await pool.run_until(lambda: log.exists() and "PRE_SCRIPT_STARTED" in log.read_text(), within=10)
            await pool.kill("head")
            await pool.restart("head")
            assert calls == 2
            assert (await machines.end(number))["ExitCode"] == 0

    run_virtual(work())
    assert (tmp_path / "it.log").read_text().count("PRE_SCRIPT_STARTED") == 1
    assert (tmp_path / "it.dag.dagman.out").read_text().count("Running PRE script") == 1
