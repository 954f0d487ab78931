"""One user's jobs in several pools that have agreed on nothing: real roles in virtual time, and trouble (EV 4.1)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.roles.world.borrowing import ComingBack
from pool.testing import run_virtual
from pool.testing.faults import TrapPhase
from pool.testing.flock import SimFlock, head
from pool.wire import Call, RemoteError
from pool.wire.identity import ANONYMOUS
from tests.roles.support import QUICK, lasting


def world(flock: SimFlock, name: str) -> Any:
    return flock.pool(name).role(head(name), "world")


async def join(flock: SimFlock, home: str, other: str, user: str = "alice") -> None:
    """The user has an account in the other pool, and tells home's world of it."""
    link = await flock.network.user(user, head(home))
    answer = await link.call("world.join", {"pool": other, "token": f"{user}@{head(other)}"})
    assert answer == {"pool": other, "user": user, "as": user}
    await link.close()


@asynccontextmanager
async def pools(
    seed: int, machines: dict[str, int], *, seconds: float = 10.0, directory: Path | None = None, **settings: str
) -> AsyncIterator[SimFlock]:
    """Pools without any agreement; the first is alice's home, and she has an account in each."""
    async with SimFlock(list(machines), seed, settings=QUICK | settings, directory=directory) as flock:
        for name, count in machines.items():
            await flock.add_pool(name, count, behave=lambda spec: lasting(seconds))
        await flock.run_until(lambda: all(len(flock.machines_shown(name)) == n for name, n in machines.items()), 60)
        home, *others = machines
        for other in others:
            await join(flock, home, other)
        yield flock


def also(*names: str) -> dict[str, Any]:
    return {"FlockAlso": ",".join(names)}


def machines_of(flock: SimFlock) -> set[str]:
    return {machine.split("-")[0] for machine in flock.runs_by_machine()}


def test_a_job_runs_in_the_pool_that_has_a_machine() -> None:
    async def work() -> None:
        async with pools(1, {"physics": 0, "chem": 1, "bio": 0}) as flock:
            await flock.submit("physics", count=3, ad=also("chem", "bio"))
            await flock.run_until(lambda: flock.running("physics") == 1, within=30)
            (host,) = [
                job.get("RemoteHost") for job in flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
                if job.get("RemoteHost")
            ]  # fmt: skip
            assert host == "slot1@chem-m0@chem~alice@physics-head"
            chem = await (await flock.network.user("bob", head("chem"))).call("world.status", {})
            assert [(one["user"], one["pool"], one["side"]) for one in chem["private"]] == [
                ("alice", "physics", "here")
            ]
            home = await (await flock.network.user("bob", head("physics"))).call("world.status", {})
            assert {(one["pool"], one["running"]) for one in home["private"]} == {("chem", 1), ("bio", 0)}
            await flock.run_until(lambda: flock.queued() == 0, within=100)
            assert len(flock.witness.starts) == 3, "each ran once"
            await flock.settle(20)
            chem = await (await flock.network.user("bob", head("chem"))).call("world.status", {})
            assert [(one["waiting"], one["running"]) for one in chem["private"]] == [(0, 0)]
            flock.assert_sound()

    run_virtual(work())


def test_jobs_that_do_not_name_a_pool_stay() -> None:
    async def work() -> None:
        async with pools(2, {"physics": 0, "chem": 2}) as flock:
            await flock.submit("physics", ad={})
            await flock.submit("physics", owner="bob", ad=also("chem"))
            await flock.submit("physics", ad=also("bio"))
            for ad, words in (
                ({"WantFlock": False}, "keeps the job in its own"),
                ({"JobUniverse": 7}, "stays in its pool"),
            ):
                with pytest.raises(RemoteError, match=words):
                    await flock.submit("physics", ad={**also("chem"), **ad})
            await flock.settle(120)
            assert (flock.queued(), flock.witness.starts) == (3, [])

    run_virtual(work())


