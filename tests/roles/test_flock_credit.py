"""Two pools with an agreement with credit: real roles in virtual time, their ledgers, and what goes wrong (EV 4.2)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.flock.ledger import CreditTerms
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from pool.testing.flock_status import FlockStatus
from tests.roles.schedd.parallel.test_parallel_jobs import parallel
from tests.roles.support import QUICK, lasting

#: Seconds within which both collectors show who has a machine in another pool.
SHOWN = 0.5
TERMS = CreditTerms(True, bound=100 * 3600.0)


def book(flock: SimFlock, name: str) -> Any:
    return flock.pool(name).role(head(name), "world").credit


@asynccontextmanager
async def creditors(
    seed: int,
    machines: dict[str, int],
    *,
    seconds: float | Callable[[], float] = 100.0,
    directory: Path | None = None,
    terms: CreditTerms = TERMS,
    exact: bool = False,
) -> AsyncIterator[SimFlock]:
    """Pools that all lend to each other with credit.

    Args:
        exact: running jobs are busy machines at every instant, and each collector says who is where (F6).
    """
    async with SimFlock(list(machines), seed, settings=QUICK, directory=directory) as flock:
        flock.agree_all()
        for name, count in machines.items():
            await flock.add_pool(name, count, behave=lambda spec: lasting(seconds() if callable(seconds) else seconds))
        for name in machines:
            for other in machines:
                if other != name:
                    await book(flock, name).agree(other, terms)
        await flock.run_until(
            lambda: all(len(flock.machines_shown(name)) == sum(machines.values()) for name in machines), within=60
        )
        await flock.settle(5)
        status = FlockStatus(flock)
        if exact:
            status.begin(exact=True)
        yield flock
        assert status.broken == []
        assert status.slowest_shown <= SHOWN
        assert (status.under_way > 0 and status.most_shown > 0) == exact


def entries(flock: SimFlock, name: str, other: str) -> set[Any]:
    return {one.entry for one in book(flock, name).partners[other].ledger}


def assert_equal(flock: SimFlock, one: str, other: str) -> float:
    """Both have the same entries; the balance for the first, machine-seconds."""
    assert entries(flock, one, other) == entries(flock, other, one)
    balance: float = book(flock, one).balance(other)
    assert balance == -book(flock, other).balance(one)
    return balance


def test_both_sides_measure_sign_and_keep_the_same() -> None:
    async def work() -> None:
        async with creditors(1, {"physics": 0, "chem": 2}) as flock:
            await flock.submit("physics", count=4)
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            await flock.settle(60)
            assert 400 <= assert_equal(flock, "chem", "physics") <= 440
            assert not book(flock, "chem").measures.uses
            assert not book(flock, "physics").measures.uses
            shown = book(flock, "physics").status("chem")
            assert (shown["agreement"], shown["disputed"]) == ("credit", 0.0)
            assert shown["history"][0]["lent"] is False
            flock.assert_sound()

    run_virtual(work())


@pytest.mark.parametrize("victim", [None, "physics", "chem"])
def test_a_job_on_machines_of_three_pools_is_counted_with_each_lender(victim: str | None, tmp_path: Path) -> None:
    """The head of the borrower, or of a lender, is killed while it runs: each ledger has its machine's seconds."""

    async def work() -> None:
        machines = {"physics": 1, "chem": 1, "bio": 1}
        async with creditors(5, machines, seconds=300, directory=tmp_path) as flock:
            await flock.submit("physics", ad=parallel(3))
            await flock.run_until(lambda: len(flock.witness.running) == 3, within=200)
            await flock.settle(100)
            if victim is not None:
                await flock.pool(victim).kill(head(victim))
                await flock.settle(10)
                await flock.pool(victim).restart(head(victim))
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            await flock.settle(120)
            assert len(flock.witness.starts) == 3, "it has run once"
            for lender in ("chem", "bio"):
                assert 295 <= assert_equal(flock, lender, "physics") <= 340
                assert len(entries(flock, lender, "physics")) == 1
                assert not book(flock, lender).measures.uses
            assert assert_equal(flock, "chem", "bio") == 0.0
            (ad,) = await flock.pool("physics").ended(head("physics"))
            assert (ad["NumJobStarts"], ad["ExitCode"]) == (1, 0)
            flock.assert_sound()

    run_virtual(work())


