"""Decaying usage, and shares in inverse proportion to it."""

from __future__ import annotations

import pytest

from pool.policy.priorities import Accounts, AccountUsage, CycleSubmitter, FairShare, LeastTurns, SubmitterAccount
from pool.policy.priorities.accounts import BEST, FORGET


def test_usage_goes_halfway_in_each_half_life() -> None:
    policy, account = FairShare(half_life=100), SubmitterAccount("alice")
    for expected in (5.25, 7.625, 8.8125):
        policy.advance(account, AccountUsage(1, 10), 100)
        assert account.real == pytest.approx(expected)
    policy.advance(account, AccountUsage(), 200)
    assert account.real == pytest.approx(8.8125 / 4)
    policy.advance(account, AccountUsage(), 1e9)
    assert account.real == BEST


def test_how_often_one_looks_does_not_matter() -> None:
    policy, one, other = FairShare(half_life=3600), SubmitterAccount("a"), SubmitterAccount("b")
    policy.advance(one, AccountUsage(1, 7), 5000)
    for _ in range(500):
        policy.advance(other, AccountUsage(1, 7), 10)
    assert one.real == pytest.approx(other.real)


def test_the_factor_multiplies() -> None:
    policy = FairShare(factor=1000)
    assert policy.effective(SubmitterAccount("a", real=2)) == 2000
    assert policy.effective(SubmitterAccount("a", real=2, factor=1)) == 2


def shares(prices: dict[str, float], held: dict[str, float], slots: int) -> dict[str, float]:
    turns = LeastTurns(
        (CycleSubmitter(name, SubmitterAccount(name), held.get(name, 0)), price) for name, price in prices.items()
    )
    has = {name: held.get(name, 0.0) for name in prices}
    while slots:
        turn = turns.next()
        assert turn is not None
        for _ in range(min(slots, max(1, int(turn[1])))):
            turns.charge(turn[0], 1)
            has[turn[0]] += 1
            slots -= 1
    return has


def test_slots_are_shared_in_inverse_proportion() -> None:
    assert shares({"a": 10, "b": 5}, {}, 300) == {"a": 100, "b": 200}
    assert shares({"a": 1, "b": 1, "c": 1}, {}, 300) == {"a": 100, "b": 100, "c": 100}
    assert shares({"a": 1, "b": 1}, {"a": 80}, 100) == {"a": 90, "b": 90}
    assert shares({"a": 1, "b": 1}, {"a": 80}, 20) == {"a": 80, "b": 20}


def test_submitters_of_one_account_have_one_share() -> None:
    account = SubmitterAccount("a")
    turns = LeastTurns(
        [
            (CycleSubmitter("a@1", account), 1.0),
            (CycleSubmitter("a@2", account), 1.0),
            (CycleSubmitter("b@1", SubmitterAccount("b")), 1.0),
        ]
    )
    has = {"a@1": 0, "a@2": 0, "b@1": 0}
    for _ in range(60):
        turn = turns.next()
        assert turn is not None
        turns.charge(turn[0], 1)
        has[turn[0]] += 1
    assert has["a@1"] + has["a@2"] == has["b@1"] == 30
    turns.retire("b@1")
    turns.retire("a@1")
    assert (turns.next() or ("", 0))[0] == "a@2"
    turns.retire("a@2")
    assert turns.next() is None


def test_accounts_remember_use_and_forget_the_unused() -> None:
    accounts, policy = Accounts(), FairShare(half_life=100)
    accounts.advance(policy, {"a": AccountUsage(1, 4)}, 50, 1000.0)
    account = accounts.account_of("a")
    assert (account.used, account.since, account.last) == (200, 1000, 1000)
    accounts.set("b", factor=2)
    accounts.changed.clear()
    accounts.advance(policy, {}, 10, 2000.0)
    assert accounts.changed == {"a"}
    accounts.advance(policy, {}, 1e6, 3000.0)
    assert accounts.find("a") is not None
    accounts.advance(policy, {}, 1, 1000.0 + FORGET + 1)
    assert [account.name for account in accounts] == ["b"]


def test_what_nobody_counted_is_no_use() -> None:
    accounts, policy = Accounts([SubmitterAccount("a", real=8)]), FairShare(half_life=100)
    accounts.advance(policy, {"a": AccountUsage(1, 4)}, 0, 1000.0, gap=100)
    assert accounts.account_of("a").real == pytest.approx(4)
    assert accounts.account_of("a").used == 0


@pytest.mark.parametrize("number", [0, -1, float("nan"), float("inf")])
def test_numbers_that_cannot_be_are_refused(number: float) -> None:
    accounts = Accounts()
    for words in ({"factor": number}, {"real": number}):
        with pytest.raises(ValueError, match="lies between"):
            accounts.set("a", **words)
    assert len(accounts) == 0


def test_accounts_survive_the_wire_and_nonsense_in_it() -> None:
    account = SubmitterAccount("a", -3, 7.5, 2.0, 99.0, 1.0, 2.0)
    assert SubmitterAccount.from_wire(account.to_wire()) == account
    assert SubmitterAccount.from_wire(
        {"name": "a", "real": "x", "index": float("nan"), "used": -1}
    ) == SubmitterAccount("a")
    accounts = Accounts([account])
    assert accounts.reset("a")
    assert accounts.account_of("a") == SubmitterAccount("a", factor=2.0)
    assert not accounts.reset("b")
    assert accounts.forget("a")
