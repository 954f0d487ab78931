"""MAP_USERS: which account a user from another machine has."""

from __future__ import annotations

import pytest

from pool.errors import PoolError
from pool.policy.user_map import account_of, read_user_map


@pytest.mark.parametrize(
    ("name", "account"),
    [("alice", "bob"), ("bob", "bob"), ("carol", "guest"), ("dora", None), ("root", "root")],
)
def test_a_name_has_the_account_that_the_rules_say(name: str, account: str | None) -> None:
    rules = read_user_map("alice = bob, dora = nobody-here, * = guest")
    assert account_of(name, rules, {"bob", "guest", "root"}.__contains__) == account


def test_without_rules_everybody_has_the_account_of_the_same_name() -> None:
    assert read_user_map(" ") == {}
    assert account_of("alice", {}, {"alice"}.__contains__) == "alice"
    assert account_of("alice", {}, set[str]().__contains__) is None


@pytest.mark.parametrize("text", ["alice", "alice =", "= bob", "a = b = c", "a = *", "a = b, a = c", "a b = c"])
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(PoolError, match="MAP_USERS has"):
        read_user_map(text)
