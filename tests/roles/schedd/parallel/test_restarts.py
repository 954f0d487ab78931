"""Nodes of parallel jobs outlive a restart of their machine's node or of the schedd; what is told of them is whole."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from pool.jobs.events import EventKind
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from tests.roles.schedd.parallel.test_parallel_jobs import SETTINGS, ended, heard, machines, parallel


def test_a_node_goes_on_while_its_machines_node_is_restarted() -> None:
    """It has no pipe to another machine, so that nothing of it is lost."""

    async def work() -> None:
        async with SimPool(1, settings=SETTINGS, stateful=True) as pool:
            await machines(pool, 2, lambda node: Behaviour(60.0))
            await pool.submit("head", ad=parallel(2, ParallelShutdownPolicy="WAIT_FOR_ALL"))
            await pool.run_until(lambda: len(pool.witness.running) == 2, 60.0)
            await asyncio.sleep(5.0)
            await pool.kill("m1")
            await asyncio.sleep(2.0)
            await pool.restart("m1")
            (ad,) = await ended(pool)
            assert (ad["ExitCode"], ad["NumJobStarts"]) == (0, 1)
            assert len(pool.witness.starts) == 2

    run_virtual(work())


def test_a_job_is_saved_as_a_whole_after_such_a_restart() -> None:
    settings = {**SETTINGS, "CHECKPOINT_FIRST": "50", "CHECKPOINT_MOST": "50"}

    async def work() -> None:
        async with SimPool(1, settings=settings, stateful=True) as pool:
            await machines(pool, 2, lambda node: Behaviour(150.0, saving=1.0))
            await pool.submit("head", ad=parallel(2, ParallelShutdownPolicy="WAIT_FOR_ALL"))
            await pool.run_until(lambda: len(pool.witness.running) == 2, 60.0)
            await asyncio.sleep(5.0)
            await pool.kill("m1")
            await pool.restart("m1")
            await asyncio.sleep(70.0)
            await pool.crash("m0")
            await pool.restart("m0")
            (ad,) = await ended(pool)
            assert (ad["ExitCode"], ad["NumJobStarts"]) == (0, 2)
            assert ad["WorkLost"] < 60.0, "it went on from the checkpoint that was made after the restart"

    run_virtual(work())


@pytest.mark.parametrize("phase", list(TrapPhase))
@pytest.mark.parametrize("method", ["startd.activate", "schedd.wait_for_parts", "schedd.report"])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_each_node_has_its_line_in_the_log_though_the_schedd_died_in_the_start(
    method: str, phase: TrapPhase, count: int, tmp_path: Path
) -> None:
    async def work() -> None:
        async with SimPool(7, settings=SETTINGS, directory=tmp_path) as pool:
            await machines(pool, 3, lambda node: Behaviour(100.0))
            events = heard(pool)
            await pool.submit("head", ad=parallel(3, ParallelShutdownPolicy="WAIT_FOR_ALL"))
            pool.trap(method, phase, "head", count=count)
            await pool.run_until(lambda: not pool.nodes["head"].running, 60.0)
            await asyncio.sleep(3.0)
            await pool.restart("head")
            events += (after := heard(pool))
            (ad,) = await ended(pool)
            events += after
            begun = [row[0] for event in events if event.kind is EventKind.NODE_EXECUTE for row in event.data["nodes"]]
            starts = int(ad["NumJobStarts"])
            executed = sum(event.kind is EventKind.EXECUTE for event in events)
            assert executed == 1 if starts == 1 else executed <= starts
            assert sorted(set(begun)) == [0, 1, 2]
            assert len(begun) <= 3 * starts

    run_virtual(work())


def test_a_checkpoint_of_many_nodes_is_one_change_of_the_job() -> None:
    settings = {**SETTINGS, "CHECKPOINT_FIRST": "50", "CHECKPOINT_MOST": "1000"}

    async def work() -> None:
        async with SimPool(1, settings=settings, stateful=True) as pool:
            await machines(pool, 4, lambda node: Behaviour(100.0, saving=1.0))
            await pool.submit("head", ad=parallel(4, ParallelShutdownPolicy="WAIT_FOR_ALL"))
            await pool.run_until(lambda: len(pool.witness.running) == 4, 60.0)
            ledger = pool.role("head", "schedd").ledger
            changed: list[object] = []
            commit = ledger.commit

            async def counted(*steps: object) -> None:
                changed.extend(step for step in steps if "_costs" in repr(getattr(step, "changes", "")))
                await commit(*steps)

            ledger.commit = counted
            await pool.run_until(lambda: bool(changed), 100.0)
            await asyncio.sleep(5.0)
            assert len(changed) == 1
            (ad,) = await ended(pool)
            assert ad["NumCkpts"] == 1, "of all nodes together"

    run_virtual(work())