def test_a_pool_that_wants_no_credit_keeps_no_ledger() -> None:
    async def work() -> None:
        async with creditors(2, {"physics": 0, "chem": 1}, seconds=10) as flock:
            await book(flock, "physics").agree("chem", CreditTerms())
            await flock.settle(5)
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            await flock.settle(60)
            assert assert_equal(flock, "chem", "physics") == 0.0
            assert book(flock, "chem").status("physics")["they_want"] == "idle-only"

    run_virtual(work())


@pytest.mark.parametrize("seed", range(4))
def test_ledgers_are_equal_after_crashes_of_either_side(seed: int, tmp_path: Path) -> None:
    """Worlds are restarted and heads killed while jobs run; the link breaks; clocks differ."""

    async def work() -> None:
        async with creditors(10 + seed, {"physics": 0, "chem": 3}, seconds=300, directory=tmp_path) as flock:
            flock.pool("chem").wall_shift = 5000.0 * seed
            await flock.submit("physics", count=9)
            for turn in range(6):
                await flock.settle(70 + 13 * seed)
                victim = ("physics", "chem")[(turn + seed) % 2]
                if turn % 3 == 2:
                    flock.network.cut(head("physics"), head("chem"))
                    await flock.settle(20)
                    flock.network.restore_links()
                elif turn % 3 == 1:
                    await flock.pool(victim).kill(head(victim))
                    await flock.settle(10)
                    await flock.pool(victim).restart(head(victim))
                else:
                    await flock.pool(victim).restart_role(head(victim), "world")
            await flock.run_until(lambda: flock.queued() == 0, within=20_000)
            await flock.settle(600)
            balance = assert_equal(flock, "chem", "physics")
            ran = 9 * 300
            assert 0.95 * ran <= balance <= 1.1 * 300 * len(flock.witness.starts), balance
            flock.assert_sound()

    run_virtual(work())


def test_a_clock_that_was_set_back_keeps_no_claim_open(tmp_path: Path) -> None:
    """Physics' head is killed while its job runs at chem, which fails for good; and physics' clock is set back by ten
    minutes meanwhile: by it, the claim was seen in the future."""

    async def work() -> None:
        async with creditors(9, {"physics": 0, "chem": 1}, seconds=1000, directory=tmp_path) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(100)
            await flock.pool("physics").kill(head("physics"))
            for node in (head("chem"), "chem-m0"):
                await flock.pool("chem").crash(node)
            flock.pool("physics").wall_shift -= 600.0
            await flock.pool("physics").restart(head("physics"))
            uses = book(flock, "physics").measures.uses.values()
            assert [use.closed for use in uses] == [False]
            await flock.settle(200)
            assert [use.closed for use in uses] == [True]

    run_virtual(work())


def lying(change: Callable[[Any], None]) -> None:
    """chem's world claims more than was; physics signs none of it, and chem cannot go on lending for that."""

    async def work() -> None:
        async with creditors(3, {"physics": 0, "chem": 1}) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(50)
            change(book(flock, "chem"))
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            await flock.settle(120)
            assert 0 <= assert_equal(flock, "chem", "physics") <= 125, "100 s, its start and end, and the slack"
            flock.assert_sound()

    run_virtual(work())


def _longer(own: Any) -> None:
    for use in own.measures.uses.values():
        use.total += 10_000_000


def _dearer(own: Any) -> None:
    for use in own.measures.uses.values():
        use.value *= 1000


def _huge(own: Any) -> None:
    for use in own.measures.uses.values():
        use.total = 2**53


def _foreign(own: Any) -> None:
    for use in own.measures.uses.values():
        use.claim = "ab" * 16


@pytest.mark.parametrize("change", [_longer, _dearer, _huge, _foreign])
def test_a_pool_that_lies_about_its_machines_gets_nothing_for_it(change: Callable[[Any], None]) -> None:
    lying(change)


