"""Jobs of other pools leave when own jobs need their machines: real roles in virtual time (EV 4.2)."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.policy.negotiation.preemption import NotPreemptible
from pool.roles.startd.claims.preempting import OWN_POOL_FIRST
from pool.roles.world.lending import OWN_FIRST, PAID_BACK
from pool.starter.spec import KeeperSpec
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.keepers import Behaviour
from pool.wire import Connection
from tests.roles.schedd.parallel.test_parallel_jobs import parallel
from tests.roles.support import QUICK
from tests.roles.test_flock_credit import TERMS, book
from tests.roles.test_private_flock import also, join

#: Seconds that a guest's job, and an own one, runs for.
LONG, SHORT = 2000.0, 100.0
#: In the ad of a job that is not to be saved.
UNSAVED: dict[str, Any] = {"JobCheckpoint": "off"}
#: Processors of a divided machine.
CPUS = 6
#: Seconds within which an own job starts where a guest leaves that is saved in one second.
SOON = 3.0


@asynccontextmanager
async def lender(
    seed: int,
    machines: int,
    *,
    directory: Path | None = None,
    cpus: int = 1,
    **settings: str,
) -> AsyncIterator[SimFlock]:
    """Chem lends to physics. Jobs of physics are long, and those of chem short."""

    def behave(spec: KeeperSpec) -> Behaviour:
        guest = "@physics" in str(spec.claim.get("owner"))
        return Behaviour(LONG if guest else SHORT, saving=1.0)

    async with SimFlock(["physics", "chem"], seed, settings={**QUICK, **settings}, directory=directory) as flock:
        flock.agree(lender="chem", borrower="physics")
        await flock.add_pool("chem", machines, behave=behave, cpus=cpus)
        await flock.add_pool("physics", 0)
        await flock.run_until(lambda: len(flock.machines_shown("physics")) == machines, within=60)
        yield flock
        flock.assert_sound()


async def guests_come(flock: SimFlock, count: int, *, saved: bool = True) -> None:
    await flock.submit("physics", count=count, ad={} if saved else UNSAVED)
    await flock.run_until(lambda: len(flock.witness.running) == count, within=60)


def starts(flock: SimFlock, pool: str) -> list[tuple[str, str, float]]:
    """Starts of a pool's jobs: the job, the machine and the time."""
    return [one for one in flock.witness.starts if one[0].startswith(f"{pool}:")]


def evictions(flock: SimFlock) -> int:
    """How often jobs of physics have left machines before their end."""
    return len(starts(flock, "physics")) - len({job for job, _, _ in starts(flock, "physics")})


def test_a_guest_leaves_for_an_own_job_and_comes_back_after_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with lender(1, 1, directory=tmp_path) as flock:
            await guests_come(flock, 1)
            await flock.settle(500)
            began = flock.now()
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=60)
            assert starts(flock, "chem")[0][2] - began < SOON
            assert (flock.running("physics"), flock.queued("physics")) == (0, 1)
            await flock.run_until(lambda: flock.queued() == 0, within=5000)
            assert flock.now() - began < LONG - 500 + SHORT + 30, "it went on from its checkpoint"
            assert len(starts(flock, "physics")) == 2

    run_virtual(work())


def test_one_own_job_has_one_guest_leave() -> None:
    """Five guests, one own job: one leaves, and it is not sent straight back while own jobs wait."""

    async def work() -> None:
        async with lender(2, 5) as flock:
            await guests_come(flock, 5)
            await flock.settle(20)
            await flock.submit("chem", owner="bob")
            await flock.settle(60)
            assert (evictions(flock), flock.running("physics"), flock.running("chem")) == (0, 4, 1)
            await flock.settle(500)
            assert flock.running("physics") == 5

    run_virtual(work())


def test_own_jobs_by_turns_have_no_more_guests_leave_than_they_are() -> None:
    async def work() -> None:
        async with lender(3, 3) as flock:
            await guests_come(flock, 3)
            await flock.submit("chem", owner="bob", count=9)
            for _ in range(3):
                await flock.settle(SHORT * 0.9)
                assert (flock.running("physics"), flock.running("chem")) == (0, 3)
                assert evictions(flock) == 0, "none was sent back"
                await flock.settle(SHORT * 0.1 + 3)
            await flock.run_until(lambda: flock.running("physics") == 3, within=60)
            assert evictions(flock) == 3

    run_virtual(work())


