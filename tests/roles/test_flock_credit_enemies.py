"""A pool that lies about credit, is silent, or crashes: nothing that the agreement does not give (EV 4.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.policy.flock.ledger import BadEntry, CreditTerms
from pool.store.errors import StoreError
from pool.testing import run_virtual
from pool.testing.flock import SimFlock, head
from tests.roles.test_flock_credit import TERMS, assert_equal, book, creditors, entries

HOURS = 3600.0


def world(flock: SimFlock, name: str) -> Any:
    return flock.pool(name).role(head(name), "world")


async def lend(flock: SimFlock, seconds: float = 60) -> float:
    """A job of physics runs at chem; what physics owes then."""
    await flock.submit("physics", ad={"Requirements": ['FlockPool =?= "chem"']})
    await flock.run_until(lambda: flock.queued("physics") == 0, within=20_000)
    await flock.settle(seconds)
    return float(book(flock, "chem").balance("physics"))


@pytest.mark.parametrize("half_life", [1e-9, 1.0, 3600.0])
def test_a_debtor_cannot_make_its_debt_go_by_terms_of_its_own(half_life: float) -> None:
    """A shorter half-life, no bound, no credit, every way in turn."""

    async def work() -> None:
        async with creditors(20, {"physics": 0, "chem": 1}) as flock:
            owed = await lend(flock)
            assert owed > 100
            for terms in (CreditTerms(True, 1e9, half_life), CreditTerms(True, 0.0, half_life), CreditTerms()):
                await book(flock, "physics").agree("chem", terms)
                await flock.settle(40)
            await book(flock, "physics").agree("chem", TERMS)
            await flock.settle(40)
            assert book(flock, "chem").balance("physics") == owed
            assert_equal(flock, "chem", "physics")

    run_virtual(work())


def _older(signed: list[Any], mine: Any) -> Any:
    return {"signed": (signed or [mine])[0]}


def _endless(signed: list[Any], mine: Any) -> Any:
    return {"refused": "no", "measured": 2**53}


def _nothing(signed: list[Any], mine: Any) -> Any:
    return {"refused": "no"}


@pytest.mark.parametrize("answer", [_older, _endless, _nothing])
def test_a_borrower_that_signs_no_more_is_lent_no_more(answer: Callable[[list[Any], Any], Any]) -> None:
    """It answers with its first signature again, or would sign any time and never does, or signs nothing."""

    async def work() -> None:
        async with creditors(21, {"physics": 0, "chem": 1}, seconds=2.5 * HOURS) as flock:
            own, first = book(flock, "physics"), list[Any]()
            honest = own.answer

            async def lie(pool: str, params: Any) -> Any:
                if not params["entries"]:
                    return await honest(pool, params)
                if not first:
                    told = await honest(pool, params)
                    first.extend(one["signed"] for one in told["answers"])
                    return told
                told = [answer(first, {**one, "by_borrower": ""}) for one in params["entries"]]
                return {**await honest(pool, {**params, "entries": []}), "answers": told}

            own.answer = lie
            assert await lend(flock) < 2 * HOURS
            why = book(flock, "chem").why_not_lend("physics")
            assert "differ by" in why, why
            forgiven, unsigned, _ = await book(flock, "chem").settle("physics")
            assert unsigned > 2 * HOURS
            assert book(flock, "chem").why_not_lend("physics") == "", "an administrator has looked"
            assert forgiven < HOURS

    run_virtual(work())


def test_a_refusal_that_passes_costs_the_lender_nothing() -> None:
    """For a while the borrower wants no credit, or was restarted: the rest of the claim is counted."""

    async def work() -> None:
        async with creditors(22, {"physics": 0, "chem": 1}, seconds=1000) as flock:
            own = book(flock, "physics")
            honest, refuse = own._judge, [True]
            own._judge = lambda pool, item: ({"refused": "not now"}, []) if refuse[0] else honest(pool, item)
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(300)
            refuse[0] = False
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            await flock.settle(60)
            assert assert_equal(flock, "chem", "physics") >= 1000
            assert book(flock, "chem").partners["physics"].disputed == 0

    run_virtual(work())


def test_terms_that_change_every_second_count_the_seconds_with_credit() -> None:
    """A claim that was there before; both sides agree on the sum, and a claim that is dead is not kept alive."""

    async def work() -> None:
        async with creditors(23, {"physics": 0, "chem": 1}, seconds=400) as flock:
            own = book(flock, "physics")
            await own.agree("chem", CreditTerms())
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(100)
            for turn in range(100):
                await own.agree("chem", TERMS if turn % 2 == 0 else CreditTerms())
                await book(flock, "chem").exchange("physics")
                await flock.settle(1)
            await own.agree("chem", TERMS)
            await book(flock, "chem").exchange("physics")
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            await flock.settle(60)
            assert abs(assert_equal(flock, "chem", "physics") - 250) <= 10, "50 s of the 100, and the last 200"
            assert book(flock, "chem").partners["physics"].disputed == 0

    run_virtual(work())


def test_a_lender_bills_no_time_before_the_agreement() -> None:
    async def work() -> None:
        async with creditors(24, {"physics": 0, "chem": 1}, seconds=400) as flock:
            await book(flock, "physics").agree("chem", CreditTerms())
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(300)
            await book(flock, "physics").agree("chem", TERMS)
            await flock.settle(20)
            for use in book(flock, "chem").measures.uses.values():
                use.forgone = 0
            await flock.run_until(lambda: flock.queued() == 0, within=2000)
            await flock.settle(60)
            assert assert_equal(flock, "chem", "physics") <= 115

    run_virtual(work())


def test_a_bad_entry_in_a_call_loses_no_other_of_it(tmp_path: Path) -> None:
    """Those before it were signed in memory; they must be on disk before anybody is told of them."""

    async def work() -> None:
        async with creditors(25, {"physics": 0, "chem": 1}, directory=tmp_path) as flock:
            own, lender = book(flock, "physics"), book(flock, "chem")
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            await flock.settle(30)
            proposals = [{**one.to_wire(), "final": False} for one, _ in lender._proposals("physics")]
            good = {"key": lender._key.public, "terms": TERMS.to_wire()}
            before = len(entries(flock, "physics", "chem"))
            with pytest.raises(BadEntry):
                await own.answer("chem", {**good, "entries": [*proposals, {"entry": 7}]})
            with pytest.raises(BadEntry, match="more than 200"):
                await own.answer("chem", {**good, "entries": [{}] * 1_000_000})
            assert len(entries(flock, "physics", "chem")) >= before
            known = entries(flock, "physics", "chem")
            await flock.pool("physics").kill(head("physics"))
            await flock.pool("physics").restart(head("physics"))
            assert entries(flock, "physics", "chem") == known
            await flock.run_until(lambda: flock.queued() == 0, within=2000)

    run_virtual(work())


def test_another_key_after_leave_and_a_new_agreement(tmp_path: Path) -> None:
    """The lender's side has left, too. A debt that was being forgiven is no hindrance, and old entries are no use."""

    async def work() -> None:
        async with creditors(26, {"physics": 0, "chem": 1}, directory=tmp_path) as flock:
            owed = await lend(flock)
            (old,) = book(flock, "chem").partners["physics"].ledger
            await flock.pool("physics").kill(head("physics"))
            forgiven, _, answered = await book(flock, "chem").settle("physics")
            assert (forgiven, answered) == (owed, False)
            with pytest.raises(PoolError, match="owes nothing"):
                await book(flock, "chem").settle("physics")
            for file in [*tmp_path.rglob("flock-ledger.*")]:  # noqa: ASYNC240
                if "physics" in str(file):
                    file.unlink()
            await flock.pool("physics").restart(head("physics"))
            await book(flock, "physics").agree("chem", TERMS)
            await flock.settle(60)
            assert "another key" in book(flock, "chem").status("physics")["ledger_trouble"]
            book(flock, "chem").forget_key("physics")
            await book(flock, "chem").agree("physics", TERMS)
            await flock.settle(60)
            assert book(flock, "chem").status("physics")["ledger_trouble"] == ""
            replay = {"key": old.entry.lender, "terms": TERMS.to_wire(), "entries": [old.to_wire()]}
            with pytest.raises(BadEntry, match="other pools"):
                await book(flock, "physics").answer("chem", replay)
            more = await lend(flock) - owed
            assert more == pytest.approx(-book(flock, "physics").balance("chem"))
            assert more >= 100

    run_virtual(work())


