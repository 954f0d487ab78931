"""Parallel jobs in simulated pools: nodes by number, what ends the job, and what of it is told (WR 3, 5, 6.8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.classad import ClassAd
from pool.jobs.events import EventKind, JobEvent
from pool.jobs.gangs import GangPart, attributes_of
from pool.jobs.notice import notice
from pool.jobs.pipes.model import ends_of
from pool.jobs.userlog import render
from pool.policy.why.findings import GangFinding, Running
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking

SETTINGS = {**QUICK, "GANG_PATIENCE": "30"}
Behave = Callable[[int], Behaviour]


def parallel(size: int, *more: GangPart, **own: Any) -> dict[str, Any]:
    """The ad of a parallel job of so many alike nodes, and some others."""
    parts = [GangPart(count=size), *more]
    return {"JobUniverse": 11, **attributes_of(parts, apart=False), **own}


def node_of(spec: KeeperSpec) -> int:
    return int(spec.env["_CONDOR_PROCNO"])


async def machines(pool: SimPool, number: int, behave: Behave = lambda node: Behaviour(20.0), **settings: str) -> None:
    await pool.add("head", "collector,negotiator,schedd")
    for index in range(number):
        await pool.add(f"m{index}", "startd", behave=lambda spec: behave(node_of(spec)), settings=settings)


async def ended(pool: SimPool, jobs: int = 1, within: float = 3000.0) -> list[dict[str, Any]]:
    await pool.run_until(lambda: pool.queued("head") == 0, within)
    ads = await pool.ended("head")
    assert len(ads) == jobs
    pool.assert_sound()
    return ads


def heard(pool: SimPool, name: str = "head") -> list[JobEvent]:
    """All events of a schedd from now on."""
    events: list[JobEvent] = []
    pool.role(name, "schedd").ledger.listen(events.extend)
    return events


def test_all_nodes_run_together_each_with_its_number() -> None:
    seen: dict[int, KeeperSpec] = {}

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await pool.add("head", "collector,negotiator,schedd")

            def behave(spec: KeeperSpec) -> Behaviour:
                seen[node_of(spec)] = spec
                return Behaviour(20.0)

            for index in range(3):
                await pool.add(f"m{index}", "startd", behave=behave)
            mark = "#pArAlLeLnOdE#"
            await pool.submit("head", ad=parallel(3, Arguments=f"-n {mark}", Environment=f"RANK={mark}"))
            (ad,) = await ended(pool)
            assert (ad["ExitCode"], ad["NumJobStarts"], ad["JobUniverse"]) == (0, 1, 11)
            starts = {job: when for job, _, when in pool.witness.starts}
            assert sorted(starts) == ["1.0.0", "1.0.1", "1.0.2"]
            assert max(starts.values()) - min(starts.values()) < 0.01
            assert [seen[node].argv[1:] for node in range(3)] == [("-n", str(node)) for node in range(3)]
            assert [seen[node].env["RANK"] for node in range(3)] == ["0", "1", "2"]
            assert {spec.env["_CONDOR_NPROCS"] for spec in seen.values()} == {"3"}
            (hosts,) = {spec.env["POOLNODE_HOSTS"] for spec in seen.values()}
            where = {job: machine for job, machine, _ in pool.witness.starts}
            assert hosts.split() == [where[f"1.0.{node}"] for node in range(3)]
            assert not pool.role("head", "schedd").placement.claims

    run_virtual(work())


@pytest.mark.parametrize(
    ("policy", "last", "code"),
    [(None, 20.0, 7), ("WAIT_FOR_NODE0", 20.0, 7), ("WAIT_FOR_ALL", 60.0, 7), ("WAIT_FOR_ANY", 5.0, 2)],
)
def test_what_ends_a_job(policy: str | None, last: float, code: int) -> None:
    """Node 0 exits with 7 after 20 s, node 1 with 1 after 60 s, node 2 with 2 after 5 s."""

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3, lambda node: [Behaviour(20.0, 7), Behaviour(60.0, 1), Behaviour(5.0, 2)][node])
            await pool.submit("head", ad=parallel(3, **({"ParallelShutdownPolicy": policy} if policy else {})))
            (ad,) = await ended(pool)
            assert (ad["ExitCode"], ad["ExitBySignal"], ad["NumJobStarts"], ad["JobStatus"]) == (code, False, 1, 4)
            began = min(when for _, _, when in pool.witness.starts)
            assert max(when for _, _, when in pool.witness.ends) - began == pytest.approx(last, abs=1.0)

    run_virtual(work())


@pytest.mark.parametrize(("wish", "last", "signal"), [(None, 5.0, 11), ("wait", 20.0, 11), ("ignore", 20.0, None)])
def test_a_node_that_dies_of_a_signal(wish: str | None, last: float, signal: int | None) -> None:
    """Its end is the job's at once (WR 5); the notice names node, slot, signal, and the time of each node's end."""

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3, lambda node: Behaviour(5.0, signal=11) if node == 2 else Behaviour(20.0))
            await pool.submit("head", ad=parallel(3, **({"OnProcessFailure": wish} if wish else {})))
            (ad,) = await ended(pool)
            assert ad.get("ExitSignal") == signal
            began = min(when for _, _, when in pool.witness.starts)
            assert max(when for _, _, when in pool.witness.ends) - began == pytest.approx(last, abs=1.0)
            slot = next(f"slot1@{machine}" for job, machine, _ in pool.witness.starts if job == "1.0.2")
            ends = ends_of(ClassAd.from_wire(ad))
            assert [end["name"] for end in ends] == ["node 0", "node 1", "node 2"]
            assert (ends[2]["signal"], ends[2]["host"], ends[2]["failed"]) == (11, slot, signal is not None)
            assert all(end["at"] for end in ends)
            text = notice(ClassAd.from_wire(ad))
            assert re.search(rf"node 2  signal 11 on {slot} at \w+ \w+ +\d+ \d\d:\d\d:\d\d", text), text
            if signal is not None:
                assert "node 2 died because of signal 11" in text
                assert ad["ExitReason"] == f"node 2 on {slot} died because of signal 11"
            if wish is None:
                assert [end["with_job"] for end in ends] == [True, True, False]
                assert "node 0  killed with the job" in text

    run_virtual(work())


def test_the_log_of_a_parallel_job_reads_as_htcondors() -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 3, lambda node: Behaviour(20.0 + node))
            events = heard(pool)
            await pool.submit("head", ad=parallel(3, ParallelShutdownPolicy="WAIT_FOR_ALL"))
            await ended(pool)
            text = "".join(render(event) for event in events)
            codes = [line[:3] for line in text.splitlines() if re.match(r"\d{3} \(", line)]
            assert codes == ["000", "014", "014", "014", "001", "015", "015", "015", "005"]
            for node in range(3):
                assert re.search(
                    rf"^014 \(001.000.000\) [-\d]+ [:\d]+ Node {node} executing on host: <slot1@m\d>$", text, re.M
                )
                found = re.search(
                    rf"^015 .* Node {node} terminated.\n\t\(1\) Normal termination \(return value 0\)\n", text, re.M
                )
                assert found
            assert text.count("  -  Run Bytes Sent By Node\n") == text.count("  -  Total Bytes Received By Node\n") == 3
            kinds = [event.kind for event in events]
            assert kinds.count(EventKind.NODE_EXECUTE) == 1  # one record of all that began in one moment

    run_virtual(work())


def test_several_statements_run_their_own_programs_on_their_own_machines() -> None:
    programs: dict[int, str] = {}

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await pool.add("head", "collector,negotiator,schedd")

            def behave(spec: KeeperSpec) -> Behaviour:
                programs[node_of(spec)] = spec.argv[0]
                return Behaviour(20.0)

            for index in range(3):
                await pool.add(f"m{index}", "startd", behave=behave, settings={"SLOTS": "2"})
            first = GangPart(own={"Requirements": ['TARGET.Machine == "m2"']})
            rest = GangPart((), {"Cmd": "/bin/worker", "Requirements": ['TARGET.Machine != "m2"']}, 3)
            ad = {"JobUniverse": 11, "MaxHosts": 4, **attributes_of([first, rest], apart=False)}
            await pool.submit("head", ad=ad)
            await ended(pool)
            where = {int(job.rpartition(".")[2]): machine for job, machine, _ in pool.witness.starts}
            assert where[0] == "m2"
            assert "m2" not in {where[node] for node in (1, 2, 3)}
            assert programs == {0: "/bin/true", 1: "/bin/worker", 2: "/bin/worker", 3: "/bin/worker"}

    run_virtual(work())


@pytest.mark.parametrize(("size", "named", "more"), [(1, 0, 0), (3, 2, 0), (9, 8, 0), (20, 7, 12)])
def test_why_names_the_slots_of_all_nodes(size: int, named: int, more: int) -> None:
    async def work() -> None:
        async with SimPool(1, settings=SETTINGS) as pool:
            await machines(pool, 1, lambda node: Behaviour(100.0), SLOTS=str(size))
            await pool.submit("head", ad=parallel(size + 1))
            await pool.run_until(lambda: len(pool.role("head", "schedd").placement.claims) == size, 100.0)
            async with asking(pool) as user:
                found = next(one for one in (await user.why("1.0")).findings if isinstance(one, GangFinding))
            assert found.missing == (f"node {size}",)
            await pool.act("head", "alice", action="remove", ids=[[1, 0]])
            await pool.submit("head", ad=parallel(size))
            await pool.run_until(lambda: len(pool.witness.running) == size, 300.0)
            async with asking(pool) as user:
                running = next(one for one in (await user.why("2.0")).findings if isinstance(one, Running))
            assert (len(set(running.others)), running.more) == (named, more)
            assert running.slot not in running.others
            await pool.run_until(lambda: not pool.queued("head"), 300.0)
            pool.assert_sound()

    run_virtual(work())


STEPS = ["startd.claim", "startd.activate", "schedd.wait_for_parts", "schedd.report", "schedd.ended", "startd.release"]


@pytest.mark.parametrize("victim", ["head", "m1"])
@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", STEPS)
@pytest.mark.parametrize("policy", ["WAIT_FOR_NODE0", "WAIT_FOR_ALL"])
def test_either_side_dies_at_each_step_and_comes_back(
    method: str, phase: TrapPhase, victim: str, policy: str, tmp_path: Path
) -> None:
    """Never two copies of a node at a time, all or none, and in the end the job has ended once (W27)."""

    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, directory=tmp_path) as pool:
            await machines(pool, 2, lambda node: Behaviour(20.0, node))
            await pool.submit("head", ad=parallel(2, ParallelShutdownPolicy=policy))
            pool.trap(method, phase, victim, count=2)
            for _ in range(400):
                await asyncio.sleep(2.0)
                dead = [name for name, node in pool.nodes.items() if not node.running]
                for name in dead:
                    await asyncio.sleep(3.0)
                    await pool.restart(name)
                if not dead and pool.queued("head") == 0:
                    break
            (ad,) = await ended(pool)
            assert ad["ExitCode"] == 0
            await pool.run_until(lambda: not pool.role("head", "schedd").placement.claims, 300.0)

    run_virtual(work())
