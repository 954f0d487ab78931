"""Nice users: their names, and that they come last."""

from __future__ import annotations

import pytest

from pool.policy.priorities import CycleSubmitter, Equal, FairShare, NiceLast, PriorityPolicy, SubmitterAccount, UpDown
from pool.policy.priorities.names import grouped, nice, parted


@pytest.mark.parametrize(
    ("group", "is_nice", "name", "back"),
    [
        ("", False, "ann@node", ""),
        ("physics", False, "physics/ann@node", "physics"),
        ("", True, "nice-user/ann@node", ""),
        ("nice-user", True, "nice-user/ann@node", ""),
        ("physics", True, "physics/nice-user/ann@node", "physics"),
    ],
)
def test_names(group: str, is_nice: bool, name: str, back: str) -> None:
    assert grouped("ann@node", group, is_nice) == name
    assert parted(name) == (back, "ann@node")
    assert nice(name) is is_nice


@pytest.mark.parametrize("policy", [UpDown(), FairShare(), Equal()])
def test_a_nice_account_stands_worse_than_any_other(policy: PriorityPolicy) -> None:
    worst, best = SubmitterAccount("bob", index=-1e6, real=1e5), SubmitterAccount("nice-user/ann", index=1e6)
    assert policy.effective(best) > policy.effective(worst)


@pytest.mark.parametrize("policy", [UpDown(), FairShare(), Equal()])
def test_nice_users_take_their_turn_when_nobody_else_has_one(policy: PriorityPolicy) -> None:
    bob, ann = CycleSubmitter("bob", SubmitterAccount("bob", index=-50.0, real=90.0), held=9.0), "nice-user/ann"
    turns = NiceLast(
        policy.turns([bob], 10), policy.turns([CycleSubmitter(ann, SubmitterAccount(ann, index=50.0))], 10)
    )
    for _ in range(20):
        turn = turns.next()
        assert turn is not None
        assert turn[0] == "bob"
        turns.charge("bob", 1.0)
    turns.retire("bob")
    turn = turns.next()
    assert turn is not None
    assert turn[0] == ann
    assert turns.allows(ann, 1.0, preempting=False)
    assert not turns.allows(ann, 1.0, preempting=True)
    turns.retire(ann)
    assert turns.next() is None
