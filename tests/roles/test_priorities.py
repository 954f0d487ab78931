"""Users' priorities in a whole simulated pool: kept over restarts, fair to light users, within quotas and limits."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from pool.client.priorities import priorities, set_priority
from pool.errors import PoolError
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.keepers import Behaviour
from pool.testing.pool import SimPool
from pool.wire import RemoteError
from tests.roles.support import QUICK, asking, lasting

FAST = {**QUICK, "PRIORITY_INTERVAL": "10", "CLAIM_LIFE": "0", "SLOT_WEIGHT": "1"}
Story = Callable[[SimPool], Awaitable[None]]


def tell(
    story: Story,
    settings: dict[str, str] | None = None,
    *,
    machines: int = 4,
    seconds: float = 20.0,
    directory: Path | None = None,
) -> None:
    """Play a story in a pool whose jobs last so long."""

    async def work() -> None:
        async with SimPool(3, settings={**FAST, **(settings or {})}, directory=directory) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for number in range(machines):
                await pool.add(f"m{number}", "startd", behave=lambda spec: lasting(seconds))
            await asyncio.sleep(1)
            await story(pool)
            pool.assert_sound()

    run_virtual(work())


def owners(pool: SimPool) -> Counter[str]:
    """Running jobs by owner."""
    jobs = pool.role("head", "schedd").queue.jobs()
    return Counter(job.cluster.owner for job in jobs if job.status == 2)


def idle(pool: SimPool, owner: str) -> int:
    """A user's idle jobs."""
    return sum(job.cluster.owner == owner and job.status == 1 for job in pool.role("head", "schedd").queue.jobs())


async def standing(pool: SimPool) -> dict[str, dict[str, Any]]:
    async with asking(pool) as user:
        return {account["name"].partition("@")[0]: account for account in (await priorities(user)).accounts}


def test_who_waits_rises_and_who_runs_sinks() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=100, owner="heavy")
        await asyncio.sleep(200)
        await pool.submit("head", count=1, owner="light", ad={"Requirements": ["false"]})
        await asyncio.sleep(50)
        found = await standing(pool)
        assert found["heavy"]["index"] < -30
        assert found["light"]["index"] >= 4
        assert found["heavy"]["slots"] == 4
        assert found["heavy"]["used"] == pytest.approx(4 * 250, rel=0.2)
        assert list(found)[:1] == ["light"]

    tell(story)


def test_a_light_user_is_served_next_whatever_the_heavy_one_has_queued() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=500, owner="heavy")
        await asyncio.sleep(300)
        await pool.submit("head", count=3, owner="light")
        # One job of the heavy user's at most on each machine.
        await pool.run_until(lambda: not idle(pool, "light"), within=22)

    tell(story)


def test_priorities_survive_the_negotiator(tmp_path: Path) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=200, owner="heavy")
        await asyncio.sleep(100)
        async with asking(pool, "root", administer=True) as user:
            await set_priority(user, "carol@lab", factor=7)
        before = await standing(pool)
        await pool.kill("head")
        await asyncio.sleep(5)
        await pool.restart("head")
        await asyncio.sleep(2)
        after = await standing(pool)
        assert after["carol"]["factor"] == 7
        # Killed, not stopped: at most one interval's worth is lost.
        assert abs(after["heavy"]["index"] - before["heavy"]["index"]) <= 2 * 4 + 1
        assert after["heavy"]["index"] < -10

    tell(story, directory=tmp_path)


def test_a_user_may_look_but_not_touch() -> None:
    async def story(pool: SimPool) -> None:
        async with asking(pool, "mallory") as user:
            assert (await priorities(user)).policy == "updown"
            with pytest.raises(PoolError, match="needs the right to administer"):
                await set_priority(user, "mallory@lab", factor=0.001)
        link = await pool.network.user("root", "head", administer=True)
        for params, said in (
            ({"user": "x", "factor": -1.0}, "a factor lies between"),
            ({"user": "x", "priority": 0.1}, "a priority lies between"),
            ({"user": "x", "reset": True}, "there is no account x"),
            ({"user": 5}, "'user' is 5"),
        ):
            with pytest.raises(RemoteError, match=said):
                await link.call("negotiator.set_priority", params)
        await link.close()

    tell(story)


def test_fair_share_gives_by_factors() -> None:
    async def story(pool: SimPool) -> None:
        link = await pool.network.user("root", "head", administer=True)
        domain = pool.role("head", "schedd").settings.text("UID_DOMAIN")
        await link.call("negotiator.set_priority", {"user": f"ann@{domain}", "factor": 1.0})
        await link.call("negotiator.set_priority", {"user": f"bob@{domain}", "factor": 3.0})
        await link.close()
        for owner in ("ann", "bob"):
            await pool.submit("head", count=2000, owner=owner)
        got: Counter[str] = Counter()
        for _ in range(200):
            await asyncio.sleep(5)
            got += owners(pool)
        assert got["ann"] / got["bob"] == pytest.approx(3, rel=0.35)

    tell(story, {"PRIORITY_POLICY": "fairshare", "PRIORITY_HALF_LIFE": "1 d"}, machines=8)


