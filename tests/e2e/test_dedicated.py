"""Dedicated machines on real nodes: the scheduler's claims, the central manager gone, holes that are lent (WR 3 to 5).

The queue is on a node of its own, so that the central manager can be stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pool.client import Cluster, Pool
from tests.e2e import support
from tests.e2e.support import Node, Nodes, asked, client, poolnode, program, slots, token, until

OURS = "DedicatedScheduler@sub"
MACHINES = ("one", "two", "three")


async def pool_of(nodes: Nodes) -> Node:
    """A central manager, a queue, and three dedicated machines; the queue's node."""
    head = nodes.start("head", "collector,negotiator").ready()
    joining = await token(head, "schedd")
    sub = nodes.start("sub", "schedd", join=joining, UNUSED_CLAIM_TIMEOUT="8", CLAIM_LEASE="8").ready()
    for name in MACHINES:
        machine = await token(head, "startd")
        nodes.start(name, "startd", join=machine, DEDICATED_SCHEDULER="sub", SLOTS="1", CHECKPOINT_WORTH="0").ready()
    async with client(head) as pool:
        await slots(pool, 3)
    return sub


@pytest.fixture(scope="module")
def pool5(whose_pool: object) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        await pool_of(nodes)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(pool5: Nodes, request: pytest.FixtureRequest) -> Path:
    return pool5.directory(support.directory_name(request))


def queue_of(nodes: Nodes) -> Node:
    return nodes.all[1]


async def users_of_slots(pool: Pool) -> dict[str, str]:
    """Whom each slot counts to."""
    found = {}
    for ad in await pool.machines():
        found[str(ad.value("Machine", ""))] = str(ad.value("RemoteUser", "") or "")
    return found


async def test_a_parallel_job_runs_on_three_machines_at_once(pool5: Nodes, home: Path) -> None:
    """All nodes are there before any ends, each on a machine of its own."""
    meet = program(home, f"touch {home}/here.$1; while [ $(ls {home}/here.* | wc -l) -lt 3 ]; do sleep 0.05; done")
    text = f"universe = parallel\nmachine_count = 3\nexecutable = {meet}\narguments = $(Node)\nlog = log\nqueue\n"
    async with client(queue_of(pool5)) as pool:
        cluster = await pool.submit(text, iwd=str(home))
        (result,) = await cluster.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        async with client(pool5.all[0]) as central:
            await asked(lambda: _all_held(central), "the claims to be kept for the next job, and counted to nobody")


async def _all_held(pool: Pool) -> bool:
    return set((await users_of_slots(pool)).values()) == {OURS}


async def test_claims_serve_jobs_while_the_central_manager_is_gone(pool5: Nodes, home: Path) -> None:
    """W35: no negotiator and no collector; the claims that are held run twenty more jobs."""
    hello = program(home, "echo hello")
    wait = program(home, f"while [ ! -e {home}/go ]; do sleep 0.05; done")
    async with client(queue_of(pool5)) as pool:
        first = await pool.submit(
            f"universe = parallel\nmachine_count = 3\nexecutable = {wait}\nqueue\n", iwd=str(home)
        )
        await asked(lambda: _runs(pool, first.cluster), "the first job to run")
        pool5.all[0].stop()
        text = f"universe = parallel\nmachine_count = 3\nexecutable = {hello}\noutput = out.$(Node)\nqueue 5\n"
        more = await pool.submit(text, iwd=str(home))
        serial = await pool.submit(f"executable = {hello}\ndedicated = true\nqueue 15\n", iwd=str(home))
        (home / "go").touch()
        for cluster in (first, more, serial):
            results = await cluster.wait(support.PATIENCE, until_stuck=True)
            assert all(result.ok for result in results), results
    pool5.start("head", "collector,negotiator").ready()


async def _runs(pool: Pool, cluster: int) -> bool:
    (ad,) = await pool.jobs(ids=[[cluster]])
    return bool(ad.value("JobStatus", 0) == 2)