def test_a_guest_has_the_machine_while_an_idle_one_is_there() -> None:
    async def work() -> None:
        async with lender(4, 3) as flock:
            await guests_come(flock, 1)
            await flock.submit("chem", owner="bob", count=2)
            await flock.settle(60)
            assert (flock.running("physics"), flock.running("chem")) == (1, 2)

    run_virtual(work())


@pytest.mark.parametrize(
    ("file", "setting", "leaves"),
    [
        ("", "true", True),
        ("", "false", False),
        ("[physics]\nguests_leave = false\n", "true", False),
        ("[physics]\nguests_leave = true\n", "false", True),
        ("[bio]\nguests_leave = false\n", "true", True),
    ],
)
def test_the_administrator_says_whether_guests_leave(file: str, setting: str, leaves: bool, tmp_path: Path) -> None:
    rules = tmp_path / "flock.toml"
    rules.write_text(file)

    async def work() -> None:
        async with lender(5, 1, FLOCK_FILE=str(rules), FLOCK_GUESTS_LEAVE=setting) as flock:
            await guests_come(flock, 1)
            await flock.submit("chem", owner="bob")
            await flock.settle(200)
            assert len(starts(flock, "chem")) == leaves
            user = await flock.network.user("root", head("chem"))
            pools = {one["pool"]: one for one in (await user.call("world.status", {}))["pools"]}
            assert pools["physics"]["guests_leave"] == leaves

    run_virtual(work())


def test_a_guest_that_cannot_be_saved_has_the_machine_for_a_minimum() -> None:
    """The own job starts when that is over, and not at the next cycle after it."""

    async def work() -> None:
        async with lender(6, 1, GUEST_MINIMUM_RUN="200", NEGOTIATION_INTERVAL="300") as flock:
            began = flock.now()
            await guests_come(flock, 1, saved=False)
            await flock.settle(5)
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=400)
            assert 199 <= starts(flock, "chem")[0][2] - began < 200 + SOON

    run_virtual(work())


def test_an_own_job_that_finds_another_machine_waits_for_no_guest() -> None:
    """While the guest has its minimum an own machine falls idle: the job takes that, and the guest stays."""

    async def work() -> None:
        async with lender(7, 2, GUEST_MINIMUM_RUN="200") as flock:
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: flock.running("chem") == 1, within=30)
            await flock.settle(SHORT / 2)
            await flock.submit("physics", ad=UNSAVED)
            await flock.run_until(lambda: flock.running("physics") == 1, within=60)
            await flock.settle(5)
            await flock.submit("chem", owner="bob")
            await flock.settle(300)
            assert (len(starts(flock, "chem")), flock.running("physics")) == (2, 1)

    run_virtual(work())


@pytest.mark.parametrize("nodes", [2, 4])
def test_guests_leave_for_an_own_job_on_several_machines_only_if_it_gets_whole(nodes: int) -> None:
    """Three machines with guests: a job of two nodes has two leave. One of four would have three leave for nothing."""

    async def work() -> None:
        async with lender(8, 3) as flock:
            await guests_come(flock, 3)
            await flock.submit("chem", owner="bob", ad=parallel(nodes))
            await flock.settle(60)
            assert len(starts(flock, "chem")) == (2 if nodes == 2 else 0)
            assert flock.running("physics") == (1 if nodes == 2 else 3)
            await flock.settle(600)
            if nodes == 4:
                assert len(starts(flock, "physics")) == 3, "nobody has left"

    run_virtual(work())


def test_a_guest_on_several_machines_leaves_them_together(tmp_path: Path) -> None:
    async def work() -> None:
        async with lender(9, 3, directory=tmp_path) as flock:
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: len(flock.witness.running) == 3, within=60)
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=60)
            await flock.settle(5)
            assert {job.partition(":")[0] for job in flock.witness.running} == {"chem"}
            await flock.run_until(lambda: flock.queued() == 0, within=5000)

    run_virtual(work())