@pytest.mark.parametrize("policy", ["updown", "fairshare", "equal"])
def test_groups_stay_within_their_quotas_and_take_what_others_leave(policy: str) -> None:
    async def story(pool: SimPool) -> None:
        for owner, group, count in (("ann", "physics", 500), ("bob", "chem", 500), ("cyd", "", 500)):
            await pool.submit("head", count=count, owner=owner, ad={"AcctGroup": group} if group else {})
        await asyncio.sleep(100)
        assert owners(pool) == {"ann": 5, "bob": 2, "cyd": 3}
        await pool.act("head", "cyd", action="remove", all=True)
        await asyncio.sleep(60)
        # Chemistry is alone: what the others leave goes to physics.
        assert owners(pool) == {"ann": 8, "bob": 2}
        async with asking(pool) as user:
            groups = {group["name"]: group["held"] for group in (await priorities(user)).groups}
        assert groups == {"physics": 8, "chem": 2}

    tell(story, {"GROUP_QUOTAS": "physics=0.5, chem=2 alone", "PRIORITY_POLICY": policy}, machines=10)


def test_concurrency_limits_bind_across_the_pool() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=50, owner="ann", ad={"ConcurrencyLimits": "matlab"})
        await pool.submit("head", count=50, owner="bob", ad={"ConcurrencyLimits": "Matlab:2, db"})
        most = 0
        for _ in range(60):
            await asyncio.sleep(5)
            running = owners(pool)
            most = max(most, running["ann"] + 2 * running["bob"])
        assert most == 4
        ended = Counter(job.cluster.owner for job in pool.role("head", "schedd").queue.jobs())
        assert ended["ann"] < 50

    tell(story, {"CONCURRENCY_LIMITS": "matlab=4"}, machines=8)


def test_a_better_user_preempts_only_where_the_administrator_says_so() -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=100, owner="heavy")
        await asyncio.sleep(400)
        assert owners(pool) == {"heavy": 4}
        await pool.submit("head", count=10, owner="light")
        await asyncio.sleep(5)
        # Not more than the light user's equal part of the pool.
        assert owners(pool) == {"heavy": 2, "light": 2}

    settings = {"PREEMPTION_REQUIREMENTS": "MY.TotalJobRunTime > 60", "PREEMPTION_MINIMUM_RUN": "60"}
    tell(story, settings, seconds=1e6)

    async def without(pool: SimPool) -> None:
        await pool.submit("head", count=100, owner="heavy")
        await asyncio.sleep(400)
        await pool.submit("head", count=10, owner="light")
        await asyncio.sleep(300)
        assert owners(pool) == {"heavy": 4}

    tell(without, seconds=1e6)


@pytest.mark.parametrize("group", ["", "physics"], ids=["among users of no group", "inside a group"])
def test_quotas_do_not_keep_users_of_one_group_from_preempting_each_other(group: str) -> None:
    async def story(pool: SimPool) -> None:
        ad = {"AcctGroup": group} if group else {}
        await pool.submit("head", count=100, owner="heavy", ad=ad)
        await asyncio.sleep(400)
        assert owners(pool) == {"heavy": 4}
        await pool.submit("head", count=10, owner="light", ad=ad)
        await asyncio.sleep(30)
        assert owners(pool) == {"heavy": 2, "light": 2}

    settings = {"PREEMPTION_REQUIREMENTS": "MY.TotalJobRunTime > 60", "PREEMPTION_MINIMUM_RUN": "60"}
    tell(story, settings | {"GROUP_QUOTAS": "physics=0.5, chem=0.25"}, seconds=1e6)


def test_a_schedd_that_falls_silent_does_not_keep_the_others_waiting() -> None:
    async def story(pool: SimPool) -> None:
        await pool.add("mute", "schedd")
        await asyncio.sleep(1)

        async def never() -> None:
            await asyncio.sleep(1e6)

        trap = pool.run_at("schedd.requests", TrapPhase.BEFORE, never)
        await pool.submit("mute", count=5, owner="ann")
        await pool.run_until(lambda: trap.sprung, within=2)
        await pool.submit("head", count=2, owner="bob")
        await pool.run_until(lambda: owners(pool)["bob"] == 2, within=5)
        # The mute one is asked again later, and served.
        await pool.run_until(lambda: not pool.queued("mute"), within=300)

    tell(story, machines=4)