async def test_plan_and_reserve_from_the_command_line(pool5: Nodes, home: Path) -> None:
    address = queue_of(pool5).address

    def said(*words: str) -> str:
        done = poolnode(*words, "--address", address)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async def planned() -> bool:
        return "3 machines" in await asyncio.to_thread(said, "plan")

    await asked(planned, "the machines to be known to a collector that was started anew just now")
    made = await asyncio.to_thread(said, "reserve", "2", "--from", "23:59", "--for", "30m")
    assert made.startswith("reservation r1: 2 machines for ")
    assert "reservation = r1" in made
    listed = await asyncio.to_thread(said, "reserve", "--list")
    assert "r1" in listed
    plan = await asyncio.to_thread(said, "plan")
    assert any(line.startswith("r1") and "R" in line for line in plan.splitlines()), plan
    await asyncio.to_thread(said, "plan", "--svg", str(home / "plan.svg"))
    assert (home / "plan.svg").read_text().startswith("<svg")
    refused = await asyncio.to_thread(poolnode, "reserve", "9", "--from", "23:59", "--for", "1h", "--address", address)
    assert refused.returncode != 0
    assert "cannot reserve 9 machines" in refused.stderr
    assert "r1 is cancelled" in await asyncio.to_thread(said, "reserve", "--cancel", "r1")
    assert "no reservations" in await asyncio.to_thread(said, "reserve")


STEPS = """
import os, sys, time
n = 0
print("begin", flush=True)
while not os.path.exists(sys.argv[1] + "/enough"):
    print(n, flush=True)
    n += 1
    time.sleep(0.05)
print("end", flush=True)
"""


async def counting(pool: Pool, home: Path, machines: int) -> Cluster:
    """A gang whose nodes count until `enough` is there, once all of them do."""
    from tests.starter.support import PYTHON

    (home / "steps.py").write_text(STEPS)
    cluster = await pool.submit(
        f"universe = parallel\nmachine_count = {machines}\nexecutable = {PYTHON}\narguments = steps.py {home}\n"
        'output = out.$(Node)\n+ParallelShutdownPolicy = "WAIT_FOR_ALL"\nqueue\n',
        iwd=str(home),
    )
    outputs = [home / f"out.{node}" for node in range(machines)]
    await until(lambda: all("begin" in _text(output) for output in outputs), "all nodes to count")
    return cluster


async def counted_once(gang: Cluster, home: Path, machines: int) -> None:
    """Let a gang that was interrupted once end; each node has made each step once."""
    (home / "enough").touch()
    (result,) = await gang.wait(support.PATIENCE, until_stuck=True)
    assert result.ok, result
    (ad,) = await gang.ads()
    assert ad.value("NumJobStarts") == 2
    for node in range(machines):
        lines = _text(home / f"out.{node}").split()
        assert lines == ["begin", *map(str, range(len(lines) - 2)), "end"]


async def test_a_gang_is_saved_for_a_reservation_and_goes_on_after_it(pool5: Nodes, home: Path) -> None:
    """W53: at its beginning the reserved machines run the job that names it; what ran there lost nothing."""
    address = queue_of(pool5).address

    def said(*words: str) -> str:
        done = poolnode(*words, "--address", address)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    async with client(queue_of(pool5)) as pool:
        gang = await counting(pool, home, 3)
        made = await asyncio.to_thread(said, "reserve", "2", "--for", "10m")
        name = made.split()[1].rstrip(":")
        mine = await pool.submit(
            f"universe = parallel\nmachine_count = 2\nexecutable = /bin/true\nreservation = {name}\nqueue\n",
            iwd=str(home),
        )
        (result,) = await mine.wait(support.PATIENCE, until_stuck=True)
        assert result.ok, result
        await asyncio.to_thread(said, "reserve", "--cancel", name)
        await asked(lambda: _runs(pool, gang.cluster), "the gang to go on")
        await counted_once(gang, home, 3)


async def _left(pool: Pool, cluster: int) -> bool:
    return not await _runs(pool, cluster)


