"""A large queue holds nobody up: whatever is done with all of its jobs, one turn of the loop handles a bounded number.

Rows are counted, not seconds: jobs that are made, changed, and freed. A million jobs that are freed in one go hold a
node for as long as a million that are changed.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.classad import parse_expr
from pool.config import Settings
from pool.outside import OutsideWorld
from pool.policy.queue import HELD, IDLE, JobQueue, QueuedJob
from pool.roles import cooperative
from pool.roles.cooperative import WorkTurns
from pool.roles.schedd.core import ledger as ledger_module
from pool.roles.schedd.core.intake import ClusterIntake
from pool.roles.schedd.core.ledger import Ledger
from pool.roles.schedd.submit import job_actions
from pool.roles.schedd.submit.job_actions import JobActions
from pool.roles.schedd.submit.rules import Rules
from pool.store import Store

#: Jobs of a slice of work and of a step of it: half of what nodes have, so that half as many jobs are many.
MANY, BATCH = cooperative.MANY // 2, job_actions.BATCH // 2
#: A slice of work, and the steps of the slice before.
MOST = MANY + 2 * BATCH
JOBS = 2 * MOST

done: Counter[str] = Counter()


class CountedJob(QueuedJob):
    """A job that counts what is done with it."""

    __slots__ = ()

    def __init__(self, *arguments: Any) -> None:
        done["made"] += 1
        super().__init__(*arguments)

    def update(self, changes: Any) -> None:
        done["changed"] += 1
        super().update(changes)

    def become_like(self, other: QueuedJob) -> None:
        done["changed"] += 1
        super().become_like(other)

    def __del__(self) -> None:
        done["freed"] += 1


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(ledger_module, "QueuedJob", CountedJob)
    monkeypatch.setattr(cooperative, "MANY", MANY)
    monkeypatch.setattr(job_actions, "BATCH", BATCH)
    done.clear()
    yield
    done.clear()


async def most_in_a_turn(work: Coroutine[Any, Any, Any]) -> Counter[str]:
    """Do this, and find how much of each kind was done at most in one turn of the loop."""
    gc.collect()  # of queues that were: a cluster and its jobs know each other
    most, before = Counter[str](), Counter(done)

    async def watch() -> None:
        nonlocal most, before
        while True:
            most |= done - before
            before = Counter(done)
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    await work
    del work
    await asyncio.sleep(0)
    watching.cancel()
    return most | (done - before)


@asynccontextmanager
async def schedd(path: Path) -> AsyncIterator[tuple[Ledger, JobActions]]:
    """The ledger of a store, and what changes its jobs."""
    outside = OutsideWorld()
    queue = JobQueue(parse_expr("0"))
    ledger = Ledger(Store.open(str(path), inline=True), queue, outside, logging.getLogger("test"))
    rules = Rules.from_settings(Settings.load(None, sets={}, environ={}))
    nothing: Any = None
    acts = JobActions(
        ledger,
        nothing,
        outside,
        WorkTurns(),
        offer=lambda owner: None,
        changed=lambda owner, more: None,
        keep_checkpoint=nothing,
        waits_for_inputs=lambda job: False,
        rules=lambda: rules,
    )
    yield ledger, acts
    await ledger.store.close()


def act(acts: JobActions, action: str, **which: Any) -> Coroutine[Any, Any, dict[str, Any]]:
    return acts.act({"action": action, **which}, "ann", "ann")


def check(most: Counter[str], *kinds: str) -> None:
    for kind in kinds:
        assert most[kind] > 0, f"none was {kind}"
    for kind, count in most.items():
        assert count <= MOST, f"{count} jobs were {kind} in one turn of the loop"


@pytest.mark.parametrize("which", [{"all": True}, {"ids": [[1]]}, {"constraint": "ProcId >= 0"}])
async def test_all_jobs_are_changed_in_short_steps(tmp_path: Path, which: dict[str, Any]) -> None:
    async with schedd(tmp_path / "queue.db") as (ledger, acts):
        intake = ClusterIntake({"Owner": "ann", "JobStatus": HELD}, JOBS, differs=False)
        check(await most_in_a_turn(ledger.submit(1, "ann", intake)), "made")
        assert ledger.queue.count("ann", HELD) == JOBS
        for action in ("release", "hold", "release"):
            check(await most_in_a_turn(act(acts, action, **which)), "changed")
        assert ledger.queue.count("ann", IDLE) == JOBS
    del ledger, acts
    async with schedd(tmp_path / "queue.db") as (ledger, acts):
        check(await most_in_a_turn(ledger.load()), "made")
        assert ledger.queue.count("ann", IDLE) == JOBS
        done.clear()
        check(await most_in_a_turn(act(acts, "remove", **which)), "freed")
        assert done["freed"] == JOBS
        assert len(ledger.queue) == 0


async def test_one_job_in_two_groups_each_is_changed_in_short_steps(tmp_path: Path) -> None:
    """Neighbours in a cluster that wait in different groups."""
    async with schedd(tmp_path / "queue.db") as (ledger, acts):
        intake = ClusterIntake({"Owner": "ann"}, JOBS, differs=True)
        intake.add_deltas([{"RequestMemory": proc % 2} for proc in range(JOBS)])
        check(await most_in_a_turn(ledger.submit(1, "ann", intake)), "made")
        for action in ("hold", "release", "remove"):
            check(await most_in_a_turn(act(acts, action, all=True)), "changed")


async def test_clusters_of_one_job_each_are_changed_in_short_steps() -> None:
    async with schedd(Path(":memory:")) as (ledger, acts):
        for number in range(1, MOST + 100):
            await ledger.submit(number, "ann", ClusterIntake({"Owner": "ann"}, 1, differs=False))
        for action in ("hold", "release", "remove"):
            check(await most_in_a_turn(act(acts, action, all=True)), "changed")
        assert len(ledger.queue) == 0


async def test_a_job_that_is_named_twice_is_acted_on_once(tmp_path: Path) -> None:
    async with schedd(tmp_path / "queue.db") as (ledger, acts):
        await ledger.submit(1, "ann", ClusterIntake({"Owner": "ann"}, 3, differs=False))
        acted = await act(acts, "hold", ids=[[1, 2], [1, 7], [1], [1, 1], [1, 2], [1], [9]])
        assert acted["done"] == 3
        assert acted["jobs"] == [[1, 2], [1, 0], [1, 1]]
        assert [item["id"] for item in acted["refused"]] == [[1, 7], [9]]


async def test_jobs_that_come_while_all_are_removed_stay(tmp_path: Path) -> None:
    async with schedd(tmp_path / "queue.db") as (ledger, acts):
        await ledger.submit(1, "ann", ClusterIntake({"Owner": "ann"}, JOBS, differs=False))
        begun = asyncio.Event()
        ledger.listen(lambda events: begun.set())
        removing = asyncio.create_task(act(acts, "remove", all=True))
        await begun.wait()
        assert not removing.done()
        await ledger.submit(2, "ann", ClusterIntake({"Owner": "ann"}, 2, differs=False))
        assert (await removing)["done"] == JOBS
        assert [job.id for job in ledger.queue.jobs()] == [(2, 0), (2, 1)]
