"""Two dedicated schedulers for one machine: loans until a time, and machines that are called back (WR 6.4, W55)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pool.policy.dedicated.discipline import finish
from pool.policy.managed import HOLDER, LOANS
from pool.wire import RemoteError
from tests.roles.schedd.dedicated.support import DedicatedStory, parallel, pause, play, serial
from tests.roles.support import told

BOTH: dict[str, Any] = {"DEDICATED_SCHEDULER": "head, other"}
HEAD, OTHER = "DedicatedScheduler@head", "DedicatedScheduler@other"
PLAIN: dict[str, Any] = {"DEDICATED_BACKFILL": "none", "DEDICATED_ORDER": "fifo"}


def now() -> float:
    """The loop's time."""
    return asyncio.get_running_loop().time()


async def two(at: DedicatedStory) -> Any:
    """A second schedd, whose jobs are numbered from 101; its scheduler."""
    await at.pool.add("other", "schedd")
    schedd = at.pool.role("other", "schedd")
    schedd.ledger.next_cluster = 101
    await at.machines(2, **BOTH)
    return schedd.dedicated


async def lend(at: DedicatedStory, seconds: float) -> None:
    """The head has both machines; a job of so many seconds runs on one, and a gang of two waits: the other is lent."""
    await at.claim_all(2)
    at.seconds |= {"2.0": seconds, "3.0": 10.0, "*": 1000.0}
    await at.pool.submit("head", ad=serial(ExpectedDuration=int(seconds)))
    await at.runs("2.0")
    await at.pool.submit("head", ad=parallel(2))
    await at.pool.run_until(lambda: len(at.held) == 1, 40.0)


def lent_ad(at: DedicatedStory) -> dict[str, Any]:
    """The ad of the machine that is lent."""
    (slot,) = {"slot1@m0", "slot1@m1"} - set(at.held)
    return told(at.pool, slot)[0]


def test_a_hole_is_lent_until_the_head_is_expected_to_start_and_is_there_then() -> None:
    """A gang that cannot be saved gets it if it is expected to end by then, and one that takes longer does not."""

    async def story(at: DedicatedStory) -> None:
        other = await two(at)
        await lend(at, 200.0)
        ends = at.started("2.0")[0] + 200.0 + at.pool.wall() - now()
        await at.pool.run_until(lambda: LOANS in lent_ad(at), 5.0)
        assert float(lent_ad(at)[LOANS].removeprefix(f"{HEAD}=")) == pytest.approx(ends, abs=5.0)
        at.seconds |= {"101.0": 30.0, "102.0": 500.0}
        await at.pool.submit("other", ad=serial(ExpectedDuration=500, JobCheckpoint="off"))
        await pause(5.0)
        at.seconds["102.0"] = 100.0
        await at.pool.submit("other", ad=serial(ExpectedDuration=100, JobCheckpoint="off"))
        await at.runs("102.0", 30.0)
        assert "101.0" not in at.running()
        assert "lent by other dedicated schedulers" in next(skip.words for skip in other.decisions.skips)
        assert lent_ad(at)[HOLDER] == OTHER
        (loan,) = other.machines.loans(other.held().values(), at.pool.wall())
        assert (loan.lender, loan.borrower) == (HEAD, OTHER)
        assert [loan.gang for loan in at.scheduler.machines.loans([], at.pool.wall())] == [True]
        await at.runs("3.0", 300.0)
        assert min(at.started("3.0")) - at.started("2.0")[0] - 200.0 < 5.0, "no reclaim was to be waited for"
        assert len(at.started("102.0")) == 1

    play(story, machines=0, stateful=True, **PLAIN)


def test_a_gang_that_can_be_saved_leaves_before_the_loan_is_over() -> None:
    async def story(at: DedicatedStory) -> None:
        other = await two(at)
        await lend(at, 200.0)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        await at.pool.run_until(lambda: "101.0" not in at.running(), 250.0)
        left = now() - at.started("2.0")[0]
        assert 150.0 < left < 200.0, "it was saved in time"
        assert other.decisions
        await at.runs("3.0", 100.0)
        assert min(at.started("3.0")) - at.started("2.0")[0] - 200.0 < 5.0
        at.seconds["101.0"] = 100.0
        await at.pool.run_until(lambda: len(at.started("101.0")) == 2, 300.0)

    play(story, machines=0, stateful=True, CHECKPOINT_WORTH="0", **PLAIN)


def test_a_machine_is_called_back_early_from_what_can_be_saved() -> None:
    """The head's job ends long before it was expected to."""

    async def story(at: DedicatedStory) -> None:
        await two(at)
        await lend(at, 500.0)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        await pause(20.0)
        await at.pool.act("head", "alice", action="remove", ids=[[2, 0]])
        removed = now()
        await at.runs("3.0", 60.0)
        assert now() - removed < 20.0
        assert "101.0" not in at.running()

    play(story, machines=0, stateful=True, CHECKPOINT_WORTH="0", **PLAIN)