def test_a_nice_job_of_this_pool_waits_for_a_guest() -> None:
    async def work() -> None:
        async with lender(10, 1) as flock:
            await guests_come(flock, 1)
            await flock.submit("chem", owner="bob", ad={"NiceUser": True})
            await flock.settle(300)
            assert (len(starts(flock, "chem")), flock.running("physics")) == (0, 1)

    run_virtual(work())


def test_a_users_jobs_from_another_pool_without_agreement_are_own_ones() -> None:
    """She has an account here: a guest leaves for her job, and hers does not leave for a job of another user."""

    async def work() -> None:
        async with SimFlock(["physics", "chem", "bio"], 11, settings=QUICK) as flock:
            flock.agree(lender="chem", borrower="physics")
            for name, count in {"chem": 1, "physics": 0, "bio": 0}.items():
                await flock.add_pool(name, count, behave=lambda spec: Behaviour(LONG, saving=1.0))
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 1, within=60)
            await guests_come(flock, 1)
            await join(flock, "bio", "chem", "carol")
            await flock.submit("bio", owner="carol", ad=also("chem"))
            await flock.run_until(lambda: len(starts(flock, "bio")) == 1, within=60)
            await flock.submit("chem", owner="bob")
            await flock.settle(300)
            assert (len(starts(flock, "chem")), flock.running("bio")) == (0, 1)
            flock.assert_sound()

    run_virtual(work())


def test_both_users_are_told_what_has_happened_and_the_guest_not_for_whom() -> None:
    async def work() -> None:
        async with lender(12, 1, GUEST_MINIMUM_RUN="100") as flock:
            await guests_come(flock, 1, saved=False)
            await flock.settle(20)
            await flock.submit("chem", owner="bob")
            await flock.settle(5)
            user = await flock.network.user("bob", head("chem"))
            (busy,) = await explained(user, "negotiator.why", "Busy")
            assert [(one["value"], one["count"]) for one in busy["kept"]] == [(NotPreemptible.GUEST_YOUNG, 1)]
            slots = {"slots": ["slot1@chem-m0"]}
            found = (await user.call("negotiator.why_machine", slots))["slots"]["slot1@chem-m0"]
            assert found[0]["guests"] == 0
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=200)
            await flock.settle(1)
            guests = await flock.network.user("alice", head("physics"))
            (left,) = await explained(guests, "schedd.why", "LeftMachine")
            assert left["why"] == OWN_POOL_FIRST
            (job,) = flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
            assert job.get("VacateReason") == OWN_POOL_FIRST
            assert "bob" not in str(job.wire())

    run_virtual(work())


async def explained(user: Connection, method: str, kind: str) -> list[dict[str, Any]]:
    """Findings of one kind about the first job of a user's pool."""
    answer = await user.call("schedd.why", {"id": [1, 0]})
    if method != "schedd.why":
        answer = await user.call(method, {"request": answer["request"]})
    return [one for one in answer["findings"] if one["kind"] == kind]


def test_a_machine_that_was_given_ahead_of_own_jobs_is_no_guests() -> None:
    """Chem owes physics: the job that came ahead stays until the debt is paid, and leaves then at once."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 13, settings=QUICK) as flock:
            flock.agree_all()
            for name in ("physics", "chem"):
                await flock.add_pool(name, 1, behave=lambda spec: Behaviour(LONG / 4, saving=1.0))
            for name, other in (("physics", "chem"), ("chem", "physics")):
                await book(flock, name).agree(other, TERMS)
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 2, within=60)
            await flock.submit("chem", owner="bob", count=2)  # one of them runs at physics
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            await flock.settle(70)
            owed = book(flock, "chem").owed("physics")
            assert owed > 400
            await flock.submit("physics", owner="ann", count=2)
            await flock.run_until(lambda: flock.running("physics") == 2, within=60)
            ahead = {use.by_credit for use in book(flock, "chem").measures.uses.values()}
            assert ahead == {True}, "the job of physics at chem came ahead"
            await flock.submit("chem", owner="bob")
            await flock.settle(60)
            assert (flock.running("physics"), flock.running("chem")) == (2, 0)
            await flock.run_until(lambda: flock.running("chem") == 1, within=1000)
            reasons = {
                job.get("VacateReason") for job in flock.pool("physics").role(head("physics"), "schedd").queue.jobs()
            }
            assert reasons <= {PAID_BACK, OWN_FIRST, None}, "payback has ended, and no guest has left"
            flock.assert_sound()

    run_virtual(work())


def waits(flock: SimFlock, pool: str, submitted: dict[str, float]) -> list[float]:
    """Seconds from the submit of each of a pool's jobs to its first start."""
    first: dict[str, float] = {}
    for job, _, at in starts(flock, pool):
        first.setdefault(job, at)
    return [first[job] - at for job, at in submitted.items()]


