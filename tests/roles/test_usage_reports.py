"""The memory of a running job is measured every minute, and written and told where it is another than before."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.jobs.events import EventKind, JobEvent
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool

HOUR = 3600.0
REPORT = "schedd.report"


async def _running(pool: SimPool) -> list[JobEvent]:
    """One job of some hours that runs; the events of its memory from now on."""
    await pool.add("head", "collector,negotiator,schedd")
    await pool.add("m1", "startd", behave=lambda spec: Behaviour(5 * HOUR, rss=1000))
    sizes = _sizes(pool)
    await pool.submit("head")
    await pool.run_until(lambda: bool(pool.nodes["m1"].machine.keepers))
    return sizes


def _sizes(pool: SimPool) -> list[JobEvent]:
    """The schedd's events of a job's memory from now on."""
    sizes: list[JobEvent] = []
    pool.role("head", "schedd").ledger.listen(
        lambda events: sizes.extend(event for event in events if event.kind is EventKind.IMAGE_SIZE)
    )
    return sizes


def _told(pool: SimPool) -> list[int]:
    """The sizes that startds report to the schedd from now on."""
    told: list[int] = []
    reports = pool.role("head", "schedd").placement.reports
    record = reports.record

    async def recording(claim: str, run: int, kind: str, data: dict[str, Any]) -> None:
        if kind == "usage":
            told.append(int(data["max_rss"]))
        await record(claim, run, kind, data)

    reports.record = recording
    return told


def _use(pool: SimPool, size: int) -> None:
    (keeper,) = pool.nodes["m1"].machine.keepers.values()
    keeper._behaviour = replace(keeper._behaviour, rss=size)


def _size(pool: SimPool) -> int:
    (job,) = pool.role("head", "schedd").queue.jobs()
    return int(job.get("ResidentSetSize"))


def test_the_memory_of_a_job_is_reported_once_for_each_change() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            sizes = await _running(pool)
            await asyncio.sleep(HOUR)
            assert [event.data["max_rss"] for event in sizes] == [1000]
            reports = pool.traps.called[REPORT]
            assert reports == 2, "that it began, and what it has in memory"
            _use(pool, 2000)
            await asyncio.sleep(61.0)
            assert _size(pool) == 2000
            await asyncio.sleep(HOUR)
            assert [event.data["max_rss"] for event in sizes] == [1000, 2000]
            assert pool.traps.called[REPORT] == reports + 1
            pool.assert_sound()

    run_virtual(work())


def test_a_report_that_did_not_arrive_is_sent_again() -> None:
    async def work() -> None:
        async with SimPool(1) as pool:
            sizes = await _running(pool)
            await asyncio.sleep(90.0)
            _use(pool, 2000)
            pool.network.drop_silently("m1", "head")
            await asyncio.sleep(40.0)
            assert _size(pool) == 1000
            pool.network.restore_links()
            await asyncio.sleep(90.0)
            assert _size(pool) == 2000
            assert sizes[-1].data["max_rss"] == 2000
            pool.assert_sound()

    run_virtual(work())


def test_a_schedd_that_is_back_is_told_again_and_writes_nothing_twice(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, directory=tmp_path) as pool:
            await _running(pool)
            await asyncio.sleep(90.0)
            await pool.kill("head")
            await pool.restart("head")
            told, sizes = _told(pool), _sizes(pool)
            await asyncio.sleep(HOUR)
            assert told == [1000]
            assert _size(pool) == 1000
            assert sizes == []
            pool.assert_sound()

    run_virtual(work())
