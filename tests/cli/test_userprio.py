"""How users are named to `userprio`."""

from __future__ import annotations

import pytest

from pool.cli.selection import UsageProblem
from pool.cli.userprio import whole_name

KNOWN = ["bob@lab", "root@physics", "nice-user/carol@physics"]


@pytest.mark.parametrize(("user", "account"), [("bob", "bob@lab"), ("root@physics", "root@physics"), ("dave", "dave")])
def test_a_user_may_be_named_as_in_the_queue(user: str, account: str) -> None:
    assert whole_name(user, KNOWN, "lab") == account


def test_a_user_of_another_pool_is_not_changed_for_a_local_one() -> None:
    with pytest.raises(UsageProblem, match="'root' may be root@physics"):
        whole_name("root", KNOWN, "lab")