def test_the_lender_keeps_its_promise_to_what_cannot_be_saved() -> None:
    """And a machine keeps it where the lender does not: the head asks for it with all that a scheduler has."""

    async def story(at: DedicatedStory) -> None:
        await two(at)
        await lend(at, 300.0)
        at.seconds["101.0"] = 250.0
        await at.pool.submit("other", ad=serial(ExpectedDuration=250, JobCheckpoint="off"))
        await at.runs("101.0", 30.0)
        await at.pool.act("head", "alice", action="remove", ids=[[2, 0]])
        await pause(60.0)
        assert "101.0" in at.running()
        plan = finish(at.scheduler.plan(at.scheduler.state))
        assert [(bar.label, bar.what) for bar in plan.bars if bar.what == "lent"] == [("loan to other", "lent")]
        assert any("loan to other" in start.words for start in plan.starts)
        startd = at.pool.role(at.pool.witness.running["101.0"], "startd")
        slot, loans = startd.slots["slot1"], startd.loans
        assert "lent by DedicatedScheduler@head for" in loans.refusal(slot, HEAD)
        await at.runs("3.0", 400.0)
        assert len(at.started("101.0")) == 1, "it ended by itself"

    play(story, machines=0, stateful=True, **PLAIN)


def test_a_borrower_that_lies_about_its_job_loses_the_machine_when_the_loan_is_over() -> None:
    async def story(at: DedicatedStory) -> None:
        await two(at)
        await lend(at, 150.0)
        at.seconds["101.0"] = 5000.0  # as its user said: 60
        await at.pool.submit("other", ad=serial(ExpectedDuration=60, JobCheckpoint="off"))
        await at.runs("101.0", 30.0)
        await at.runs("3.0", 300.0)
        assert min(at.started("3.0")) - at.started("2.0")[0] - 150.0 < 10.0
        job = at.pool.role("other", "schedd").queue.find(101, 0)
        assert job.status == 1
        await pause(5.0)

    play(story, machines=0, stateful=True, **PLAIN)


def test_the_borrower_dies_and_the_machine_is_there_again() -> None:
    async def story(at: DedicatedStory) -> None:
        await two(at)
        await lend(at, 300.0)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        await at.pool.crash("other")
        await at.runs("3.0", 400.0)
        assert min(at.started("3.0")) - at.started("2.0")[0] - 300.0 < 5.0

    play(story, machines=0, stateful=True, **PLAIN)


def test_a_borrower_that_was_killed_and_is_back_is_heard_at_once(tmp_path: Path) -> None:
    """Its request is the first since its start, as the one before was: the negotiator must not take it for that one."""

    async def story(at: DedicatedStory) -> None:
        await two(at)
        await lend(at, 60.0)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        await at.pool.crash("other")
        await at.runs("3.0", 400.0)
        await at.pool.restart("other")
        await at.pool.run_until(lambda: len(at.started("101.0")) == 2, 60.0)

    settings = PLAIN | {"NEGOTIATION_INTERVAL": "3000", "UNUSED_CLAIM_TIMEOUT": "5"}
    play(story, machines=0, stateful=True, directory=tmp_path, **settings)


def test_the_lender_dies_and_the_borrower_uses_the_machine_until_it_is_called_back(tmp_path: Path) -> None:
    """The loan ends when it was to end; with no lender there, the borrower may have the machine again."""

    async def story(at: DedicatedStory) -> None:
        other = await two(at)
        await lend(at, 100.0)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        await at.schedd.stop(handover=False)
        await at.pool.run_until(lambda: len(at.started("101.0")) == 2, 600.0)
        assert not other.machines.loans(other.held().values(), at.pool.wall())

    play(story, machines=0, stateful=True, directory=tmp_path, CHECKPOINT_WORTH="0", **PLAIN)


def test_a_loan_outlives_a_restart_of_the_machine() -> None:
    async def story(at: DedicatedStory) -> None:
        other = await two(at)
        await lend(at, 300.0)
        at.seconds["101.0"] = 200.0
        await at.pool.submit("other", ad=serial(ExpectedDuration=200, JobCheckpoint="off"))
        await at.runs("101.0", 30.0)
        machine = lent_ad(at)["Machine"]
        await at.pool.kill(machine)
        await at.pool.restart(machine)
        await pause(20.0)
        slot = at.pool.role(machine, "startd").slots["slot1"]
        assert list(slot.claim.loans) == [HEAD]
        (claim,) = other.held().values()
        assert 0 < claim.lent_until - at.pool.wall() < 300.0
        await at.runs("3.0", 400.0)
        assert len(at.started("101.0")) == 1

    play(story, machines=0, stateful=True, **PLAIN)


def test_nobody_else_lends_a_machine() -> None:
    """A scheduler lends its own claims only, those below it do not lend to it, and times are bounded."""

    async def story(at: DedicatedStory) -> None:
        other = await two(at)
        await at.pool.submit("other", ad=serial())
        await at.runs("101.0", 30.0)
        (claim,) = other.held().values()
        machine = claim.slot.partition("@")[2]
        slot = at.pool.role(machine, "startd").slots["slot1"]
        link = await at.pool.network.host("head", roles=("schedd",)).connect(f"mem://{machine}")
        await link.call("startd.release", {"claims": [claim.id], "lent_for": 1000.0})
        assert slot.claim is not None
        assert not slot.loans
        with pytest.raises(RemoteError):
            await link.call("startd.release", {"claims": [claim.id], "lent_for": "long"})
        await link.close()
        for seconds in (1000.0, float("nan"), float("inf"), -5.0):
            at.pool.role(machine, "startd").loans.lend(slot, seconds)
            assert not slot.loans, "other is the last in the list"

    play(story, machines=0, stateful=True, **PLAIN)
