"""Which account a user who comes from another machine has here: the administrator's rule MAP_USERS."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pool.errors import PoolError

#: In place of a name: whoever has no account of that name here.
ANYBODY = "*"


def read_user_map(text: str) -> dict[str, str]:
    """The rules of `MAP_USERS = alice = bob, * = guest`.

    Raises:
        PoolError: one is no rule, or a name has two.
    """
    rules: dict[str, str] = {}
    for rule in filter(None, (part.strip() for part in text.split(","))):
        name, equals, account = (part.strip() for part in rule.partition("="))
        if not equals or not _is_name(account) or (name != ANYBODY and not _is_name(name)):
            raise PoolError(f"MAP_USERS has no rule in {rule!r}", hint="MAP_USERS = alice = bob, * = guest")
        if name in rules:
            raise PoolError(f"MAP_USERS has two rules for {name}", hint="leave one out")
        rules[name] = account
    return rules


def account_of(name: str, rules: Mapping[str, str], is_known: Callable[[str], bool]) -> str | None:
    """The account that a user works with here; None where there is none.

    A rule for the name comes first, then the account of the same name, then the rule for anybody.

    Args:
        is_known: whether this machine has an account of that name, and this node may serve it.
    """
    wanted = rules.get(name) or (name if is_known(name) else rules.get(ANYBODY))
    return wanted if wanted is not None and is_known(wanted) else None


def _is_name(text: str) -> bool:
    return bool(text) and text != ANYBODY and not any(mark.isspace() or mark in "=,@/" for mark in text)
