"""A slot that was given to somebody who never came is given again half a minute later, at whatever time that is."""

from __future__ import annotations

import asyncio

from pool.policy.negotiation import Match
from pool.roles.negotiator.pool_view import GIVEN
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK

#: Times at which adding half a minute and taking it away again leaves less than half a minute.
ROUNDED = [time / 1000 for time in range(40_000, 400_000) if (time / 1000 + GIVEN) - time / 1000 < GIVEN][::4001]


def test_the_timer_of_a_grant_finds_that_its_time_has_come() -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with SimPool(1, settings=QUICK) as pool:
            await pool.add("head", "collector,negotiator")
            pool_view = pool.role("head", "negotiator").pool_view
            for time in ROUNDED:
                await asyncio.sleep(time - loop.time())
                pool_view.record_match(Match("alice", 1, "slot1@gone", 1), None)
                assert "slot1@gone" in pool_view.withheld(loop.time())
                await asyncio.sleep(GIVEN + 0.1)
                assert "slot1@gone" not in pool_view._given, "a timer saw to it"

    assert len(ROUNDED) > 3
    run_virtual(work())
