"""Startds and schedds of the own pool that hang while matches are delivered: cycles go on without them."""

from __future__ import annotations

import asyncio

import pytest

from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


@pytest.mark.parametrize("call", ["startd.matched", "schedd.matched", "schedd.rejected"])
def test_a_role_that_hangs_holds_up_no_cycle(call: str) -> None:
    """It takes a call of the negotiator and never answers: jobs submitted after that start within three seconds."""

    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            await pool.add("other", "schedd")
            for number in range(3):
                await pool.add(f"m{number}", "startd", behave=lambda spec: lasting(100))

            async def hang() -> None:
                await asyncio.sleep(7200)

            await pool.run_until(lambda: slots(pool) == 3, within=60)
            trap = pool.run_at(call, TrapPhase.BEFORE, hang)
            wanted = {"Requirements": ["TARGET.Cpus > 1000"]} if call == "schedd.rejected" else {}
            await pool.submit("other", ad=wanted)
            await pool.run_until(lambda: trap.sprung, within=60, step=0.01)
            began, before = asyncio.get_running_loop().time(), len(pool.witness.starts)
            await pool.submit("head", owner="bob")
            await pool.run_until(lambda: len(pool.witness.starts) > before, within=60, step=0.01)
            assert pool.witness.starts[-1][2] - began <= 3.0  # a moment for who hangs, and the pause after a long cycle

    run_virtual(work())


def slots(pool: SimPool) -> int:
    """How many slots the collector knows."""
    return sum(kind == "Machine" for kind, _ in pool.role("head", "collector")._registry.entries)