async def own_waits(seed: int, *, guests: bool, saved: bool) -> tuple[list[float], int]:
    """The waits of chem's own jobs, which come by chance, with or without guests; and how many guests left."""
    chance = random.Random(seed)
    arrivals = sorted(chance.uniform(0, 1500) for _ in range(30))
    async with lender(seed, 4, GUEST_MINIMUM_RUN="60") as flock:
        if guests:
            await flock.submit("physics", count=12, ad={} if saved else UNSAVED)
            await flock.settle(120)
        began, submitted = flock.now(), dict[str, float]()
        for at in arrivals:
            await flock.settle(max(0.0, began + at - flock.now()))
            submitted[f"chem:{await flock.submit('chem', owner='bob')}.0"] = flock.now()
        await flock.run_until(lambda: flock.queued("chem") == 0, within=20_000)
        assert (len(starts(flock, "physics")) > 0) == guests
        return waits(flock, "chem", submitted), evictions(flock)


@pytest.mark.parametrize(("saved", "most"), [(True, SOON), (False, 60.0 + SOON)], ids=["saved", "not saved"])
def test_own_jobs_wait_no_longer_than_without_a_flock_but_for_the_eviction(saved: bool, most: float) -> None:
    """Each own job, and so the longest wait: what it waits without guests, and what one eviction takes at the most.
    No more guests leave than own jobs come."""

    async def work() -> None:
        alone, none = await own_waits(14, guests=False, saved=saved)
        shared, left = await own_waits(14, guests=True, saved=saved)
        assert none == 0
        assert max(alone) > 50, "own jobs wait for each other now and then"
        assert max(shared) <= max(alone) + most
        assert all(one <= other + 3 * most for one, other in zip(sorted(shared), sorted(alone), strict=True))
        assert 8 < left <= 30

    run_virtual(work())


@asynccontextmanager
async def divided_lender(seed: int, *, directory: Path | None = None, **settings: str) -> AsyncIterator[SimFlock]:
    """Chem lends parts of one machine."""
    async with lender(seed, 1, directory=directory, cpus=CPUS, SLOTS="partitionable", **settings) as flock:
        yield flock


def parts(flock: SimFlock) -> list[tuple[str, int]]:
    """The parts of chem's machine: their pools, and processors."""
    startd = flock.pool("chem").role("chem-m0", "startd")
    return sorted(
        (slot.claim.owner.partition("@")[2] or "own", int(slot.resources["Cpus"]))
        for slot in startd.slots.values()
        if slot.claim is not None
    )


def free(flock: SimFlock) -> int:
    startd = flock.pool("chem").role("chem-m0", "startd")
    return int(startd.slots["slot1"].resources["Cpus"])


async def fill(flock: SimFlock, each: int = 1) -> int:
    """Guests with so many processors each have the whole machine: how many."""
    count = CPUS // each
    await flock.submit("physics", count=count, ad={"RequestCpus": each})
    await flock.run_until(lambda: len(flock.witness.running) == count, within=60)
    await flock.settle(20)
    return count


@pytest.mark.parametrize("wanted", [1, 2, 3])
def test_as_few_guests_leave_a_machine_as_give_an_own_job_enough(wanted: int, tmp_path: Path) -> None:
    async def work() -> None:
        async with divided_lender(20, directory=tmp_path) as flock:
            count = await fill(flock)
            began = flock.now()
            await flock.submit("chem", owner="bob", ad={"RequestCpus": wanted})
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=60)
            assert flock.now() - began < SOON
            await flock.settle(5)
            assert parts(flock) == [("own", wanted), *[("physics", 1)] * (count - wanted)]
            await flock.run_until(lambda: flock.running("physics") == count, within=300)
            await flock.run_until(lambda: flock.queued() == 0, within=9000)
            await flock.settle(30)
            assert free(flock) == CPUS, "nothing of the machine was lost"

    run_virtual(work())


