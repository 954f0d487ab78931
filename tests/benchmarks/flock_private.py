"""How soon a user's job starts in another pool where the user has an account, beside pools that have an agreement.

Simulated roles on the virtual clock: what counts is messages, and no load of the machine.
"""

from __future__ import annotations

import asyncio
import statistics
from typing import Any

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.keepers import Behaviour
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

HOME, OTHER = "physics", "chem"
#: Seconds there and back between the two pools, and the most from a submit to the start, seconds.
DELAYS = ((0.001, 0.06), (0.1, 0.6))
#: Seconds that a job runs, and from the start of one to the submit of the next.
LENGTH, PAUSE = 1.0, 7.3
#: Seconds within which a job is sure to start.
LONGEST = 60.0


async def _starts(delay: float, turns: int, *, private: bool) -> list[float]:
    """Seconds from each submit at home to the job's start in the other pool."""
    took = []
    async with SimFlock([HOME, OTHER], 1) as flock:
        flock.network.slow_down(head(HOME), head(OTHER), (delay / 2, delay / 2))
        if not private:
            flock.agree(lender=OTHER, borrower=HOME)
        await flock.add_pool(HOME, 0)
        await flock.add_pool(OTHER, turns, behave=lambda spec: Behaviour(LENGTH))
        if private:
            link = await flock.network.user("alice", head(HOME))
            await link.call("world.join", {"pool": OTHER, "token": f"alice@{head(OTHER)}"})
            await link.close()
        else:
            await flock.run_until(lambda: len(flock.machines_shown(HOME)) == turns, within=LONGEST)
        await flock.settle(LONGEST)
        for turn in range(turns):
            ad: dict[str, Any] = {"FlockAlso": OTHER} if private else {}
            submitted = flock.now()
            await flock.submit(HOME, ad=ad)
            await flock.run_until(lambda count=turn: len(flock.witness.starts) > count, LONGEST, 0.001)  # type: ignore[misc]
            took.append(flock.witness.starts[-1][2] - submitted)
            await flock.settle(PAUSE)
        flock.assert_sound()
    return took


@benchmark("flock_private")
async def flock_private(effort: Effort) -> list[Row]:
    """Submit to start in another pool by a user's account there, beside an agreement; 1 and 100 ms; virtual clock."""
    turns = effort.of(9, least=3)
    rows = []
    for delay, most in DELAYS:
        private = await asyncio.to_thread(run_virtual, _starts(delay, turns, private=True))
        agreed = await asyncio.to_thread(run_virtual, _starts(delay, turns, private=False))
        ours, theirs = (1000 * statistics.median(took) for took in (private, agreed))
        name = f"{1000 * delay:g} ms away: a user's job by an account there, submit to start"
        note = f"{turns} jobs, {1000 * min(private):.0f} to {1000 * max(private):.0f} ms"
        rows.append(Row(name, ours, "ms", Goal("at most", 1000 * most), "an agreement of the pools", theirs, note))
    return rows
