"""The up-down algorithm, by the papers' numbers (EV 2.6, 3.5; TS 8.3)."""

from __future__ import annotations

import pytest

from pool.classad import parse_expr
from pool.policy.priorities import Accounts, AccountUsage, CycleSubmitter, SubmitterAccount, UpDown, UpDownTurns
from pool.policy.priorities.updown import BOUND


def after(index: float, tally: AccountUsage, steps: int = 1, policy: UpDown | None = None) -> float:
    account = SubmitterAccount("alice", index)
    (policy or UpDown()).advance(account, tally, 300.0 * steps)
    return account.index


def test_a_machine_goes_up_by_its_users_and_down_by_what_it_runs() -> None:
    assert after(0, AccountUsage(users=1)) == 1
    assert after(0, AccountUsage(users=3)) == 3
    assert after(0, AccountUsage(users=1, running=5)) == -4
    assert after(7, AccountUsage(users=2, running=2)) == 7
    assert after(0, AccountUsage(users=1, running=5), steps=10) == -40


def test_an_inactive_one_goes_back_to_zero_by_ones() -> None:
    assert [after(-3, AccountUsage(), steps) for steps in (1, 2, 3, 4)] == [-2, -1, 0, 0]
    assert [after(2, AccountUsage(), steps) for steps in (1, 2, 3)] == [1, 0, 0]
    assert after(0.5, AccountUsage()) == 0
    assert after(-1.5, AccountUsage(), 2) == 0


def test_time_counts_by_whole_intervals_and_none_is_lost() -> None:
    policy, account = UpDown(interval=300), SubmitterAccount("alice")
    for _ in range(10):
        policy.advance(account, AccountUsage(users=1), 100.0)
    assert account.index == 3
    policy.advance(account, AccountUsage(users=1), 200.0)
    assert account.index == 4


def test_a_year_of_waiting_is_bounded() -> None:
    accounts = Accounts()
    policy = UpDown(interval=1)
    for _ in range(200):
        accounts.advance(policy, {"alice": AccountUsage(users=1), "bob": AccountUsage(1, 10.0**9)}, 86400, 0.0)
    assert accounts.account_of("alice").index <= BOUND
    assert accounts.account_of("bob").index == -BOUND


def test_expressions_are_the_administrators() -> None:
    policy = UpDown(parse_expr("false"), parse_expr("Prio / 2 + Jobs"))
    assert after(8, AccountUsage(users=0, jobs=1), 1, policy) == 5
    assert policy.trouble == ""


@pytest.mark.parametrize("text", ["Nothing", "1/0", '"x"', "true", 'real("inf")', "{1}"])
def test_an_update_without_a_number_leaves_priorities_alone_and_is_told(text: str) -> None:
    policy = UpDown(update=parse_expr(text))
    assert after(8, AccountUsage(users=1), 3, policy) == 8
    assert policy.trouble.startswith("UPDATE_PRIO is ")


def test_an_inactive_without_a_value_counts_as_the_papers() -> None:
    policy = UpDown(parse_expr("Nothing"))
    assert after(8, AccountUsage(users=1), 1, policy) == 9
    assert after(8, AccountUsage(users=0), 1, policy) == 7
    assert policy.trouble.startswith("INACTIVE is undefined")


def run(indices: dict[str, float], wants: dict[str, int], slots: int, weight: float = 1) -> list[str]:
    """Give slots away one by one, as a cycle does with machines that fit everybody."""
    standings = [
        (CycleSubmitter(name, SubmitterAccount(name, index), oldest=place), index)
        for place, (name, index) in enumerate(indices.items())
    ]
    turns, order, left = UpDownTurns(standings), [], dict(wants)
    while slots and (turn := turns.next()) is not None:
        name, most = turn
        for _ in range(max(1, int(most / weight))):
            if not slots or not left[name]:
                break
            turns.charge(name, weight)
            order.append(name)
            left[name] -= 1
            slots -= 1
        if not left[name]:
            turns.retire(name)
    return order


def test_the_highest_is_served_until_it_is_no_longer_above_the_next() -> None:
    """EV 3.5, RESCHEDULE 5 to 9: 'while priority is higher than priority of the next machine'."""
    assert run({"a": 1, "b": 4}, {"a": 9, "b": 9}, 3) == ["b", "b", "b"]
    assert run({"a": 1, "b": 4}, {"a": 9, "b": 9}, 8) == ["b", "b", "b", "a", "b", "a", "b", "a"]
    assert run({"a": 0, "b": 0, "c": 0}, {"a": 9, "b": 9, "c": 9}, 6) == ["a", "b", "c", "a", "b", "c"]


def test_who_wants_no_more_does_not_stop_the_others() -> None:
    assert run({"a": -5, "b": 4}, {"a": 3, "b": 1}, 9) == ["b", "a", "a", "a"]


def test_a_light_user_goes_before_a_heavy_one_who_has_run_long() -> None:
    accounts, policy = Accounts(), UpDown()
    for _ in range(12):
        accounts.advance(policy, {"heavy": AccountUsage(1, 20, 20)}, 300, 0.0)
    accounts.advance(policy, {"heavy": AccountUsage(1, 20, 20), "light": AccountUsage(1)}, 300, 0.0)
    indices = {account.name: account.index for account in accounts}
    assert indices == {"heavy": -19 * 13, "light": 1}
    assert run(indices, {"heavy": 100, "light": 5}, 6) == ["light"] * 5 + ["heavy"]


def test_a_granted_slot_costs_one_and_stays_paid() -> None:
    accounts, policy = Accounts(), UpDown()
    accounts.granted(policy, "alice", 1)
    accounts.granted(policy, "alice", 2)
    assert accounts.account_of("alice").index == -3
    assert policy.effective(accounts.account_of("alice")) > policy.effective(accounts.account_of("bob"))


@pytest.mark.parametrize("index", [-1e6, -7.5, -1.0, -0.5, 0.0, 0.5, 1.0, 7.5, 1e6])
@pytest.mark.parametrize(
    "tally",
    [AccountUsage(), AccountUsage(1), AccountUsage(3, 2.5, 2), AccountUsage(0, 4.0, 4), AccountUsage(1, 8.0, 8)],
)
def test_the_shipped_expressions_are_what_is_worked_out_without_them(index: float, tally: AccountUsage) -> None:
    written = UpDown(parse_expr("Users <= 0 || false"), parse_expr("Prio + Users - Running + 0"))
    assert UpDown().updated(index, tally) == written.updated(index, tally)
    assert not written.trouble
