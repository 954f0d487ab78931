"""Pools with a dedicated scheduler each that lend to each other (WR 6.4): the local one comes first, and jobs run that
are larger than any pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest

from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.keepers import Behaviour
from tests.roles.schedd.parallel.test_parallel_jobs import parallel
from tests.roles.support import QUICK

SETTINGS = {**QUICK, "GANG_PATIENCE": "30", "EVALUATE_INTERVAL": "5"}


@asynccontextmanager
async def two_clusters(seed: int, machines: int = 4, seconds: float = 20.0) -> AsyncIterator[SimFlock]:
    """Physics and chem, each with so many machines of its head's dedicated scheduler; each lends to the other."""
    async with SimFlock(["physics", "chem"], seed, settings=SETTINGS) as flock:
        flock.agree_all()
        for name in ("physics", "chem"):
            dedicated = {"DEDICATED_SCHEDULER": head(name)}
            await flock.add_pool(name, machines, behave=lambda spec: Behaviour(seconds, saving=0.5), settings=dedicated)
        for name in ("physics", "chem"):
            await flock.run_until(partial(_shows, flock, name, 2 * machines), within=60)
        yield flock


def _shows(flock: SimFlock, name: str, count: int) -> bool:
    return len(flock.machines_shown(name)) == count


def running(flock: SimFlock) -> Counter[str]:
    """How many programs run on machines of each pool."""
    return Counter(machine.partition("-")[0] for machine in flock.witness.running.values())


def test_a_job_of_six_in_two_pools_of_four() -> None:
    async def work() -> None:
        async with two_clusters(1) as flock:
            await flock.submit("physics", ad=parallel(6))
            await flock.run_until(lambda: running(flock) == {"physics": 4, "chem": 2}, within=120)
            await flock.run_until(lambda: flock.queued() == 0, within=300)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)
            flock.assert_sound()

    run_virtual(work())


def test_a_job_that_its_own_pool_can_hold_waits_for_it() -> None:
    """The local scheduler first: four machines are busy for a while, and four of chem's are idle."""

    async def work() -> None:
        async with two_clusters(2) as flock:
            await flock.submit("physics", ad=parallel(4))
            await flock.run_until(lambda: running(flock) == {"physics": 4}, within=60)
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: flock.queued() == 0, within=300)
            assert {machine.partition("-")[0] for _, machine, _ in flock.witness.starts} == {"physics"}
            flock.assert_sound()

    run_virtual(work())


def test_a_pools_own_dedicated_job_has_its_machines_back_from_a_guest() -> None:
    """The guest leaves all its machines, saved, and goes on when there are enough again."""

    async def work() -> None:
        async with two_clusters(3, seconds=60.0) as flock:
            await flock.submit("physics", ad=parallel(6))
            await flock.run_until(lambda: running(flock) == {"physics": 4, "chem": 2}, within=120)
            await flock.submit("chem", ad=parallel(4), owner="bob")
            await flock.run_until(lambda: running(flock)["chem"] == 4, within=60)
            await flock.run_until(lambda: flock.queued("chem") == 0, within=120)
            await flock.run_until(lambda: flock.queued() == 0, within=600)
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert ad["ExitCode"] == 0
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ({"WantDedicated": True}, "too big: 4 configured machines fit it, and it needs 6"),
        ({"WantFlock": False}, ""),
    ],
)
def test_a_job_that_its_user_keeps_waits_in_words(own: dict[str, Any], said: str) -> None:
    async def work() -> None:
        async with two_clusters(4) as flock:
            await flock.submit("physics", ad={**parallel(6), **own})
            await flock.settle(200)
            assert (flock.queued(), flock.witness.starts) == (1, [])
            user = await flock.network.user("carol", head("physics"))
            answer = await user.call("schedd.why", {"id": [1, 0]})
            assert said in str(answer)

    run_virtual(work())
