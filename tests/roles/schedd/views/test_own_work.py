"""The stream of own jobs for the world says of each job once that it came, and once that it ended or is held."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from pool.jobs.states import JobStatus
from pool.roles.schedd.views.own_work import OwnWork
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


class Reader:
    """The jobs that the stream's items leave, each with what it asks for."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, int], tuple[int, float]] = {}
        self.ran: dict[tuple[int, int], float] = {}
        self.with_ad: set[int] = set()
        self.messages, self.done_first = 0, -1.0
        self.listed = False

    async def send(self, items: list[list[Any]]) -> None:
        self.messages += 1
        self.listed |= not items
        for word, *rest in items:
            if word == "ended":
                cluster, proc, ran = rest
                del self.open[cluster, proc]
                self.ran[cluster, proc] = ran
                continue
            cluster, first, count, units, done, ad = rest
            assert (ad is not None) == (cluster not in self.with_ad)
            self.with_ad.add(cluster)
            if (cluster, first) == (1, 0):
                self.done_first = done
            for proc in range(first, first + count):
                assert (cluster, proc) not in self.open, "told twice"
                self.open[cluster, proc] = (units, done)


def follow(schedd: Any, reader: Any) -> asyncio.Task[None]:
    return asyncio.create_task(OwnWork(schedd.ledger, schedd.given.turns).run(reader))


def wanted(schedd: Any) -> set[tuple[int, int]]:
    return {job.id for job in schedd.queue.jobs() if job.status is not JobStatus.HELD and not job.status.final}


@pytest.mark.parametrize("seed", range(8))
def test_the_items_leave_the_jobs_that_want_a_machine(seed: int) -> None:
    """Jobs are submitted, held, released, removed, end, and leave the queue late; readers begin at any time."""
    chance = random.Random(seed)

    async def work() -> None:
        async with SimPool(seed, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m0", "startd", behave=lambda spec: lasting(chance.uniform(1, 60)), settings={"SLOTS": "2"})
            schedd = pool.role("head", "schedd")
            readers: list[Reader] = []
            tasks = []
            for _ in range(60):
                await asyncio.sleep(chance.choice([0.0, 0.3, 10.0]))
                ids = [list(job.id) for job in schedd.queue.jobs()]
                if chance.random() < 0.4 or not ids:
                    more: dict[str, Any] = chance.choice(
                        [{}, {"RequestCpus": 2}, {"LeaveJobInQueue": True}, {"OnExitHold": True}]
                    )
                    await pool.submit("head", count=chance.randint(1, 4), ad=more)
                elif chance.random() < 0.8:
                    what = chance.choice(["hold", "release", "remove"])
                    await pool.act("head", "alice", action=what, ids=[chance.choice(ids)])
                else:
                    readers.append(Reader())
                    tasks.append(follow(schedd, readers[-1]))
            await asyncio.sleep(0.1)
            assert readers
            for reader in readers:
                assert reader.listed
                assert reader.open.keys() == wanted(schedd)
                assert all(schedd.queue.find(*job).get("RequestCpus", 1) == has[0] for job, has in reader.open.items())
            for task in tasks:
                assert not task.done()
                task.cancel()

    run_virtual(work())


def test_an_end_says_how_long_the_job_ran() -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m0", "startd", behave=lambda spec: lasting(100.0))
            schedd = pool.role("head", "schedd")
            early, late = Reader(), Reader()
            tasks = [follow(schedd, early)]
            await pool.submit("head")
            await asyncio.sleep(40)
            tasks.append(follow(schedd, late))
            await pool.submit("head", count=100_000, ad={"Requirements": False})
            await asyncio.sleep(80)
            for reader, done in ((early, 0.0), (late, 40.0)):
                assert reader.ran[1, 0] == pytest.approx(100.0, abs=1.0)
                assert len(reader.open) == 100_000
                assert reader.messages <= 6, "jobs that are alike are one item"
                assert abs(reader.done_first - done) <= 2
            for task in tasks:
                task.cancel()

    run_virtual(work())
