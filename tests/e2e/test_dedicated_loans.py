"""Two dedicated schedulers and their machines on real nodes: loans, their end, and the death of either side (W55).

The upper scheduler runs a job on one machine and waits with a gang of two, so that the other machine is lent.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client import Cluster, Pool
from tests.e2e import support
from tests.e2e.support import Node, Nodes, asked, client, poolnode, program, slots, token, until
from tests.starter.support import PYTHON

UPPER, LOWER = 1, 2
#: Seconds that the upper scheduler's job says that it runs, and after which a loan is over.
LOAN = 40
#: The same where nobody waits for the end of the loan: long beside what a reclaim from a dead schedd takes.
LONG = 300
COUNT = """
import os, sys, time
n = 0
while not os.path.exists(sys.argv[1]):
    print(n, flush=True)
    n += 1
    time.sleep(0.05)
print("end", flush=True)
"""


async def pool_of(nodes: Nodes) -> None:
    """A central manager, two queues, and two machines that name both."""
    head = nodes.start("head", "collector,negotiator").ready()
    for name in ("upper", "lower"):
        joining = await token(head, "schedd")
        nodes.start(name, "schedd", join=joining, UNUSED_CLAIM_TIMEOUT="5", CLAIM_LEASE="8").ready()
    for name in ("one", "two"):
        machine = await token(head, "startd")
        both = "upper, lower"
        nodes.start(name, "startd", join=machine, DEDICATED_SCHEDULER=both, SLOTS="1", CHECKPOINT_WORTH="0").ready()
    async with client(head) as pool:
        await slots(pool, 2)


@pytest.fixture(scope="module")
def lenders(whose_pool: object) -> Iterator[Nodes]:
    with support.running(pool_of) as nodes:
        yield nodes


@pytest.fixture
def home(lenders: Nodes, request: pytest.FixtureRequest) -> Path:
    return lenders.directory(support.directory_name(request))


async def runs(pool: Pool, cluster: int) -> bool:
    (ad,) = await pool.jobs(ids=[[cluster]])
    return bool(ad.value("JobStatus", 0) == 2)


class Lent:
    """One machine has the upper scheduler's job, the other is lent; the gang that waits for both."""

    def __init__(self, pool: Pool, home: Path) -> None:
        self.pool = pool
        self.home = home
        self.began = 0.0

    async def begin(self, seconds: int = LOAN) -> None:
        """Have one machine lent, for so many seconds less those that pass until then."""
        warm = await self.pool.submit(
            "universe = parallel\nmachine_count = 2\nexecutable = /bin/true\nqueue\n", iwd=str(self.home)
        )
        await warm.wait(support.PATIENCE, until_stuck=True)
        wait = program(self.home, f"while [ ! -e {self.home}/free ]; do sleep 0.02; done", "wait")
        gang = program(self.home, f"date +%s.%N > {self.home}/gang.$1", "gang")
        first = f"executable = {wait}\ndedicated = true\nexpected_duration = {seconds}\nqueue\n"
        self.first = await self.pool.submit(first, iwd=str(self.home))
        await asked(lambda: runs(self.pool, self.first.cluster), "the upper scheduler's job to run")
        self.began = time.time()
        self.gang = await self.pool.submit(
            f"universe = parallel\nmachine_count = 2\nexecutable = {gang}\narguments = $(Node)\n"
            '+ParallelShutdownPolicy = "WAIT_FOR_ALL"\nqueue\n',
            iwd=str(self.home),
        )

    async def end(self) -> float:
        """The upper scheduler's job ends; seconds until the gang has begun."""
        freed = time.time()
        (self.home / "free").touch()
        (result,) = await self.gang.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        return max(float((self.home / f"gang.{node}").read_text()) for node in range(2)) - freed


def said(node: Node, *words: str) -> str:
    done = poolnode(*words, "--address", node.address)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


async def borrow(pool: Pool, home: Path, more: str = "") -> Cluster:
    """A dedicated job of the lower scheduler's, once it runs."""
    (home / "count.py").write_text(COUNT)
    job = await pool.submit(
        f"executable = {PYTHON}\narguments = count.py {home}/enough\noutput = out\ndedicated = true\n{more}queue\n",
        iwd=str(home),
    )
    await asked(lambda: runs(pool, job.cluster), "the machine to be lent")
    await until(lambda: (home / "out").exists() and bool((home / "out").read_text()), "it to compute")
    return job