JUNK: tuple[Any, ...] = (None, 7, "x", [], {}, {"entry": {}}, {"entry": {"total": 2**70}, "by_lender": "00"})


@pytest.mark.parametrize("junk", JUNK)
def test_a_world_that_answers_garbage_changes_no_ledger(junk: Any) -> None:
    """In place of entries, keys, terms and signatures."""

    async def work() -> None:
        async with creditors(4, {"physics": 0, "chem": 1}, seconds=20) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            await flock.settle(60)
            before, own = entries(flock, "physics", "chem"), book(flock, "physics")
            partner = own.partners["chem"]
            good = {"key": partner.key, "terms": TERMS.to_wire(), "entries": []}
            (signed,) = partner.ledger
            forged = [
                {**signed.to_wire(), "entry": {**signed.entry.to_wire(), "sequence": 9, "total": 10**6}},
                {**signed.to_wire(), "entry": {**signed.entry.to_wire(), "lender": own._key.public}},
                {**signed.to_wire(), "by_lender": "00" * 64},
            ]
            for params in (
                {**good, "key": junk}, {**good, "key": "ab" * 32}, {**good, "terms": junk}, {**good, "entries": [junk]},
                *({**good, "entries": [one]} for one in forged),
            ):  # fmt: skip
                with pytest.raises(PoolError):
                    await own.answer("chem", params)
            again = await own.answer("chem", {**good, "entries": [signed.to_wire()]})
            assert again["answers"] == [{"signed": signed.to_wire()}], "a replay changes nothing"
            assert entries(flock, "physics", "chem") == before

    run_virtual(work())


def pools_at(flock: SimFlock, machine: str, since: int) -> list[tuple[str, float]]:
    """The pools whose jobs began on a machine, and when, from the start of that number on."""
    return [(job.partition(":")[0], at) for job, place, at in flock.witness.starts[since:] if place == machine]


def test_what_was_lent_is_claimed_back_ahead_of_the_debtors_own_jobs_and_not_a_second_more() -> None:
    """Chem lends physics a machine for fifteen minutes, so that six jobs end as much sooner. Then both have more jobs
    than machines: chem's come first at physics for the time that is owed, and after that physics' own do."""

    async def work() -> None:
        async with creditors(5, {"physics": 1, "chem": 1}, seconds=300, exact=True) as flock:
            await flock.submit("physics", count=6)
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            lent = assert_equal(flock, "chem", "physics")
            assert 850 <= lent <= 930
            began = len(flock.witness.starts)
            elsewhere = {"Requirements": ['TARGET.Machine != "chem-m0"']}
            # Physics' machine is busy when the jobs that wait for it come, its own first.
            await flock.submit("physics", ad={"WantFlock": False})
            await flock.run_until(lambda: len(flock.witness.starts) == began + 1, within=60)
            await flock.submit("physics", count=6, ad={"WantFlock": False})
            await flock.submit("chem", count=6, owner="bob", ad=elsewhere)
            await flock.run_until(lambda: flock.queued() == 0, within=20_000)
            await flock.settle(60)
            at_physics = pools_at(flock, "physics-m0", began)
            pools = [pool for pool, _ in at_physics]
            assert pools[:4] == ["physics", "chem", "chem", "chem"], pools
            assert pools[4] in ("physics", "chem"), pools
            first = at_physics[1][1]
            own = next(at for pool, at in at_physics[1:] if pool == "physics")
            assert lent - 60 <= own - first <= lent + 30, (own - first, lent)
            assert_equal(flock, "chem", "physics")
            flock.assert_sound()

    run_virtual(work())