@pytest.mark.parametrize("seed", range(3))
def test_pools_that_grant_in_the_same_instant_start_a_job_once(seed: int) -> None:
    """Many more machines than jobs, in all pools at once; claims that no job uses are given back."""

    async def work() -> None:
        async with pools(10 + seed, {"physics": 3, "chem": 3, "bio": 3}, seconds=40) as flock:
            await flock.submit("physics", count=4, ad=also("chem", "bio"))
            await flock.run_until(lambda: flock.queued() == 0, within=200)
            assert len(flock.witness.starts) == 4
            await flock.settle(60)
            for name in ("chem", "bio"):
                registry = flock.pool(name).role(head(name), "collector")._registry
                states = [ad.ad["State"] for (kind, _), ad in registry.entries.items() if kind == "Machine"]
                assert set(states) == {"Unclaimed"}, states
            flock.assert_sound()

    run_virtual(work())


def test_wishes_stand_in_the_other_pools_own_line() -> None:
    """Chem's machine is never idle; alice gets it as often from home as if she had submitted at chem."""
    turns = []

    async def work(pool: str) -> None:
        async with pools(20, {"physics": 0, "chem": 1}, seconds=30, CLAIM_LIFE="1") as flock:
            await flock.submit("chem", count=15, owner="bob")
            await flock.submit(pool, count=15, ad=also("chem"))
            await flock.run_until(lambda: len(flock.witness.starts) >= 16, within=2000)
            clusters = [job for job, *_ in flock.witness.starts[:16]]
            turns.append(sum(job.startswith(("physics:", "chem:2.")) for job in clusters))
            charged = flock.pool("chem").role(head("chem"), "negotiator").accounting.tallies()
            assert len(charged) == 2, "alice's use from home is charged to her own account there"
            flock.assert_sound()

    run_virtual(work("physics"))
    run_virtual(work("chem"))
    assert turns[1] >= 6, turns
    assert abs(turns[0] - turns[1]) <= 1, turns


#: The calls by which a job starts in another pool of its user's, in their order.
STEPS = (
    "schedd.requests",
    "world_private.requests",
    "startd.matched",
    "world_private.matched",
    "startd.claim",
    "schedd.matched",
    "world_machines.claim",
    "world_machines.activate",
    "world.private_call",
    "startd.activate",
)


@pytest.mark.parametrize("victim", ["physics", "chem"])
@pytest.mark.parametrize("step", STEPS)
def test_a_head_that_is_killed_at_any_step_of_a_start(step: str, victim: str, tmp_path: Path) -> None:
    async def work() -> None:
        async with pools(30, {"physics": 0, "chem": 2}, directory=tmp_path) as flock:

            async def kill() -> None:
                await flock.pool(victim).kill(head(victim))

            traps = [pool.run_at(step, TrapPhase.BEFORE, kill) for pool in flock.pools.values()]
            try:
                await flock.submit("physics", count=2, ad=also("chem"))
            finally:
                await flock.run_until(lambda: any(trap.sprung for trap in traps), within=200)
            for trap in traps:
                trap.sprung = True
            await flock.settle(60)
            await flock.pool(victim).restart(head(victim))
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("trouble", ["cut", "drop_silently", "chem is gone"])
def test_a_pool_that_is_lost_costs_nothing(trouble: str) -> None:
    """For an hour; jobs run at home meanwhile as ever, and those that ran there run on or begin anew, once."""

    async def work() -> None:
        async with pools(40, {"physics": 1, "chem": 2}, seconds=100) as flock:
            await flock.submit("physics", count=12, ad=also("chem"))
            await flock.run_until(lambda: flock.running("physics") == 3, within=30)
            if trouble == "chem is gone":
                await flock.pool("chem").kill(head("chem"))
            else:
                getattr(flock.network, trouble)(head("physics"), head("chem"))
            began = flock.now()
            await flock.run_until(lambda: flock.queued("physics") == 0, within=1500)
            assert flock.now() - began < 12 * 110 + 100, "home alone does them all, one after the other"
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("seed", range(3))
def test_messages_that_are_lost_and_late(seed: int) -> None:
    """Connections break at random and are slow; heads are restarted; in the end each job has ended once."""

    async def work() -> None:
        async with pools(50 + seed, {"physics": 1, "chem": 2, "bio": 2}, seconds=30) as flock:
            chance = random.Random(seed)
            await flock.submit("physics", count=20, ad=also("chem", "bio"))
            flock.network.loss = 0.01
            flock.network.slow_down(head("physics"), head("chem"), (0.5, 3.0))
            for _ in range(6):
                await flock.settle(chance.uniform(5, 40))
                victim = chance.choice(["physics", "chem", "bio"])
                if chance.random() < 0.5 or victim == "physics":
                    await flock.pool(victim).restart_role(head(victim), "world")
                else:
                    flock.network.cut(head("physics"), head(victim))
                await flock.settle(chance.uniform(1, 20))
                flock.network.restore_links()
            flock.network.loss = 0.0
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            await flock.settle(200)
            for name in ("chem", "bio"):
                assert not world(flock, name).private_lending._held, "nothing is kept that no job uses"
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("how", ["quit", "PRIVATE_FLOCK = false"])
def test_who_parts_leaves_no_machine_taken(how: str) -> None:
    """Either the user, while one job runs there and another claim is idle; or the other pool's owner."""

    async def work() -> None:
        async with pools(55, {"physics": 0, "chem": 2}, seconds=1000) as flock:
            await flock.submit("physics", count=2, ad=also("chem"))
            await flock.run_until(lambda: flock.running("physics") == 2, within=30)
            if how == "quit":
                link = await flock.network.user("alice", head("physics"))
                assert await link.call("world.quit", {"pool": "chem"}) == {"left": True}
                assert await link.call("world.quit", {"pool": "chem"}) == {"left": False}
            else:
                lender = world(flock, "chem")
                lender.reload(flock.pool("chem")._loaded({**QUICK, "POOL_NAME": "chem", "PRIVATE_FLOCK": "false"}))
            await flock.settle(5)
            assert (flock.running("physics"), flock.queued("physics")) == (0, 2)
            await flock.submit("chem", count=2, owner="bob")
            await flock.run_until(lambda: flock.running("chem") == 2, within=10)
            flock.assert_sound()

    run_virtual(work())


