"""Large submits: taken in by pieces, accepted as a whole or not at all, and nobody waits for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.client.batches import MOST_JOBS, batches, is_large
from pool.client.submitting import submit_batches
from pool.errors import PoolError
from pool.roles.schedd.core.intake import TURN, ClusterIntake
from pool.testing import run_virtual
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import RemoteError, Stream
from tests.roles.support import QUICK, asking

AD: dict[str, Any] = {"MyType": "Job", "Cmd": "/bin/true", "Iwd": "/", "Requirements": ["true"], "Rank": 0.0}


async def say(stream: Stream, items: list[Any]) -> None:
    """Send it all and wait for the answer."""
    for item in items:
        await stream.send(item)
    async with asyncio.timeout(60):
        async for _ in stream:
            pass


def test_a_large_cluster_is_taken_in_and_kept(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            deltas: list[Any] = [{"Args": str(proc)} if proc % 3 else None for proc in range(2500)]
            deltas[7] = {"Args": "7", "JobStatus": 5}
            async with asking(pool) as user:
                sent: list[int] = []
                answer = await submit_batches(user, {"ad": AD, "count": 2500}, batches(deltas), sent.append)
                assert (answer["count"], sent) == (2500, [1000, 2000, 2500])
                longer = "exceeds a frame " * 10**6
                more = await submit_batches(user, {"ad": AD, "count": 3}, batches([{"A": longer}] * 3))
            for _ in range(2):
                jobs = pool.role("head", "schedd").queue.clusters[answer["cluster"]].jobs
                assert [job.get("Args") for job in jobs.values()] == [delta and delta["Args"] for delta in deltas]
                assert [proc for proc, job in jobs.items() if job.status == 5] == [7]
                assert pool.role("head", "schedd").queue.count("alice", 1) == 2502
                assert len(pool.role("head", "schedd").queue.clusters[more["cluster"]].jobs) == 3
                await pool.kill("head")
                await pool.restart("head")

    run_virtual(work())


def test_a_submit_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK, directory=tmp_path) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            async with asking(pool) as user:
                link = await user.link()
                for wrong, said in (
                    ([["x"]], "no job ad"),
                    ([5], "differences are no list"),
                    ([[{}] * 4], "3 jobs with 4 differences"),
                    ([[{}], "done"], "3 jobs with 1 differences"),
                    ([[{"A": ["1 +"]}]], "A is no expression"),
                ):
                    stream = await link.stream("schedd.submit_large", {"ad": AD, "count": 3})
                    with pytest.raises(RemoteError, match=said):
                        await say(stream, wrong)
                stream = await link.stream("schedd.submit_large", {"ad": AD, "count": 3})
                await stream.send([{}, {}])
                await stream.finish()
                with pytest.raises(RemoteError, match="broke off; nothing was queued"):
                    await say(stream, [])
                stream = await link.stream("schedd.submit_large", {"ad": AD, "count": 3})
                await stream.send([{}, {}])
            await asyncio.sleep(1.0)
            assert pool.queued("head") == 0
            await pool.kill("head")
            await pool.restart("head")
            assert pool.queued("head") == 0
            pool.assert_sound()

    run_virtual(work())


def test_jobs_may_end_while_others_of_their_cluster_still_come() -> None:
    """Machines take the first jobs before the last is in the queue."""

    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("m1", "startd", behave=lambda spec: Behaviour(0.001))
            await pool.submit("head")
            await pool.run_until(lambda: pool.queued("head") == 0, within=60)
            schedd = pool.role("head", "schedd")
            real, queue = asyncio.sleep, schedd.queue

            async def slow_turn(seconds: float) -> None:  # what is a turn of the loop here lasts for seconds
                await real(5.0 if seconds == 0 and queue.clusters else seconds)

            asyncio.sleep = slow_turn  # type: ignore[assignment]
            try:
                ad = {"RequestMemory": 1, "RequestDisk": 1, "RequestCpus": 1, "FileSystemDomain": "simulation"}
                await pool.submit("head", count=1001, ad=ad)
            finally:
                asyncio.sleep = real
            await pool.run_until(lambda: pool.queued("head") == 0 and not queue.clusters, within=600)
            assert len(pool.witness.starts) == 1002
            pool.assert_sound()

    run_virtual(work())


def test_batches() -> None:
    deltas: list[Any] = [{"Args": "x" * 100}] * 2500 + [None] * 10 + [{"Args": "y" * 10**6}] * 3 + [{}]
    found = list(batches(deltas))
    assert [delta for batch in found for delta in batch] == deltas
    assert max(map(len, found)) == MOST_JOBS
    assert [len(batch) for batch in found[-4:]] == [1, 1, 1, 1]
    assert not is_large(deltas[:2500])
    assert is_large([None] * 30_000)
    assert is_large([{"Args": "y" * 10**5}] * 100)
    assert list(batches([])) == []


def test_what_is_too_much_is_refused() -> None:
    with pytest.raises(PoolError, match="between 1 and 1000000"):
        ClusterIntake({}, 0, differs=False)
    with pytest.raises(PoolError, match="between 1 and 1000000"):
        ClusterIntake({}, 1_000_001, differs=False)


def test_no_piece_of_a_large_submit_holds_anybody_up() -> None:
    """Not timed against the clock of a busy machine: every piece that is worked on at a time is of a bounded size."""

    async def work() -> None:
        async with SimPool(5, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            ledger = pool.role("head", "schedd").ledger
            turns, most, before = 0, 0, 0

            async def watch() -> None:
                nonlocal turns, most, before
                while True:
                    now = len(ledger.queue)
                    most, before, turns = max(most, now - before), now, turns + 1
                    await asyncio.sleep(0)

            intake = ClusterIntake(dict(AD), 20_000, differs=True)
            intake.add_deltas([{"Args": "x"} for _ in range(20_000)])
            watching = asyncio.create_task(watch())
            await ledger.submit(1, "alice", intake)
            watching.cancel()
            assert len(ledger.queue) == 20_000
            assert most <= TURN + 1
            assert turns >= 20_000 // TURN - 2

    run_virtual(work())