def test_an_own_job_has_what_it_asks_for_and_no_more() -> None:
    """It takes the place of a guest with more processors: the others are the machine's again."""

    async def work() -> None:
        async with divided_lender(21) as flock:
            count = await fill(flock, each=2)
            await flock.submit("chem", owner="bob")
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=60)
            await flock.settle(5)
            assert parts(flock) == [("own", 1), *[("physics", 2)] * (count - 1)]
            assert free(flock) == 1 + CPUS % 2

    run_virtual(work())


def test_own_jobs_on_one_machine_start_together() -> None:
    async def work() -> None:
        async with divided_lender(22) as flock:
            count = await fill(flock)
            began = flock.now()
            await flock.submit("chem", owner="bob", count=count)
            await flock.run_until(lambda: len(starts(flock, "chem")) == count, within=60)
            assert flock.now() - began < 2 * SOON
            await flock.settle(SHORT / 2)
            assert parts(flock) == [("own", 1)] * count
            assert evictions(flock) == 0

    run_virtual(work())


def test_nobody_else_has_what_guests_leave_for_a_large_job() -> None:
    """A guest and a small own job wait; the guests leave one after the other, as long as their checkpoints take."""

    async def work() -> None:
        async with divided_lender(23) as flock:
            count = await fill(flock)
            machine = flock.pool("chem").nodes["chem-m0"].machine
            for number, keeper in enumerate(machine.keepers.values()):
                keeper._behaviour = Behaviour(LONG, saving=1.0 + 5.0 * number)
            await flock.submit("physics", count=2)
            await flock.submit("chem", owner="bob", ad={"RequestCpus": count})
            await flock.settle(1)
            await flock.submit("chem", owner="carl")
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=100)
            assert parts(flock) == [("own", count)]
            assert evictions(flock) == 0

    run_virtual(work())


@pytest.mark.parametrize("when", [0.02, 0.5, 3.0])
def test_a_machine_is_whole_again_where_the_own_job_is_removed(when: float) -> None:
    """While guests save themselves for it: they have left, and come back to all of the machine."""

    async def work() -> None:
        async with divided_lender(24) as flock:
            count = await fill(flock)
            await flock.submit("chem", owner="bob", ad={"RequestCpus": 2})
            await flock.settle(when)
            user = await flock.network.user("bob", head("chem"))
            await user.call("schedd.act", {"action": "remove", "all": True})
            await flock.run_until(lambda: flock.running("physics") == count, within=200)
            await flock.settle(60)
            assert parts(flock) == [("physics", 1)] * count
            await flock.run_until(lambda: flock.queued() == 0, within=9000)
            await flock.settle(30)
            assert free(flock) == CPUS

    run_virtual(work())


def test_an_own_job_on_several_nodes_has_guests_leave_parts_of_one_machine() -> None:
    async def work() -> None:
        async with divided_lender(25) as flock:
            count = await fill(flock)
            await flock.submit("chem", owner="bob", ad=parallel(2))
            await flock.run_until(lambda: len(starts(flock, "chem")) == 2, within=60)
            await flock.settle(2)
            assert parts(flock) == [("own", 1)] * 2 + [("physics", 1)] * (count - 2)

    run_virtual(work())


def test_a_machine_that_is_restarted_while_guests_leave_is_whole_again(tmp_path: Path) -> None:
    async def work() -> None:
        async with divided_lender(26, directory=tmp_path) as flock:
            await fill(flock)
            await flock.submit("chem", owner="bob", ad={"RequestCpus": 2})
            await flock.settle(0.2)
            await flock.pool("chem").restart_role("chem-m0", "startd")
            await flock.run_until(lambda: len(starts(flock, "chem")) > 0, within=300)
            await flock.run_until(lambda: flock.queued() == 0, within=9000)
            await flock.settle(100)
            assert free(flock) == CPUS

    run_virtual(work())