IDLE = {"MyType": "Job", "Owner": "bob", "User": "bob@vm", "NiceUser": False, "AcctGroup": "bosses", "JobUniverse": 5}


def test_one_pool_is_joined_under_one_name() -> None:
    """Two connections of one user's home would end each other for ever."""

    async def work() -> None:
        async with pools(14, {"physics": 0, "chem": 1}) as flock:
            link = await flock.network.user("alice", head("physics"))
            with pytest.raises(RemoteError, match="has joined this pool already, under the name chem"):
                await link.call("world.join", {"pool": "labs", "token": f"alice@{head('chem')}"})
            await join(flock, "physics", "chem")  # a new token for the same name
            await flock.submit("physics", ad=also("chem"))
            await flock.run_until(lambda: flock.queued() == 0, within=100)
            flock.assert_sound()

    run_virtual(work())


def test_two_homes_of_one_name_are_told_why_one_is_parted_with() -> None:
    async def work() -> None:
        async with pools(16, {"physics": 0, "chem": 1}) as flock:
            link = await flock.network.user("mallory", head("chem"))
            first, second = [await link.stream("world.private", {"home": "laptop"}) for _ in range(2)]
            with pytest.raises(RemoteError, match="has connected anew from a pool that is called laptop"):
                [item async for item in first]
            assert await anext(aiter(second)) == {"pool": "chem", "user": "mallory"}
            await link.close()
            flock.assert_sound()

    run_virtual(work())


def test_quit_is_done_to_the_end_though_nobody_waits_for_it() -> None:
    """The user's command is broken off while the job there has time to leave."""

    async def work() -> None:
        async with pools(15, {"physics": 0, "chem": 1}, seconds=10_000) as flock:
            await flock.submit("physics", ad=also("chem"))
            await flock.run_until(lambda: flock.running("physics") == 1, within=30)
            flock.network.drop_silently(head("physics"), head("chem"))
            link = await flock.network.user("alice", head("physics"))
            leaving = asyncio.create_task(link.call("world.quit", {"pool": "chem"}))
            await flock.settle(0.5)
            leaving.cancel()
            await link.close()
            await flock.settle(15)
            assert world(flock, "physics").private_borrowing.members == {}
            flock.assert_sound()

    run_virtual(work())


