"""A head dies at each step of lending with credit and of payback: ledgers are equal, and each job has run (EV 4.2)."""

from __future__ import annotations

import asyncio
import functools
from pathlib import Path
from typing import Any

import pytest

from pool.policy.flock.ledger import CreditTerms
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.flock import head
from tests.roles.test_flock_credit import assert_equal, book, creditors

#: The borrower has signed entries, and the lender has no answer yet.
SIGNING = "world_back.credit"
#: The calls of lending, of credit and of payback, in either pool.
STEPS = (
    *("world.claim", "world_jobs.requests", "startd.matched", "world_jobs.matched", "startd.claim", "schedd.matched"),
    *("world.pass_call", "startd.activate", "schedd.ended", "schedd.renew", "startd.release"),
    *(SIGNING, "startd.end_after_job", "startd.take_back"),
)
BOUND = 150.0


@pytest.mark.parametrize("step", STEPS)
def test_a_head_that_dies_at_any_step(step: str, tmp_path: Path) -> None:
    """Chem helps physics, and then physics chem, which comes first up to the debt, with a job that is longer than that.
    The head of the pool that serves the step dies when it has, and again in the payback."""

    async def work() -> None:
        terms = CreditTerms(True, bound=BOUND)
        lengths = [60.0]
        async with creditors(
            40, {"physics": 1, "chem": 1}, seconds=lambda: lengths[0], directory=tmp_path, terms=terms
        ) as flock:
            restarts: set[asyncio.Task[None]] = set()

            async def start_again(name: str) -> None:
                await flock.settle(3)
                await flock.pool(name).restart(head(name))

            async def die(name: str) -> None:
                await flock.pool(name).kill(head(name))
                restarts.add(asyncio.create_task(start_again(name)))

            async def answer_and_die(name: str, answer: Any, pool: str, params: Any) -> Any:
                answered = await answer(pool, params)
                if any(one.get("signed") for one in answered["answers"]):
                    await asyncio.shield(asyncio.create_task(die(name)))
                    raise asyncio.CancelledError
                return answered

            def set_traps() -> None:
                for name in ("physics", "chem"):
                    flock.pool(name).traps.waiting.clear()
                    flock.pool(name).run_at(step, TrapPhase.AFTER, functools.partial(die, name))
                    if step == SIGNING:  # it is served on a connection that the borrower has made
                        own = book(flock, name)
                        own.answer = functools.partial(answer_and_die, name, own.answer)

            set_traps()
            await flock.submit("physics", count=12)
            await flock.run_until(lambda: flock.queued("physics") == 0, within=5000)
            set_traps()
            await flock.submit("physics", count=4, ad={"WantFlock": False})
            await flock.settle(10)
            lengths[0] = 300.0
            await flock.submit("chem", count=2, owner="bob")
            await flock.settle(100)
            lengths[0] = 60.0
            await flock.run_until(lambda: flock.queued() == 0, within=10_000)
            await flock.settle(300)
            assert restarts, "the step is one of these"
            assert abs(assert_equal(flock, "chem", "physics")) <= 1.01 * BOUND + 5
            for name, jobs in (("physics", 16), ("chem", 2)):
                open_ = [use for use in book(flock, name).measures.uses.values() if use.lends or not use.closed]
                assert open_ == [], "nothing is left that is not signed"
                assert len(await flock.pool(name).ended(head(name))) == jobs
            flock.assert_sound()

    run_virtual(work())
