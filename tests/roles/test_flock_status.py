"""Users are told of other pools: why a job waits, whose jobs run where, which machines there are (EV 8)."""

from __future__ import annotations

from typing import Any

import pytest

from pool.roles.world.explaining import OTHERS
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.wire import Connection, RemoteError
from tests.roles.support import QUICK, lasting


async def flock_of_two(flock: SimFlock, tmp: Any, rules: str = "") -> None:
    """Chem lends two machines to physics, which has none."""
    path = tmp / "flock.toml"
    path.write_text(rules)
    flock.agree(lender="chem", borrower="physics")
    await flock.add_pool("chem", 2, behave=lambda spec: lasting(100), settings={"FLOCK_FILE": str(path)})
    await flock.add_pool("physics", 0)
    await flock.run_until(lambda: len(flock.machines_shown("physics")) == 2, within=60)


async def why(link: Connection, cluster: int) -> list[dict[str, Any]]:
    answer = await link.call("schedd.why", {"id": [cluster, 0]})
    found: list[dict[str, Any]] = (await link.call("world.why", {"request": answer["request"]}))["findings"]
    return found


async def listed(link: Connection, **params: Any) -> list[dict[str, Any]]:
    stream = await link.stream("world.machines_of", {"pool": "chem", **params})
    return [ad async for batch in stream for ad in batch]


def test_each_pool_says_whose_jobs_run_where_and_what_machines_are_worth(tmp_path: Any) -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem"], 1, settings=QUICK) as flock:
            await flock_of_two(flock, tmp_path)
            here, there = [await flock.network.user("carol", head(name)) for name in ("physics", "chem")]
            (one,) = (await here.call("world.status"))["pools"]
            assert 0 < one["round_trip"] < 0.02
            (value,) = one["values"]
            assert value["count"] == 2
            assert value["distance"] == pytest.approx(1 - one["round_trip"])
            await flock.submit("physics")
            await flock.submit("physics", owner="bob")
            await flock.run_until(lambda: flock.running("physics") == 2, within=30)
            await flock.settle(1)
            (one,) = (await here.call("world.status"))["pools"]
            assert (one["out"], one["users_there"], one["guests"], one["values"]) == (
                True,
                {"alice": 1, "bob": 1},
                {},
                [],
            )
            (one,) = (await there.call("world.status"))["pools"]
            assert (one["out"], one["users_there"], one["guests"]) == (
                False,
                {},
                {"alice@physics": 1, "bob@physics": 1},
            )
            await flock.submit("physics")
            assert [(found["pool"], found["idle"]) for found in await why(here, 3)] == [("chem", 0)]

    run_virtual(work())


@pytest.mark.parametrize("far", ["bio", "chem"])
def test_a_job_goes_to_the_machine_with_the_greatest_server_value(far: str, tmp_path: Any) -> None:
    """Two pools have like machines, and one is a fifth of a second away (EV 4.3.3). A job's Rank counts more."""

    async def work() -> None:
        near = "chem" if far == "bio" else "bio"
        async with SimFlock(["physics", "bio", "chem"], 5, settings=QUICK) as flock:
            flock.network.slow_down(head("physics"), head(far), (0.1, 0.1))
            for name in ("bio", "chem"):
                flock.agree(lender=name, borrower="physics")
            for name, machines in ((far, 2), ("physics", 0), (near, 2)):  # the far ones are known first
                await flock.settle(5)
                await flock.add_pool(name, machines, behave=lambda spec: lasting(100))
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 4, within=60)
            await flock.settle(5)
            user = await flock.network.user("carol", head("physics"))
            values = {one["pool"]: one["values"][0] for one in (await user.call("world.status"))["pools"]}
            assert values[far]["distance"] == pytest.approx(0.8, abs=0.02)
            for job, ad in enumerate(({}, {}, {"Rank": [f'FlockPool =?= "{far}"']}), 1):
                await flock.submit("physics", ad=ad)
                await flock.run_until(lambda job=job: len(flock.witness.starts) == job, within=60)  # type: ignore[misc]
            assert [machine.partition("-")[0] for _, machine, _ in flock.witness.starts[:2]] == [near, near]
            assert flock.witness.starts[2][1].startswith(far)

    run_virtual(work())


@pytest.mark.parametrize("busy", ["bio", "chem"])
def test_a_machine_that_was_idle_for_longer_is_worth_more(busy: str) -> None:
    """Two pools have like machines; one has had jobs of its own until just now (EV 4.3.3)."""

    async def work() -> None:
        async with SimFlock(["physics", "bio", "chem"], 6, settings=QUICK) as flock:
            for name in ("bio", "chem"):
                flock.agree(lender=name, borrower="physics")
            for name, machines in (("physics", 0), ("bio", 1), ("chem", 1)):
                await flock.add_pool(name, machines, behave=lambda spec: lasting(100))
            for _ in range(12):
                await flock.submit(busy)
                await flock.settle(110)
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 2, within=60)
            user = await flock.network.user("carol", head("physics"))
            values = {one["pool"]: one["values"][0] for one in (await user.call("world.status"))["pools"]}
            calm = "chem" if busy == "bio" else "bio"
            assert values[calm]["idle"] == pytest.approx(960 / (960 + 3600))
            assert values[busy]["idle"] == pytest.approx(60 / (60 + 3600))
            await flock.submit("physics")
            await flock.run_until(lambda: bool(flock.running("physics")), within=60)
            assert flock.witness.starts[-1][1] == f"{calm}-m0"
            flock.assert_sound()

    run_virtual(work())