def test_a_pool_that_never_answers_delays_no_other_ledger() -> None:
    async def work() -> None:
        async with creditors(27, {"chem": 2, "bio": 0, "physics": 0}, seconds=2 * HOURS) as flock:
            await flock.submit("bio")
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("bio") + flock.running("physics") == 2, within=200)

            async def hang(pool: str, params: Any) -> Any:
                await asyncio.sleep(1e9)

            book(flock, "bio").answer = hang
            await flock.settle(1.5 * HOURS)
            signed = sum(one.entry.total for one in book(flock, "chem").partners["physics"].ledger)
            assert signed / 1000 >= 1.5 * HOURS - 60
            assert "does not sign" in book(flock, "chem").why_not_lend("bio")
            assert book(flock, "chem").why_not_lend("physics") == ""

    run_virtual(work())


def test_a_pool_cannot_end_the_count_of_a_claim_that_it_keeps() -> None:
    """It says of a renewal that the claim is gone, in a list that the startd cannot read; the job runs on."""

    async def work() -> None:
        async with creditors(28, {"physics": 0, "chem": 1}, seconds=900) as flock:
            await flock.submit("physics")
            await flock.run_until(lambda: flock.running("physics") == 1, within=100)
            methods = world(flock, "physics")._lenders["chem"][0]._dispatcher._methods
            honest, renewals = methods["world_back.pass_back"], [0]

            async def lie(call: Any, params: Any) -> Any:
                answer = await honest.function(call, params)
                renewals[0] += params["verb"] == "renew"
                if params["verb"] == "renew" and renewals[0] == 2:
                    return {"gone": [*params["params"]["claims"], {}]}
                return answer

            methods["world_back.pass_back"] = replace(honest, function=lie)
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            await flock.settle(60)
            assert assert_equal(flock, "chem", "physics") >= 900

    run_virtual(work())