def test_own_jobs_that_would_run_without_a_flock_come_before_a_creditors() -> None:
    """Physics' machine is no help to it: its jobs ran at chem as they could not have run at home. What it owes for them
    is no reason to let the jobs wait that its own machine would run now; when there are none, it pays."""

    async def work() -> None:
        async with creditors(7, {"physics": 1, "chem": 1}, seconds=300) as flock:
            await flock.submit("physics", count=3, ad={"Requirements": ['TARGET.Machine != "physics-m0"']})
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            lent = assert_equal(flock, "chem", "physics")
            assert 900 <= lent <= 930
            began, now = len(flock.witness.starts), flock.now()
            await flock.submit("chem", count=6, owner="bob", ad={"Requirements": ['TARGET.Machine != "chem-m0"']})
            await flock.submit("physics", count=6, ad={"WantFlock": False})
            await flock.run_until(lambda: flock.queued("physics") == 0, within=20_000)
            own = [at for pool, at in pools_at(flock, "physics-m0", began) if pool == "physics"]
            assert max(own) - now <= 5 * 301 + 5, "each began when it would have begun alone"
            await flock.run_until(lambda: flock.queued() == 0, within=20_000)
            await flock.settle(60)
            assert assert_equal(flock, "chem", "physics") < 0, "chem's jobs had the machine then, and have paid it back"
            flock.assert_sound()

    run_virtual(work())


def test_a_machine_given_ahead_goes_back_when_own_jobs_would_have_it_without_a_flock() -> None:
    """Chem has helped physics for five minutes only, and is owed more: of an earlier day, which helps nobody now."""

    async def work() -> None:
        lengths = [600.0]
        async with creditors(8, {"physics": 1, "chem": 1}, seconds=lambda: lengths[0], exact=True) as flock:
            await flock.submit("physics", ad={"Requirements": ['FlockPool =?= "chem"']})
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            lengths[0] = 300.0
            help_began = flock.now()
            await flock.submit("physics", count=2)
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            lent = assert_equal(flock, "chem", "physics")
            assert 890 <= lent <= 930
            lengths[0] = 100.0
            began = len(flock.witness.starts)
            await flock.submit("physics", count=9, ad={"WantFlock": False})
            await flock.run_until(lambda: len(flock.witness.starts) == began + 1, within=60)
            lengths[0] = 5000.0
            await flock.submit("chem", owner="bob", ad={"Requirements": ['FlockPool =?= "physics"']})
            await flock.run_until(lambda: len(flock.witness.starts) == began + 2, within=500)
            lengths[0] = 100.0
            await flock.run_until(lambda: len(flock.witness.starts) == began + 3, within=1000)
            (_, _), (chem, _), (own, at) = pools_at(flock, "physics-m0", began)
            assert (chem, own) == ("chem", "physics")
            # Alone: two jobs of 300 s one after the other, and one of 100 s that has run already.
            assert 700 - 1 <= at - help_began <= 700 + 10, at - help_began
            await flock.run_until(lambda: flock.queued("physics") == 0, within=5000)
            flock.assert_sound()

    run_virtual(work())


def test_a_machine_that_pays_a_debt_back_is_taken_back_when_nothing_is_owed() -> None:
    """Chem has helped physics for 900 seconds and is owed 200, and its job would run for hours on physics' only
    machine."""

    async def work() -> None:
        lengths = [300.0]
        terms = CreditTerms(True, bound=200.0)
        async with creditors(
            6, {"physics": 1, "chem": 1}, seconds=lambda: lengths[0], terms=terms, exact=True
        ) as flock:
            await flock.submit("physics", count=6)
            await flock.run_until(lambda: flock.queued() == 0, within=1000)
            lent = assert_equal(flock, "chem", "physics")
            assert 199 <= lent <= 205
            lengths[0] = 100.0
            before = len(flock.witness.starts)
            await flock.submit("physics", count=9, ad={"WantFlock": False})
            await flock.run_until(lambda: len(flock.witness.starts) == before + 1, within=60)
            lengths[0] = 5000.0
            await flock.submit("chem", owner="bob", ad={"Requirements": ['FlockPool =?= "physics"']})
            await flock.run_until(lambda: len(flock.witness.starts) == before + 2, within=500)
            began = flock.witness.starts[-1][2]
            lengths[0] = 100.0
            await flock.run_until(lambda: flock.witness.starts[-1][2] > began, within=1000)
            job, machine, at = flock.witness.starts[-1]
            assert (job.partition(":")[0], machine) == ("physics", "physics-m0")
            assert lent - 30 <= at - began <= lent + 30
            await flock.run_until(lambda: flock.queued("physics") == 0, within=5000)
            flock.assert_sound()

    run_virtual(work())
