"""A role that failed is dead: whatever it still hears of, it does nothing more, for another has taken its place."""

from __future__ import annotations

import asyncio
import inspect

from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


def test_a_schedd_that_was_replaced_does_not_reach_for_its_claims_again() -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(600.0))
            await pool.submit("s1")
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            # Without a queue on disk the second knows of no job: all that is asked of m1 now, the first asks.
            await pool.restart_role("s1", "schedd")
            await asyncio.sleep(1.0)
            before = pool.traps.called.get("startd.resume", 0)
            pool.network.cut("s1", "m1")
            await asyncio.sleep(1.0)
            pool.network.restore_links()
            await asyncio.sleep(20.0)
            assert pool.traps.called.get("startd.resume", 0) == before

    run_virtual(work())


def test_nothing_begins_in_a_role_that_is_dead() -> None:
    async def work() -> None:
        async with SimPool(2, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            dead = pool.role("head", "schedd")
            await pool.restart_role("head", "schedd")
            begun: list[str] = []

            async def begin() -> None:
                begun.append("something")

            left = begin()
            task = dead.spawn(left, "test")
            assert inspect.getcoroutinestate(left) == inspect.CORO_CLOSED, "the loop may end before its next turn"
            await asyncio.wait([task])
            assert task.cancelled()
            assert begun == []
            pool.assert_sound()

    run_virtual(work())


def test_a_startd_that_was_replaced_leaves_the_next_jobs_directory_alone() -> None:
    """An idle claim is kept for ten seconds after its connection ended; by then the slot may be another's."""

    async def work() -> None:
        async with SimPool(3, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("s1", "schedd")
            await pool.add("m1", "startd", behave=lambda spec: lasting(1.0 if spec.id.startswith("1.") else 60.0))
            await pool.submit("s1")
            await pool.run_until(lambda: not pool.queued("s1"), within=60)
            slot = pool.role("m1", "startd").slots["slot1"]
            assert slot.claim is not None
            assert slot.claim.running is None
            await pool.restart_role("m1", "startd")
            await pool.submit("s1")
            await pool.run_until(lambda: len(pool.witness.starts) == 2, within=5)
            await asyncio.sleep(20.0)
            assert pool.witness.running
            assert (pool.role("m1", "startd").execute / "slot1").is_dir()
            pool.assert_sound()

    run_virtual(work())
