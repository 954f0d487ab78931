"""A negotiator rests after a cycle that matched nothing, however many more jobs come; news of machines wake it."""

from __future__ import annotations

import asyncio

from pool.roles.negotiator.role import FRUITLESS, LONGEST_REST, Negotiator
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, lasting


def test_jobs_that_no_machine_takes_do_not_keep_it_busy() -> None:
    async def work() -> None:
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            await pool.add("other", "schedd")
            await pool.add("m", "startd", behave=lambda spec: lasting(100))
            negotiator = pool.role("head", "negotiator")
            assert isinstance(negotiator, Negotiator)
            await pool.submit("other", ad={"Requirements": ["false"]})
            await pool.run_until(lambda: negotiator._cycles > 0, within=60, step=0.01)
            loop = asyncio.get_running_loop()
            before, began = negotiator._cycles, loop.time()
            while loop.time() < began + 5.0:
                await pool.submit("other", ad={"Requirements": ["false"]})
                await asyncio.sleep(0.005)
            assert negotiator._cost > 0.0
            most = 5.0 / min(FRUITLESS * negotiator._cost, LONGEST_REST)
            assert most / 2 < negotiator._cycles - before <= most + 2
            await pool.submit("other", ad={"Requirements": ['TARGET.Machine == "late"']})
            negotiator._rests_until = loop.time() + 3600
            await pool.add("late", "startd", behave=lambda spec: lasting(100))
            await pool.run_until(lambda: len(pool.witness.starts) > 0, within=10, step=0.01)

    run_virtual(work())