def test_why_a_job_is_not_let_in(tmp_path: Any) -> None:
    """By the agreement, by its own wish, and because of a pool that is away."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 2, settings=QUICK) as flock:
            await flock_of_two(flock, tmp_path, '[physics]\nusers = ["bob"]\n')
            link = await flock.network.user("carol", head("physics"))
            await flock.submit("physics")
            await flock.submit("physics", ad={"WantFlock": False})
            await flock.submit("physics", ad={"Requirements": ["TARGET.Memory > 1e9"]})
            await flock.settle(90)
            assert 1 < flock.pool("chem").traps.called["world.claim"] < 12, "a pool that refuses is not asked on and on"
            (found,) = await why(link, 1)
            assert (found["idle"], found["fit"]) == (2, 2)
            assert "jobs of alice of physics may not run here" in found["why"]
            assert await why(link, 2) == []
            (found,) = await why(link, 3)
            assert (found["idle"], found["unmet"]) == (2, 2)
            flock.network.cut(head("physics"), head("chem"))
            await flock.settle(5)
            (found,) = await why(link, 1)
            assert found["trouble"]
            ranks = {"ad": {"GangParts": [{"count": 3}], "JobUniverse": 8}, "submitter": "alice@physics-head"}
            (found,) = (await link.call("world.why", {"request": ranks}))["findings"]
            assert found["pool"] == OTHERS
            assert found["trouble"].startswith("its ranks reach no machine of another pool")
            for junk in ({}, {"ad": 7}, {"ad": {str(n): n for n in range(6000)}}):
                with pytest.raises(RemoteError, match="no job ad"):
                    await link.call("world.why", {"request": junk})

    run_virtual(work())


def test_a_pool_that_has_all_it_may_have_is_not_asked_on_and_on(tmp_path: Any) -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem"], 4, settings=QUICK) as flock:
            await flock_of_two(flock, tmp_path, "[physics]\nmachines = 1\n")
            await flock.submit("physics", count=4)
            await flock.run_until(lambda: flock.queued() == 0, within=600)
            assert flock.now() < 4 * 100 + 4 * 61
            assert flock.pool("chem").traps.called["world.claim"] < 40

    run_virtual(work())


@pytest.mark.parametrize("given", [True, False])
def test_the_machines_of_another_pool_are_listed_where_the_agreement_gives_it(given: bool, tmp_path: Any) -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem"], 3, settings=QUICK) as flock:
            await flock_of_two(flock, tmp_path, "[physics]\nstatus = true\n" if given else "")
            link = await flock.network.user("carol", head("physics"))
            if not given:
                with pytest.raises(RemoteError, match="does not give it our status"):
                    await listed(link)
                return
            ads = await listed(link)
            assert sorted(ad["Machine"] for ad in ads) == ["chem-m0", "chem-m1"]
            assert all("StartdAddress" not in ad for ad in ads)
            assert await listed(link, constraint="Memory > 1e9") == []
            assert [set(ad) for ad in await listed(link, attributes=["Name"], limit=1)] == [{"Name"}]
            with pytest.raises(RemoteError, match="no pool bio lends"):
                await listed(link, pool="bio")
            other = await flock.network.user("carol", head("chem"))
            with pytest.raises(RemoteError, match="may not call"):
                await anext(aiter(await other.stream("world.listing", {})))

    run_virtual(work())


def test_a_distance_that_stays_is_measured_seldom_and_a_change_is_seen(tmp_path: Any) -> None:
    async def work() -> None:
        async with SimFlock(["physics", "chem"], 5, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            for name in ("physics", "chem"):
                await flock.add_pool(name, 1)
            user = await flock.network.user("carol", head("physics"))
            called = flock.pool("chem").traps.called

            async def distance() -> float:
                (one,) = (await user.call("world.status"))["pools"]
                return float(one["round_trip"])

            await flock.settle(60)
            near, pings = await distance(), called["world.ping"]
            await flock.settle(6 * 3600)
            assert await distance() == near
            assert called["world.ping"] - pings <= 6 + 4
            flock.network.slow_down(head("physics"), head("chem"), (0.1, 0.1))
            await flock.settle(3700)
            assert await distance() == pytest.approx(0.2)
            flock.network.slow_down(head("physics"), head("chem"), (0.05, 0.05))
            await flock.settle(3700)
            assert await distance() == pytest.approx(0.1)

    run_virtual(work())