def test_the_administrator_says_which_machines_go_first() -> None:
    """Before the job's own Rank, and after it (RL 4.3)."""

    async def first(settings: dict[str, str], rank: str) -> str:
        async with SimPool(3, settings={**FAST, **settings}) as pool:
            await pool.add("head", "collector,negotiator,schedd")
            for name in ("ma", "mb", "mc"):
                await pool.add(name, "startd", behave=lambda spec: lasting(20.0))
            await asyncio.sleep(1)
            await pool.submit("head", ad={"Rank": [rank]})
            await pool.run_until(lambda: bool(pool.witness.starts), within=60)
            return str(pool.witness.starts[0][1])

    before, after = {"NEGOTIATOR_PRE_JOB_RANK": 'Machine == "mb"'}, {"NEGOTIATOR_POST_JOB_RANK": 'Machine == "mb"'}
    assert run_virtual(first(before, 'TARGET.Machine == "mc"')) == "mb"
    assert run_virtual(first(after, 'TARGET.Machine == "mc"')) == "mc"
    assert run_virtual(first(after, 'TARGET.Machine != "ma"')) == "mb"


@pytest.mark.parametrize(
    "settings",
    [
        {"UPDATE_PRIO": "Nothing + 1"},
        {"INACTIVE": '"text"'},
        {"PREEMPTION_REQUIREMENTS": "1/0"},
        {"PREEMPTION_RANK": '"text"'},
        {"NEGOTIATOR_PRE_JOB_RANK": '"text"', "NEGOTIATOR_POST_JOB_RANK": "1/0"},
        {"GROUP_QUOTAS": "physics"},
        {"CONCURRENCY_LIMITS": "matlab=many"},
    ],
)
def test_a_knob_that_makes_no_sense_stops_nobody(settings: dict[str, str]) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=20, owner="ann", ad={"ConcurrencyLimits": "matlab", "AcctGroup": "physics"})
        await asyncio.sleep(15)
        assert owners(pool) == {"ann": 4}
        await asyncio.sleep(200)
        assert not list(pool.role("head", "schedd").queue.jobs())

    tell(story, settings)


@pytest.mark.parametrize("limits", ["(((", "a b c", 7, ["undefined"]])
def test_a_job_with_limits_that_make_no_sense_waits_alone(limits: Any) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=1, owner="ann", ad={"ConcurrencyLimits": limits})
        await pool.submit("head", count=2, owner="bob")
        await asyncio.sleep(60)
        assert not any(job.cluster.owner == "bob" for job in pool.role("head", "schedd").queue.jobs())

    tell(story)


def test_two_negotiators_do_not_tear_a_pool_apart() -> None:
    async def story(pool: SimPool) -> None:
        await pool.add("second", "negotiator")
        await asyncio.sleep(1)
        await pool.submit("head", count=40, owner="ann")
        await asyncio.sleep(400)
        assert not list(pool.role("head", "schedd").queue.jobs())
        pool.assert_sound(["m0", "m1", "m2", "m3"])

    tell(story, {"NEGOTIATION_SETTLE": "0.01"})


def test_a_negotiator_that_dies_between_match_and_notice_costs_one_match() -> None:
    async def story(pool: SimPool) -> None:
        pool.trap("startd.matched", TrapPhase.AFTER, "central")
        await pool.submit("head", count=4, owner="ann")
        await asyncio.sleep(1)
        assert not pool.nodes["central"].running
        await pool.restart("central")
        await asyncio.sleep(200)
        assert not list(pool.role("head", "schedd").queue.jobs())

    async def work() -> None:
        async with SimPool(3, settings=FAST) as pool:
            await pool.add("head", "collector,schedd")
            await pool.add("central", "negotiator")
            for number in range(2):
                await pool.add(f"m{number}", "startd", behave=lambda spec: Behaviour(5))
            await asyncio.sleep(1)
            await story(pool)
            pool.assert_sound(["head", "m0", "m1"])

    run_virtual(work())


@pytest.mark.parametrize("gap", [0.0, 0.002, 0.01, 0.03, 0.05, 0.1])
def test_a_better_job_that_comes_just_after_another_was_matched_does_not_wait_for_the_next_regular_cycle(
    gap: float,
) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=4, owner="ann")
        await asyncio.sleep(gap)
        await pool.submit("head", count=2, owner="boss")
        await pool.run_until(lambda: owners(pool)["boss"] == 2, within=5)

    tell(story, {"RANK": '10 * (TARGET.Owner == "boss")', "NEGOTIATION_INTERVAL": "3600"}, seconds=1e6)


@pytest.mark.parametrize("over", ["machines", "users"])
def test_over_machines_all_jobs_of_one_stand_in_one_order(over: str) -> None:
    async def story(pool: SimPool) -> None:
        await pool.submit("head", count=2, owner="first")  # they hold the machines meanwhile
        await pool.run_until(lambda: owners(pool) == {"first": 2}, within=60)
        await pool.submit("head", count=3, owner="low", ad={"JobPrio": 0})
        await pool.submit("head", count=1, owner="high", ad={"JobPrio": 5})
        await pool.submit("head", count=1, owner="high", ad={"JobPrio": 7})
        await pool.run_until(lambda: idle(pool, "low") + idle(pool, "high") == 3, within=600)
        expected = {"high": 2} if over == "machines" else {"high": 1, "low": 1}
        assert {name: count for name, count in owners(pool).items() if name != "first"} == expected

    tell(story, {"PRIORITY_OVER": over, "PRIORITY_POLICY": "equal"}, machines=2, seconds=40.0)