def test_a_home_that_lies_gets_what_its_user_has_and_no_more() -> None:
    """Mallory's own home says that her jobs are bob's, asks for files of the machine, and for claims of others."""

    async def work() -> None:
        async with pools(60, {"physics": 0, "chem": 2}, seconds=1000) as flock:
            await flock.submit("physics", ad=also("chem"))
            await flock.run_until(lambda: flock.running("physics") == 1, within=30)
            (alices,) = flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
            route = str(alices.stored_note("_run")["claim"]).split("|", 2)
            link = await flock.network.user("mallory", head("chem"))
            stream = await link.stream("world.private", {"home": "physics"})
            assert await anext(aiter(stream)) == {"pool": "chem", "user": "mallory"}
            wish = ["physics-head", 1, 1, 60.0, 0.0, {**IDLE, "Requirements": ["true"]}]
            await stream.send({"seen": 0, "wishes": [wish]})
            told = await anext(aiter(stream))
            (claim,) = told["delivery"]["claims"]
            registry = flock.pool("chem").role(head("chem"), "collector")._registry
            await flock.settle(2)
            slot = registry.entries["Machine", claim["slot"]].ad
            assert slot["RemoteOwner"] == "mallory@~physics"
            submitters = [ad.ad for (kind, _), ad in registry.entries.items() if kind == "Submitter"]
            assert sorted(ad["User"].partition("@")[0] for ad in submitters) == ["alice", "mallory"]
            passed = {"home": "physics", "schedd": "physics-head", "startd": claim["startd"]}
            order = {"claim": claim["claim"], "base": None, "start": {"mode": "shared"}, "shared": {}, "own": {}}
            for how, verb, params, words in (
                ({}, "activate", order, "cannot work on files of the machine"),
                ({}, "drain", {}, "does not pass"),
                ({"home": "chem"}, "release", {"claims": []}, "cannot be reached"),
                ({"startd": "mem://nowhere"}, "release", {"claims": []}, "no machine at"),
                ({}, "deactivate", {"claim": "invented"}, "no such claim|claim"),
            ):
                with pytest.raises(RemoteError, match=words):
                    await link.call("world.private_call", {**passed, "verb": verb, "params": params, **how})
            asked = {**passed, "verb": "inspect", "params": {"claim": route[2][:-1] + "?"}, "startd": route[1]}
            with pytest.raises(RemoteError):
                await link.call("world.private_call", asked)
            other = await flock.network.user("mallory", head("chem"))
            with pytest.raises(RemoteError, match="not the connection"):
                await other.call("world.private_call", {**passed, "verb": "release", "params": {"claims": []}})
            await link.call("world.private_call", {**passed, "verb": "release", "params": {"claims": [claim["claim"]]}})
            assert flock.running("physics") == 1
            flock.assert_sound()

    run_virtual(work())


WISH = ["s", 1, 1, 60.0, 0.0, {}]
JUNK: tuple[Any, ...] = (
    *(None, 7, [], {}, {"seen": 0}, {"seen": 0, "wishes": 7}, {"seen": "0", "wishes": []}),
    *({"seen": 0, "wishes": [wish]} for wish in ([], [*WISH, 1], ["", *WISH[1:]], ["s", -1, *WISH[2:]])),
    *({"seen": 0, "wishes": [wish]} for wish in (["s", 1, 0, *WISH[3:]], ["s", 1, 2**60, *WISH[3:]])),
    *({"seen": 0, "wishes": [["s", 1, 1, lease, 0.0, {}]]} for lease in (0, -1, float("nan"), float("inf"), "60")),
    {"seen": 0, "wishes": [["s", 1, 1, 60.0, 0.0, {1: 2}]]},
)