def test_a_full_disk_signs_nothing_that_a_crash_would_lose(tmp_path: Path) -> None:
    """Jobs run; the ledgers are equal when there is room again, and the rows that wait are few."""

    async def work() -> None:
        async with creditors(29, {"physics": 0, "chem": 2}, seconds=50, directory=tmp_path) as flock:
            full, saves = [True], {}
            for name in ("physics", "chem"):
                store = book(flock, name)._disk._store
                saves[name] = store.save

                def save(rows: Any, name: str = name) -> None:
                    if full[0]:
                        raise StoreError("cannot write the flock's ledger: no space left on device")
                    saves[name](rows)

                store.save = save
            await flock.submit("physics", count=20)
            await flock.run_until(lambda: flock.queued() == 0, within=3000)
            await flock.settle(600)
            assert "no space" in book(flock, "chem").status("physics")["ledger_trouble"]
            assert not entries(flock, "chem", "physics")
            assert len(book(flock, "chem")._disk._rows) < 20
            full[0] = False
            await flock.settle(120)
            assert assert_equal(flock, "chem", "physics") >= 20 * 50
            assert book(flock, "chem").status("physics")["ledger_trouble"] == ""

    run_virtual(work())


@pytest.mark.parametrize("seed", range(3))
def test_payback_across_crashes_ends_when_nothing_is_owed(seed: int, tmp_path: Path) -> None:
    """The debtor's world is killed while its machine pays the debt back: it does not know any more how much the flock
    has helped its jobs, and they have their machine back at once, though the startd's connection breaks just when it
    is to be taken back. The rest stays owed."""

    async def work() -> None:
        lengths = [400.0]
        machines = {"physics": 1, "chem": 1}
        terms = CreditTerms(True, bound=400.0)
        async with creditors(30 + seed, machines, seconds=lambda: lengths[0], directory=tmp_path, terms=terms) as flock:
            await flock.submit("physics", count=8)
            await flock.run_until(lambda: flock.queued() == 0, within=5000)
            lent = float(book(flock, "chem").balance("physics"))
            assert 399 <= lent <= 410
            lengths[0] = 50.0
            await flock.submit("physics", count=4, ad={"WantFlock": False})
            await flock.run_until(lambda: len(flock.witness.starts) == 9, within=100)
            lengths[0] = 5000.0
            await flock.submit("chem", owner="bob", ad={"Requirements": ['FlockPool =?= "physics"']})
            await flock.run_until(lambda: len(flock.witness.starts) == 10, within=500)
            began = flock.witness.starts[-1][2]
            lengths[0] = 50.0
            await flock.settle(100 + 90 * seed)
            await flock.pool("physics").kill(head("physics"))
            await flock.settle(5)
            await flock.pool("physics").restart(head("physics"))
            await flock.settle(30)
            lending, fails = world(flock, "physics").lending, [2]
            honest = lending.tunnel

            async def tunnel(*way: str) -> Any:
                if fails[0]:
                    fails[0] -= 1
                    raise TimeoutError("the startd does not answer")
                return await honest(*way)

            lending.tunnel = tunnel
            await flock.run_until(lambda: flock.witness.starts[-1][2] > began, within=2000)
            job, machine, at = flock.witness.starts[-1]
            assert (job.partition(":")[0], machine) == ("physics", "physics-m0")
            held = at - began
            assert 100 + 90 * seed < held <= lent + 30
            await flock.run_until(lambda: flock.queued("physics") == 0, within=5000)
            await flock.settle(60)
            # Chem's job has had the machine again since: nobody else wants it.
            assert assert_equal(flock, "chem", "physics") <= lent - held + 10
            flock.assert_sound()

    run_virtual(work())
