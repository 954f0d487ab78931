"""Quotas of groups: what each may hold, and who gets what is left."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.policy.priorities import (
    CycleSubmitter,
    GroupQuota,
    LeastTurns,
    Purse,
    QuotaError,
    SubmitterAccount,
    WithinQuotas,
    allot,
    group_of,
    read_quotas,
)
from pool.policy.priorities.groups import entitled, lineage

QUOTAS = read_quotas("physics=0.5, physics.theory=0.4, chem=20, math=10% alone")


def test_quotas_are_read() -> None:
    assert (
        GroupQuota("chem", 20),
        GroupQuota("math", 0.1, True),
        GroupQuota("physics", 0.5),
        GroupQuota("physics.theory", 0.4),
    ) == QUOTAS
    assert read_quotas("") == ()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("physics", "'physics' is no quota"),
        ("=5", "is no quota"),
        ("a b=5", "is no quota"),
        ("a=5 often", "is no quota"),
        ("a=many", "no number"),
        ("a=-1", "cannot be"),
        ("a=nan", "is no number"),
        ("a=1, A=2", "two quotas"),
        ("a.b=1", "a above it has none"),
    ],
)
def test_what_is_no_list_of_quotas_is_said(text: str, said: str) -> None:
    with pytest.raises(QuotaError, match=said):
        read_quotas(text)


def test_a_job_is_paid_for_by_the_nearest_group_that_has_a_quota() -> None:
    assert group_of("Physics.Theory.Strings", QUOTAS) == "physics.theory"
    assert group_of("biology", QUOTAS) == ""
    assert lineage("physics.theory") == ("physics.theory", "physics")


def test_entitlements() -> None:
    assert entitled(QUOTAS, 100) == {"": 100, "chem": 20, "math": 10, "physics": 50, "physics.theory": 20}
    crowded = entitled(read_quotas("a=80, b=80"), 100)
    assert crowded == {"": 100, "a": 50, "b": 50}


EVERYBODY = {"chem": 500.0, "physics": 500.0, "math": 500.0, "": 500.0, "physics.theory": 500.0}
THEORY_AND_CHEM = {"chem": 20 + 30 * 20 / 70, "physics.theory": 50 + 30 * 50 / 70}


@pytest.mark.parametrize(
    ("wants", "given"),
    [
        (EVERYBODY, {"chem": 20, "physics": 30, "physics.theory": 20, "math": 10, "": 20}),
        ({"chem": 5, "physics": 10}, {"chem": 5, "physics": 10}),
        ({"math": 500}, {"math": 10}),
        ({"chem": 500}, {"chem": 100}),
        ({"chem": 500, "": 500}, {"chem": 50, "": 50}),
        ({"chem": 500, "physics.theory": 500}, THEORY_AND_CHEM),
        ({**EVERYBODY, "": 20, "chem": 20, "math": 10}, {"physics": 30, "physics.theory": 20}),
    ],
)
def test_what_is_left_goes_to_those_who_want_it_by_their_quotas(
    wants: dict[str, float], given: dict[str, float]
) -> None:
    dealt = allot(QUOTAS, wants, 100)
    for group, amount in given.items():
        assert dealt[group] == pytest.approx(amount), group


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.sampled_from(["", "chem", "math", "physics", "physics.theory"]), st.floats(0, 1000)),
    st.floats(0, 500),
)
def test_never_more_than_there_is_or_is_wanted(wants: dict[str, float], total: float) -> None:
    dealt = allot(QUOTAS, wants, total)
    assert sum(dealt.values()) <= total + 1e-6
    for group, amount in dealt.items():
        assert -1e-9 <= amount <= wants.get(group, 0) + 1e-6
    assert dealt["math"] <= entitled(QUOTAS, total)["math"] + 1e-6
    # Nothing is left lying while somebody who may take it wants it.
    unmet = sum(wants.get(group, 0) - amount for group, amount in dealt.items() if group != "math")
    assert unmet < 1e-6 or sum(dealt.values()) > total - 1e-3 * max(total, 1)


def test_turns_stay_within_quotas_and_say_which_one_binds() -> None:
    physics, theory = Purse("physics", 5), Purse("physics.theory", 2)
    inner = LeastTurns((CycleSubmitter(name, SubmitterAccount(name)), 1.0) for name in ("ann", "bob", "cyd"))
    turns = WithinQuotas(inner, {"ann": (theory, physics), "bob": (physics,)})
    has = {"ann": 0, "bob": 0, "cyd": 0}
    for _ in range(30):
        turn = turns.next()
        assert turn is not None
        turns.charge(turn[0], 1)
        has[turn[0]] += 1
    assert has == {"ann": 2, "bob": 3, "cyd": 25}
    assert turns.bound == {"ann": "physics.theory", "bob": "physics"}


def test_a_part_of_a_slot_is_a_slot_to_a_group_that_may_have_what_others_leave() -> None:
    """Else two thirds of a slot here and one there would be an idle machine."""
    physics, chemistry = (Purse(name, left, exact=False) for name, left in (("physics", 0.67), ("chemistry", 0.33)))
    alone = Purse("math", 0.9)
    inner = LeastTurns((CycleSubmitter(name, SubmitterAccount(name)), 1.0) for name in ("ann", "bob", "cyd"))
    turns = WithinQuotas(inner, {"ann": (physics,), "bob": (chemistry,), "cyd": (alone,)})
    assert [turns.allows(name, 1.0, preempting=False) for name in ("ann", "bob", "cyd")] == [True, True, False]
    turns.charge("ann", 1.0)
    assert not turns.allows("ann", 1.0, preempting=False)


def test_a_slot_that_stays_in_its_group_costs_it_nothing() -> None:
    physics, theory, others = Purse("physics", 0.0), Purse("physics.theory", 0.0), Purse("others", 5.0)
    inner = LeastTurns((CycleSubmitter(name, SubmitterAccount(name)), 1.0) for name in ("ann", "bob", "cyd"))
    purses = {"ann": (theory, physics), "bob": (theory, physics), "cyd": (others,), "dan": (physics,)}
    turns = WithinQuotas(inner, purses)
    assert turns.next() == ("cyd", 5.0)
    turns.retire("cyd")
    asked = [turns.next(), turns.next(), turns.next()]
    assert sorted(turn[0] for turn in asked[:2] if turn) == ["ann", "bob"]
    assert asked[2] == asked[0]
    assert turns.allows("ann", 1.0, preempting=False, holder="bob")
    assert not turns.allows("ann", 1.0, preempting=False, holder="dan")
    assert not turns.allows("ann", 1.0, preempting=False)
    turns.charge("ann", 1.0, "bob")
    assert (theory.left, physics.left) == (0.0, 0.0)
    turns.retire("ann")
    turns.retire("bob")
    assert turns.next() is None
