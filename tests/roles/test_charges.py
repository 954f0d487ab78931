"""On whose account jobs run, in a whole simulated pool: claims keep to the group, the limits and the manners they were
granted for, and jobs of nice users come after everybody else's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pool.client.priorities import priorities
from pool.policy.queue import QueuedJob
from pool.testing import run_virtual
from pool.testing.pool import SimPool
from tests.roles.support import QUICK, asking, lasting

Story = Callable[[SimPool], Awaitable[None]]
#: The attributes of a job with `nice_user = true`.
NICE = {"NiceUser": True, "AcctGroup": "nice-user"}


def tell(story: Story, settings: dict[str, str] | None = None, *, machines: int = 4) -> None:
    """Play a story in a pool whose jobs take 20 s, and whose claims serve job after job."""

    async def work() -> None:
        async with SimPool(3, settings={**QUICK, "PRIORITY_INTERVAL": "10", **(settings or {})}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(machines):
                await pool.add(f"m{number}", "startd", behave=lambda spec: lasting(20))
            await asyncio.sleep(1)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def jobs(pool: SimPool, status: int) -> list[QueuedJob]:
    return [job for job in pool.role("head", "schedd").queue.jobs() if job.status == status]


def running(pool: SimPool, name: str) -> Counter[Any]:
    """Running jobs by an attribute."""
    return Counter(job.get(name) for job in jobs(pool, 2))


async def most(pool: SimPool, name: str, seconds: int) -> Counter[Any]:
    """The most jobs that run at once, by an attribute."""
    found: Counter[Any] = Counter()
    for _ in range(seconds // 2):
        found |= running(pool, name)
        await asyncio.sleep(2)
    return found


def test_a_claim_serves_no_other_group_than_the_one_it_was_granted_to() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=20)
        await pool.submit("head", count=20, ad={"AcctGroup": "physics", "JobPrio": 10})
        assert await most(pool, "AcctGroup", 150) == {"physics": 1, None: 4}

    tell(story, {"GROUP_QUOTAS": "physics=0.25 alone"})


def test_a_claim_serves_no_job_of_other_limits() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=20)
        await pool.submit("head", count=20, ad={"ConcurrencyLimits": "matlab", "JobPrio": 10})
        assert await most(pool, "ConcurrencyLimits", 150) == {"matlab": 1, None: 4}

    tell(story, {"CONCURRENCY_LIMITS": "matlab=1"})


def test_a_claim_goes_on_with_jobs_of_its_kind_without_the_negotiator() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=12, ad={"AcctGroup": "physics"})
        await asyncio.sleep(5)
        before = pool.role("head", "negotiator").own_ad()["Matches"]
        await pool.run_until(lambda: not pool.queued("head"), within=100)
        assert pool.role("head", "negotiator").own_ad()["Matches"] == before == 4

    tell(story)


def test_an_idle_claim_is_given_back_though_other_jobs_keep_coming() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=1)

        async def keep_coming() -> None:
            while True:
                await pool.submit("head", count=1, ad={"Requirements": ["false"]})
                await asyncio.sleep(0.5)

        others = asyncio.create_task(keep_coming())
        await asyncio.sleep(5)
        await pool.submit("head", count=1, owner="bob")
        await pool.run_until(lambda: bool(running(pool, "Owner")["bob"]), within=30)
        others.cancel()

    tell(story, machines=1)


@pytest.mark.parametrize("policy", ["updown", "fairshare", "equal"])
def test_nice_jobs_come_after_everybody_elses(policy: str) -> None:
    async def story(pool: SimPool) -> None:
        # The user that has used most, and waits for least.
        await pool.submit("head", count=40, owner="bob")
        await pool.submit("head", count=40, owner="alice", ad=NICE)
        while any(job.cluster.owner == "bob" for job in jobs(pool, 1)):
            assert not running(pool, "Owner")["alice"]
            await asyncio.sleep(2)
        await asyncio.sleep(45)
        assert running(pool, "Owner") == {"alice": 4}
        # And again as soon as there are others: a nice claim serves only nice jobs, and none after them.
        await pool.submit("head", count=40, owner="bob")
        await pool.run_until(lambda: running(pool, "Owner") == {"bob": 4}, within=25)
        async with asking(pool) as user:
            assert [account["name"].split("@")[0] for account in (await priorities(user)).accounts] == [
                "bob",
                "nice-user/alice",
            ]

    tell(story, {"PRIORITY_POLICY": policy, "CLAIM_LIFE": "0"})


def test_ones_own_nice_jobs_come_after_ones_others() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=40, ad={**NICE, "JobPrio": 20})
        await asyncio.sleep(5)
        await pool.submit("head", count=8)
        # A claim of the nice jobs goes on serving them, as it does beside any other user's, and no others.
        await pool.run_until(lambda: running(pool, "NiceUser") == {None: 4}, within=60)

    tell(story, {"CLAIM_LIFE": "30"})


def test_nice_jobs_take_what_groups_leave_and_cost_them_nothing() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=400, owner="ann", ad={"AcctGroup": "physics"})
        await pool.submit("head", count=400, owner="nic", ad=NICE)
        await asyncio.sleep(60)
        # Chemistry wants nothing, and what it leaves is physics' before it is nice users'.
        assert running(pool, "Owner") == {"ann": 4}
        await pool.act("head", "ann", action="remove", all=True)
        await asyncio.sleep(60)
        assert running(pool, "Owner") == {"nic": 4}
        await pool.submit("head", count=400, owner="cat", ad={"AcctGroup": "chem"})
        await pool.submit("head", count=400, owner="pat")
        await asyncio.sleep(60)
        # Slots of nice users do not count against users of no group.
        assert running(pool, "Owner") == {"cat": 2, "pat": 2}

    tell(story, {"GROUP_QUOTAS": "physics=0.5, chem=0.5 alone", "CLAIM_LIFE": "0"})


def test_a_nice_job_takes_no_machine_from_anybody() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=400, owner="bob")
        await asyncio.sleep(300)
        await pool.submit("head", count=40, owner="alice", ad=NICE)
        await asyncio.sleep(30)
        assert running(pool, "Owner") == {"bob": 4}

    async def the_other_way(pool: SimPool) -> None:
        await pool.submit("head", count=40, owner="alice", ad=NICE)
        await asyncio.sleep(30)
        await pool.submit("head", count=40, owner="bob")
        await asyncio.sleep(10)
        assert running(pool, "Owner") == {"bob": 4}

    settings = {"PREEMPTION_REQUIREMENTS": "true", "PREEMPTION_MINIMUM_RUN": "0"}
    for policy in ("updown", "fairshare", "equal"):
        tell(the_other_way, {**settings, "PRIORITY_POLICY": policy})
    tell(story, settings)


def test_a_member_of_a_group_rises_while_waiting_though_nothing_runs() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=400, owner="bob")
        await pool.submit("head", count=1, owner="ann", ad={"AcctGroup": "physics", "Requirements": ["false"]})
        await asyncio.sleep(200)
        async with asking(pool) as user:
            found = {account["name"].split("@")[0]: account for account in (await priorities(user)).accounts}
        assert found["physics/ann"]["index"] >= 8
        assert found["physics/ann"]["wants"]
        assert "ann" not in found or not found["ann"]["wants"]

    tell(story, {"GROUP_QUOTAS": "physics=0.5"})


def test_what_a_user_has_used_last_is_his_though_he_has_gone() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=4)
        await pool.run_until(lambda: not pool.queued("head"), within=60)
        await asyncio.sleep(700)
        (account,) = pool.role("head", "negotiator").accounting.listed()
        assert account["name"] == f"alice@{pool.role('head', 'schedd').settings.text('UID_DOMAIN')}"
        assert account["used"] == pytest.approx(80, rel=0.2)

    tell(story, {"PRIORITY_INTERVAL": "300"})


def test_over_machines_one_who_runs_and_waits_is_one_user() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=100)
        await asyncio.sleep(100)
        tally = pool.role("head", "negotiator").accounting.tallies()["head"]
        assert (tally.users, tally.jobs) == (1, 4)

    tell(story, {"PRIORITY_OVER": "machines"})
