"""How an account is written where people read it: `alice`, as HTCondor's queue writes its users.

An account's whole name has the domain, too (`alice@lab.example`). It is written only where one listing holds accounts
of the same user name in several domains, so that they can be told apart. Commands understand both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def without_domain(account: str) -> str:
    """`physics/alice` of `physics/alice@lab.example`."""
    name, at, _ = account.rpartition("@")
    return name if at else account


def written_accounts(accounts: Iterable[str]) -> dict[str, str]:
    """How each account is written in a listing that holds all of these."""
    known = set(accounts)
    domains = Counter(map(without_domain, known))
    return {account: account if domains[without_domain(account)] > 1 else without_domain(account) for account in known}