def test_a_job_hears_of_a_divided_machine_of_another_pool_that_has_more_to_give() -> None:
    """It waits for processors of a machine that is offered all the while, and does not wait for the next cycle."""

    async def work() -> None:
        async with divided_lender(27, NEGOTIATION_INTERVAL="3000") as flock:
            await flock.submit("chem", owner="bob", ad={"RequestCpus": CPUS})
            await flock.run_until(lambda: flock.running("chem") == 1, within=30)
            await flock.submit("physics")
            await flock.settle(20)
            assert flock.running("physics") == 0
            await flock.run_until(lambda: flock.queued("chem") == 0, within=200)
            await flock.run_until(lambda: flock.running("physics") == 1, within=5)

    run_virtual(work())


def test_a_guest_that_can_be_saved_from_now_on_leaves_from_now_on() -> None:
    """The cycle comes before the machine has found out that it can be; then no other one is waited for."""

    async def work() -> None:
        async with lender(28, 1, NEGOTIATION_INTERVAL="3000") as flock:
            await guests_come(flock, 1)
            await flock.settle(5)
            registry = flock.pool("chem").role(head("chem"), "negotiator").pool_view
            (name,) = registry.picture.ads
            ad = registry.picture.ad(name).to_wire()
            key = {"ClaimId": registry.key(name)}
            registry.update_ad("Machine", name, {**ad, "JobCanCheckpoint": False, "JobStart": ad["ClaimStart"]}, key)
            await flock.submit("chem", owner="bob")
            await flock.settle(5)
            assert starts(flock, "chem") == []
            registry.update_ad("Machine", name, {**ad, "JobCanCheckpoint": True, "JobStart": ad["ClaimStart"]}, key)
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=5)

    run_virtual(work())


def test_a_change_of_the_terms_holds_for_jobs_that_start_after_it(tmp_path: Path) -> None:
    """On the same claim, too: the job that follows leaves."""
    rules = tmp_path / "flock.toml"
    rules.write_text("[physics]\nguests_leave = false\n")

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 29, settings=QUICK | {"CLAIM_LIFE": "7200"}) as flock:
            flock.agree(lender="chem", borrower="physics")
            settings = {"FLOCK_FILE": str(rules)}
            await flock.add_pool("chem", 1, behave=lambda spec: Behaviour(500.0, saving=1.0), settings=settings)
            await flock.add_pool("physics", 0)
            await guests_come(flock, 1)
            await flock.submit("physics")
            rules.write_text("")
            world = flock.pool("chem").role(head("chem"), "world")
            world.reload(world.settings)
            await flock.submit("chem", owner="bob")
            await flock.settle(200)
            assert (len(starts(flock, "physics")), starts(flock, "chem")) == (1, [])
            await flock.run_until(lambda: len(starts(flock, "chem")) == 1, within=600)
            flock.assert_sound()

    run_virtual(work())


def test_pools_that_lend_to_each_other_come_to_rest() -> None:
    """Each pool's machines are full of the other's jobs; then its own come: each guest leaves once at the most."""

    async def work() -> None:
        async with SimFlock(["physics", "chem"], 30, settings=QUICK) as flock:
            flock.agree_all()
            for name in ("physics", "chem"):
                await flock.add_pool(name, 3, behave=lambda spec: Behaviour(LONG, saving=1.0))
            await flock.run_until(lambda: len(flock.machines_shown("physics")) == 6, within=60)
            elsewhere = {"Requirements": ["FlockPool =!= undefined"]}
            for name in ("physics", "chem"):
                await flock.submit(name, count=3, ad=elsewhere)
            await flock.run_until(lambda: len(flock.witness.running) == 6, within=60)
            await flock.settle(60)
            for name in ("physics", "chem"):
                await flock.submit(name, owner="bob", count=3)
            await flock.settle(300)
            assert len(flock.witness.starts) == 12, "six guests, and six own jobs in their places"
            await flock.run_until(lambda: flock.queued() == 0, within=9000)
            assert len(flock.witness.starts) == 18, "each guest has come back once"
            flock.assert_sound()

    run_virtual(work())
