"""The World Machine as it was built (EV 5, 6), run by real roles: the shortcomings of EV 8, one by one.

Each test runs twice: by the classic design, which shows the shortcoming, and as pools are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from pool.jobs.states import JobStatus
from pool.policy.flock.classic import FreeMachines, appearance, machine_for
from pool.testing import run_virtual
from pool.testing.classic_world import CLASSIC_POOL, INTERVAL, ClassicWorld
from pool.testing.faults import TrapPhase
from pool.testing.flock import SimFlock, head
from tests.roles.support import QUICK, lasting

BOTH = pytest.mark.parametrize("classic", [True, False], ids=["classic", "ideal"])


@asynccontextmanager
async def pools(classic: bool, *, own: int = 0, machines: int = 2, seconds: float = 10.0) -> AsyncIterator[SimFlock]:
    """Physics borrows from chem; all clocks are far into the first intervals."""
    slow = {"UPDATE_INTERVAL": "600", "AD_LIFETIME": "2000", "CLAIM_LEASE": "600"}
    settings = {**QUICK, **slow, **(CLASSIC_POOL if classic else {})}
    async with SimFlock(
        ["physics", "chem"], 31, settings=settings, roles={"world": ClassicWorld} if classic else {}
    ) as flock:
        flock.agree(lender="chem", borrower="physics")
        await flock.add_pool("chem", machines, behave=lambda spec: lasting(seconds))
        await flock.add_pool("physics", own, behave=lambda spec: lasting(seconds))
        await flock.settle(4 * INTERVAL)
        yield flock


def starts(flock: SimFlock, began: float) -> list[float]:
    """Seconds from a time to each start."""
    return [at - began for _, _, at in flock.witness.starts]


@BOTH
def test_a_start_elsewhere_takes_cycles_of_both_pools(classic: bool) -> None:
    async def work() -> None:
        async with pools(classic) as flock:
            began = flock.now()
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=8 * INTERVAL)
            (wait,) = starts(flock, began)
            assert INTERVAL < wait < 4 * INTERVAL if classic else wait < 1
            flock.assert_sound()

    run_virtual(work())


@BOTH
def test_one_grant_in_an_interval(classic: bool) -> None:
    """Four jobs, four idle machines in the other pool."""

    async def work() -> None:
        async with pools(classic, machines=4, seconds=20_000) as flock:
            began = flock.now()
            await flock.submit("physics", count=4)
            await flock.run_until(lambda: len(flock.witness.starts) == 4, within=30 * INTERVAL)
            waits = starts(flock, began)
            assert max(waits) >= 4 * INTERVAL if classic else max(waits) < 5
            flock.assert_sound()

    run_virtual(work())


@BOTH
def test_the_world_ranks_as_a_machine(classic: bool) -> None:
    """A job goes out while a machine of its own pool is idle, if its user likes all machines alike or others more."""

    async def work() -> None:
        async with pools(classic, own=1) as flock:
            await flock.submit("physics", ad={"Rank": ["1.0 * (FlockPool =!= undefined)"] if classic else 0.0})
            await flock.run_until(lambda: flock.queued() == 0, within=10 * INTERVAL)
            (machine,) = flock.runs_by_machine()
            assert machine.startswith("chem" if classic else "physics")

    run_virtual(work())


@BOTH
def test_requests_come_among_the_pools_own_jobs(classic: bool) -> None:
    """One machine, and in one cycle a job of its pool, of a user who has had it before, and one of another pool."""

    async def work() -> None:
        async with pools(classic, machines=1, seconds=1000) as flock:
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: flock.queued() == 0, within=10 * INTERVAL)
            await flock.settle(2 * INTERVAL)

            async def submit_own() -> None:
                await flock.submit("chem", owner="bob")

            trap = flock.pool("chem").run_at("world.claim", TrapPhase.BEFORE, submit_own)
            await flock.submit("physics")
            await flock.run_until(lambda: trap.sprung and flock.queued() == 0, within=40 * INTERVAL)
            order = [job.partition(":")[0] for job, _, _ in flock.witness.starts]
            assert order == (["chem", "physics", "chem"] if classic else ["chem", "chem", "physics"])

    run_virtual(work())


@BOTH
def test_the_status_is_not_consistent(classic: bool) -> None:
    """The pool's collector does not know that its job runs, and on which machine."""

    async def work() -> None:
        async with pools(classic, seconds=5000) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: bool(flock.witness.running), within=10 * INTERVAL)
            await flock.settle(60)
            jobs = flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
            assert sum(job.status is JobStatus.RUNNING for job in jobs) == 1
            entries = flock.pool("physics").role(head("physics"), "collector")._registry.entries
            busy = sum(kind == "Machine" and entry.ad.get("State") == "Claimed" for (kind, _), entry in entries.items())
            assert busy == (0 if classic else 1)

    run_virtual(work())


@BOTH
def test_one_kind_of_machine_is_shown(classic: bool) -> None:
    """The second machine would do, the first is shown: the job waits beside an idle machine."""

    async def work() -> None:
        async with pools(classic, machines=1) as flock:
            special = {"STARTD_ATTRS": "CLAIM_LIFE", "CLAIM_LIFE": "7777"}
            await flock.pool("chem").add("chem-n", "startd", settings=special)
            await flock.settle(4 * INTERVAL)
            assert len(flock.machines_shown("physics")) == (1 if classic else 2)
            await flock.submit("physics", ad={"Requirements": ["CLAIM_LIFE =?= 7777"]})
            await flock.settle(10 * INTERVAL)
            assert flock.queued("physics") == (1 if classic else 0)

    run_virtual(work())


def test_the_first_recent_list_is_shown() -> None:
    lists = {"a": FreeMachines(0.0, {"slot1@a": {}}), "b": FreeMachines(90.0), "c": FreeMachines(80.0, {"slot1@c": {}})}
    assert appearance(lists, 100.0, 200.0) == ("a", "slot1@a")
    assert appearance(lists, 100.0, 50.0) == ("c", "slot1@c")
    assert appearance(lists, 200.0, 50.0) is None


def test_preferences_are_looked_for_before_requirements_alone() -> None:
    two, one = {"1@a": {"Memory": 1}, "2@a": {"Memory": 4}}, {"1@b": {"Memory": 9}}
    lists = {"a": FreeMachines(0.0, two), "b": FreeMachines(0.0, one)}
    assert machine_for(lists, lambda ad: ad["Memory"] > 1, lambda ad: ad["Memory"] > 8) == ("b", "1@b")
    assert machine_for(lists, lambda ad: ad["Memory"] > 1, lambda ad: False) == ("a", "2@a")
    assert machine_for(lists, lambda ad: False, lambda ad: True) is None
