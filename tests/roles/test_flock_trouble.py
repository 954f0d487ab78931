"""Trouble between pools of real roles on the virtual clock: single calls, faults at random, a link that is down."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.flock import SimFlock, head
from pool.testing.flock_status import FlockStatus
from pool.testing.keepers import Behaviour
from pool.testing.messages import CallFate, CallTrouble
from tests.benchmarks.flock_link import SMALL, run_link
from tests.chaos.flock import play
from tests.roles.support import QUICK, lasting

#: Rounds of every run of the suite (`python -m tests.chaos.flock` plays more), the first two with credit and users' own
#: other pools; the others broke a rule once.
SEEDS = (3, 7, 11, 22, 151)
#: Seconds within which a start or an end is known to both sides where nothing is wrong: some messages.
UNDER_WAY = 0.1
#: Seconds within which both collectors show who has a machine in another pool.
SHOWN = 0.5


@pytest.mark.parametrize("seed", SEEDS)
def test_no_rule_is_broken(seed: int) -> None:
    assert play(seed).broken == []


@pytest.mark.parametrize("fate", [fate for fate in CallFate if fate is not CallFate.PASSES])
def test_calls_between_pools_are_troubled(fate: CallFate) -> None:
    """A third of all calls between two pools are lost, unanswered, late, or doubled: each job runs once."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 21, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 3, behave=lambda spec: lasting(40))
            await flock.add_pool("physics", 0)
            trouble = CallTrouble(random.Random(21))
            setattr(trouble, fate.value, 0.33)
            flock.network.trouble_calls(head("physics"), head("chem"), trouble)
            status = FlockStatus(flock)
            status.begin()
            await flock.submit("physics", count=12)
            await flock.run_until(lambda: flock.queued() == 0, within=20_000)
            assert trouble.seen[fate] > 5
            assert len(await flock.pool("physics").ended(head("physics"))) == 12
            assert status.broken == []
            flock.assert_sound()

    run_virtual(work())


def test_a_start_whose_answer_is_lost_on_the_way_may_have_happened() -> None:
    """The link breaks when the other pool has started the job, and before its world could say so: the schedd asks what
    became of the job, and starts it nowhere else meanwhile."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 23, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 2, behave=lambda spec: lasting(50))
            await flock.add_pool("physics", 0)

            async def break_link() -> None:
                await flock.run_until(lambda: bool(flock.witness.running), within=10)
                flock.network.cut(head("physics"), head("chem"))
                await flock.settle(0.1)
                flock.network.restore_links()

            trap = flock.pool("chem").run_at("startd.activate", TrapPhase.AFTER, break_link)
            status = FlockStatus(flock)
            status.begin()
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            assert trap.sprung
            assert (len(flock.witness.starts), status.broken) == (1, [])
            flock.assert_sound()

    run_virtual(work())


def test_a_world_that_was_restarted_learns_the_leases_of_claims() -> None:
    """They bound the time for which it shows a claim that is no more."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 24, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            await flock.add_pool("chem", 1, behave=lambda spec: lasting(500))
            await flock.add_pool("physics", 0)
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=60)
            await flock.settle(10)
            await flock.pool("physics").restart_role(head("physics"), "world")
            borrowing = flock.pool("physics").role(head("physics"), "world").borrowing
            await flock.run_until(lambda: borrowing.lent() == {"chem": 1}, within=60)
            assert [claim.lease for claim in borrowing._claims.values()] == [60.0]
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            flock.assert_sound()

    run_virtual(work())


def test_running_jobs_are_busy_machines_at_every_event_of_the_clock() -> None:
    """Without trouble the sums differ only while a message is on its way."""
    names = ["a", "b", "c"]

    async def work() -> None:
        chance = random.Random(22)
        async with SimFlock(names, 22, settings=QUICK) as flock:
            flock.agree_all()
            for name in names:
                flock.pool(name).wall_shift = chance.uniform(-600, 600)
                await flock.add_pool(name, 2, behave=lambda spec: Behaviour(chance.uniform(20, 60)))
            await flock.settle(10)
            status = FlockStatus(flock)
            status.begin(exact=True)
            await flock.submit("a", count=12)
            await flock.submit("b", count=3)
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            await flock.settle(1)
            assert status.broken == []
            assert status.under_way > 0
            assert status.slowest_shown < SHOWN
            assert status.most_shown >= 6, "three machines elsewhere, each by the word of two collectors"
            assert (status.most_running, status.most_away > 1) == (6, True)
            assert status.slowest < UNDER_WAY
            assert status.equal > status.instants / 2

    run_virtual(work())


def test_a_link_that_is_down_for_an_hour(tmp_path: Path) -> None:
    """None is stuck, none runs twice, none is lost; one with a checkpoint loses at most an interval."""
    found = run_link(SMALL, tmp_path)
    assert (found.stuck, found.twice, found.lost) == (0, 0, 0)
    assert found.interrupted > 0
    assert found.restored == found.interrupted
    assert found.most_redone <= SMALL.interval + UNDER_WAY