async def test_a_gang_goes_on_from_its_checkpoint_when_a_machine_has_died(pool5: Nodes, home: Path) -> None:
    """W36: node, keepers and job of one machine are killed in one moment, and the machine comes back."""
    async with client(queue_of(pool5)) as pool:
        gang = await counting(pool, home, 3)
        address = queue_of(pool5).address
        done = await asyncio.to_thread(poolnode, "checkpoint", f"{gang.cluster}.0", "--address", address)
        assert done.returncode == 0, done.stdout + done.stderr
        lost = next(node for node in reversed(pool5.all) if node.state.name == "three.state")
        for process in psutil.Process(lost.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                process.kill()
        lost.crash()
        await asked(lambda: _left(pool, gang.cluster), "the job to be idle")
        pool5.start("three", "startd", DEDICATED_SCHEDULER="sub", SLOTS="1", CHECKPOINT_WORTH="0").ready()
        await asked(lambda: _runs(pool, gang.cluster), "the job to go on")
        await counted_once(gang, home, 3)


HOLE = """
import os, sys, time
block = bytearray(os.urandom(1 << 20)) * 100
n = 0
print("begin", flush=True)
while not os.path.exists(sys.argv[1] + "/enough"):
    block[n * 4096 % len(block)] = n % 251
    print(n, flush=True)
    n += 1
    time.sleep(0.02)
print("end", flush=True)
"""


async def reclaimed(pool: Pool, home: Path) -> float:
    """Lend a machine to a job of 100 MB, and reclaim it: seconds from the last machine free to the first instruction
    of the gang's last node. The job goes on after the gang, and each of its steps is made once."""
    from tests.starter.support import PYTHON

    (home / "hole.py").write_text(HOLE)
    wait = program(home, f"while [ ! -e {home}/free ]; do sleep 0.02; done")
    gang = program(home, f"date +%s.%N > {home}/gang.$1", "gang")
    text = "universe = parallel\nmachine_count = 3\nexecutable = /bin/true\nqueue\n"
    warm = await pool.submit(text, iwd=str(home))
    await warm.wait(support.PATIENCE, until_stuck=True)
    first = await pool.submit(f"executable = {wait}\ndedicated = true\nqueue\n", iwd=str(home))
    await asked(lambda: _runs(pool, first.cluster), "the dedicated job to run")
    head = await pool.submit(
        f"universe = parallel\nmachine_count = 3\nexecutable = {gang}\narguments = $(Node)\n"
        '+ParallelShutdownPolicy = "WAIT_FOR_ALL"\nqueue\n',
        iwd=str(home),
    )
    hole = await pool.submit(
        f"executable = {PYTHON}\narguments = hole.py {home}\noutput = out\nlog = log\nqueue\n", iwd=str(home)
    )
    await asked(lambda: _runs(pool, hole.cluster), "the hole to be lent")
    await until(lambda: "begin" in _text(home / "out"), "the job in the hole to compute")
    freed = time.time()
    (home / "free").touch()
    (result,) = await head.wait(support.PATIENCE, until_stuck=True)
    assert result.ok, result
    began = max(float((home / f"gang.{node}").read_text()) for node in range(3))
    (home / "enough").touch()
    (result,) = await hole.wait(support.PATIENCE, until_stuck=True)
    assert result.ok, result
    lines = (home / "out").read_text().split()
    assert lines == ["begin", *map(str, range(len(lines) - 2)), "end"], "each step once"
    (ad,) = await hole.ads()
    assert ad.value("NumJobStarts") == 2
    assert ad.value("NumCkpts") >= 1
    return began - freed


async def test_a_hole_is_lent_and_comes_back_with_nothing_lost(pool5: Nodes, home: Path) -> None:
    """W23, W24: a job of 100 MB runs in a hole, is saved when the gang can start, and goes on after it."""
    async with client(queue_of(pool5)) as pool:
        took = await reclaimed(pool, home)
    print(f"from the last machine free to the gang's first instructions: {took:.2f} s")


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