def test_wishes_that_cannot_be_read_end_that_connection_only() -> None:
    async def work() -> None:
        async with pools(61, {"physics": 0, "chem": 1}) as flock:
            for junk in JUNK:
                link = await flock.network.user("mallory", head("chem"))
                stream = await link.stream("world.private", {"home": "physics"})
                await anext(aiter(stream))
                await stream.send(junk)
                with pytest.raises(RemoteError, match="wish"):
                    await anext(aiter(stream))
                await link.close()
            for home in ("", "a b", "~", "x" * 300):
                with pytest.raises(RemoteError, match="cannot be the name"):
                    await anext(aiter(await link_of(flock, home)))
            for _ in range(3):
                await link_of(flock, "physics")
            boss = await flock.network.user("boss", head("chem"), administer=True)
            with pytest.raises(RemoteError, match="administrator's token"):
                await anext(aiter(await boss.stream("world.private", {"home": "physics"})))
            await flock.submit("physics", ad=also("chem"))
            await flock.run_until(lambda: flock.queued() == 0, within=100)
            flock.assert_sound()

    run_virtual(work())


async def link_of(flock: SimFlock, home: str) -> Any:
    link = await flock.network.user("mallory", head("chem"))
    return await link.stream("world.private", {"home": home})


def test_jobs_of_more_kinds_than_wishes_are_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is of a kind of its own, and its ad is large; the oldest are asked for first."""
    monkeypatch.setattr("pool.policy.flock.private.MOST_WISHES", 8)

    async def work() -> None:
        async with pools(63, {"physics": 0, "chem": 5}, seconds=0.1) as flock:
            for number in range(20):
                large = {"Requirements": [f"TARGET.Memory > {number} / 1000.0"], "Note": "x" * 100_000}
                await flock.submit("physics", ad={**also("chem"), **large})
            await flock.run_until(lambda: flock.queued() == 0, within=3000, step=1)
            flock.assert_sound()

    run_virtual(work())


CLAIM = {"claim": "c", "slot": "slot1@m", "startd": "mem://m", "ad": {}}


def test_another_pool_that_lies_gets_no_job_and_no_file() -> None:
    """Deliveries that nobody asked for, twice, late, too many, for other schedds, or that are none."""

    async def work() -> None:
        async with pools(62, {"physics": 0, "chem": 0}) as flock:
            await flock.submit("physics", owner="bob", ad=also("chem"))
            await flock.submit("physics", count=2, ad=also("chem"))
            borrower = world(flock, "physics").private_borrowing
            (member,) = borrower.members.values()
            await flock.run_until(lambda: bool(member.wishes), within=10)
            ((schedd, number),) = member.wishes
            good = {"sequence": 1, "wish": [schedd, number], "lease": 60.0, "claims": [CLAIM]}
            for junk in (
                None, 7, {}, {"delivery": 7}, {"rejected": 7}, {"delivery": {**good, "sequence": 2}},
                *({"delivery": {**good, "claims": [{**CLAIM, **change}]}} for change in (
                    {"slot": "slot1@m@n"}, {"startd": "mem://m|x"}, {"ad": {1: 1}}, {"claim": 7}, {"slot": "@" * 600},
                )),
            ):  # fmt: skip
                with pytest.raises(PoolError, match="cannot be read"):
                    borrower._hear(member, junk)
            borrower._hear(member, {"rejected": [[schedd, 10**6, "x"], 7, [schedd, number, "y" * 10_000]]})
            assert [len(why) for why in member.why.values()] == [500]
            changes: list[dict[str, Any]] = [
                {"wish": [schedd, 10**6]}, {"wish": ["other", number]}, {"claims": [CLAIM] * 1000}, {"lease": 1e9},
            ]  # fmt: skip
            for sequence, change in enumerate(changes, 1):
                borrower._hear(member, {"delivery": {**good, "sequence": sequence, **change}})
            with pytest.raises(PoolError, match="cannot be read"):
                borrower._hear(member, {"delivery": good})
            await flock.settle(100)
            assert not flock.pool("physics").role(head("physics"), "schedd").placement.claims.values()
            assert flock.queued() == 3
            home = world(flock, "physics")
            back = ComingBack(member.name, home.borrowing, home.credit, home.log)
            call = Call(ANONYMOUS, await flock.network.user("x", head("physics")))
            for verb in ("revoked", "submit"):
                asked = {"schedd": "physics-head", "startd": "mem://m", "verb": verb, "params": {"claim": "c"}}
                with pytest.raises(PoolError):
                    await back.pass_back(call, asked)

    run_virtual(work())