async def test_a_machine_is_lent_shown_and_back_by_the_promised_time(lenders: Nodes, home: Path) -> None:
    upper, lower = lenders.all[UPPER], lenders.all[LOWER]
    async with client(upper) as mine, client(lower) as theirs:
        lent = Lent(mine, home)
        await lent.begin()
        job = await borrow(theirs, home)
        plan = await asyncio.to_thread(said, upper, "plan")
        assert "lent until" in plan
        assert "to DedicatedScheduler@lower" in plan
        plan = await asyncio.to_thread(said, lower, "plan")
        assert "DedicatedScheduler@upper lends it until" in plan
        shown = await asyncio.to_thread(said, lower, "inspect", f"{job.cluster}.0")
        assert "its machine is lent by another dedicated scheduler, until" in shown
        await asked(lambda: _left(theirs, job.cluster), "the job to be saved before the loan is over")
        assert time.time() - lent.began < LOAN + 5
        (ad,) = await job.ads()
        assert ad.value("NumCkpts", 0) >= 1
        print(f"the gang began {await lent.end():.2f} s after its last machine was free")
        await asked(lambda: runs(theirs, job.cluster), "the job to go on where it may")
        (home / "enough").touch()
        (result,) = await job.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        lines = (home / "out").read_text().split()
        assert lines == [*map(str, range(len(lines) - 1)), "end"], "each step once"


async def _left(pool: Pool, cluster: int) -> bool:
    return not await runs(pool, cluster)


async def test_a_borrower_that_lies_loses_the_machine_and_a_longer_job_is_told_why(lenders: Nodes, home: Path) -> None:
    """Its user says ten seconds and that it cannot be saved. A job of an hour does not start."""
    async with client(lenders.all[UPPER]) as mine, client(lenders.all[LOWER]) as theirs:
        lent = Lent(mine, home)
        await lent.begin()
        liar = await borrow(theirs, home, "checkpoint = off\nexpected_duration = 10\n")
        hour = await theirs.submit(
            "executable = /bin/true\ndedicated = true\ncheckpoint = off\nexpected_duration = 3600\nqueue\n",
            iwd=str(home),
        )

        async def told() -> bool:
            why = await asyncio.to_thread(said, lenders.all[LOWER], "why", f"{hour.cluster}.0")
            return "lent by other dedicated schedulers" in why

        await asked(told, "the reason why it waits")
        await asked(lambda: _left(theirs, liar.cluster), "the machine to end the loan")
        assert LOAN - 5 < time.time() - lent.began < LOAN + 15
        took = await lent.end()
        print(f"the gang began {took:.2f} s after its last machine was free")
        (home / "enough").touch()
        for job in (liar, hour):
            with contextlib.suppress(Exception):
                await job.remove()


async def test_the_borrower_dies_and_the_lender_has_the_machine(lenders: Nodes, home: Path) -> None:
    async with client(lenders.all[UPPER]) as mine:
        lent = Lent(mine, home)
        await lent.begin(LONG)
        async with client(lenders.all[LOWER]) as theirs:
            job = await borrow(theirs, home)
        lenders.all[LOWER].signal(signal.SIGKILL)
        lenders.all[LOWER].ended()
        assert await lent.end() < 30.0, "at once from what can be saved, at the end of its lease from a dead schedd"
    (home / "enough").touch()
    again = lenders.start("lower", "schedd", UNUSED_CLAIM_TIMEOUT="5", CLAIM_LEASE="8").ready()
    async with client(again) as theirs:
        (result,) = await theirs.cluster(job.cluster).wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result


async def test_the_lender_dies_and_the_borrower_goes_on(lenders: Nodes, home: Path) -> None:
    lower = next(node for node in reversed(lenders.all) if node.state.name == "lower.state")
    async with client(lower) as theirs:
        async with client(lenders.all[UPPER]) as mine:
            lent = Lent(mine, home)
            await lent.begin(LONG)
            job = await borrow(theirs, home)
        lenders.all[UPPER].signal(signal.SIGKILL)
        lenders.all[UPPER].ended()
        await asyncio.sleep(0)
        assert await runs(theirs, job.cluster)
        (home / "enough").touch()
        (result,) = await job.wait(support.PATIENCE * 2, until_stuck=True)
        assert result.ok, result
