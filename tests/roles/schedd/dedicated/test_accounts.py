"""Users have their turns by the pool's accounts, and by the scheduler's own count without a negotiator (WR 6.1)."""

from __future__ import annotations

import pytest

from pool.errors import PoolError
from pool.roles.schedd.dedicated.accounts import LASTS, read_accounts
from tests.roles.schedd.dedicated.support import DedicatedStory, pause, play, serial

BY_USE = {"alice@simulation": 100.0, "bob@simulation": 1.0}


def charge(at: DedicatedStory) -> None:
    """Alice has used a hundred slots for long, by jobs of any kind at any schedd."""
    accounts = at.pool.role("head", "negotiator").accounting.accounts
    for name, real in BY_USE.items():
        accounts.account_of(name).real = real


def deaf(at: DedicatedStory) -> None:
    """The negotiator answers nobody any more."""
    dispatcher = at.pool.nodes["head"].dispatcher
    assert dispatcher is not None
    dispatcher.remove("negotiator")


def test_a_user_who_has_used_the_pool_otherwise_comes_later() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 100.0, "*": 10.0}
        await at.pool.submit("head", owner="carol", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", owner="alice", ad=serial())
        await at.pool.submit("head", owner="bob", ad=serial())
        charge(at)
        await pause(40.0)
        assert at.scheduler.accounts.by_pool
        used = {queue.user: queue.used for queue in at.scheduler.state.queues}
        assert used["alice"] > used["bob"]
        await at.done(3, 300.0)
        assert at.started("3.0")[0] < at.started("2.0")[0], "bob's, though alice's came before"

    play(story, machines=1, PRIORITY_POLICY="fairshare", UID_DOMAIN="simulation")


def test_what_ran_since_the_last_answer_counts_at_once() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 1000.0, "*": 10.0}
        await at.pool.submit("head", owner="alice", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", owner="bob", ad=serial())
        await pause(35.0)
        accounts = at.scheduler.accounts
        assert accounts.by_pool
        before = accounts.used("alice")
        deaf(at)
        accounts.update({"alice@simulation": 0.0, "bob@simulation": 0.0})
        await pause(20.0)
        at.scheduler.wake()
        await pause(5.0)
        assert accounts.used("alice") == pytest.approx(25.0, abs=10.0)
        assert before >= 0.0

    play(story, machines=1, PRIORITY_POLICY="fairshare", UID_DOMAIN="simulation")


def test_without_a_negotiator_the_own_count_serves() -> None:
    async def story(at: DedicatedStory) -> None:
        at.seconds |= {"1.0": 2000.0, "*": 10.0}
        await at.pool.submit("head", owner="alice", ad=serial())
        await at.runs("1.0")
        await at.pool.submit("head", owner="bob", ad=serial())
        charge(at)
        await pause(40.0)
        assert at.scheduler.accounts.by_pool
        deaf(at)
        await pause(LASTS + 60.0)
        assert not at.scheduler.accounts.by_pool
        assert at.scheduler.accounts.used("alice") == pytest.approx(700.0, abs=60.0)
        assert at.scheduler.accounts.used("bob") == 0.0

    play(story, machines=1, PRIORITY_POLICY="fairshare", UID_DOMAIN="simulation")


@pytest.mark.parametrize("answer", [None, {}, {"accounts": "all"}, [1]])
def test_an_answer_that_makes_no_sense_is_refused(answer: object) -> None:
    with pytest.raises(PoolError, match="not understood"):
        read_accounts(answer)


def test_rows_that_make_no_sense_are_left_out() -> None:
    rows = [{"name": "alice", "charged": 3}, {"name": 4, "charged": 1}, {"name": "b", "charged": float("nan")}, None]
    assert read_accounts({"accounts": rows}) == {"alice": 3.0}
