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


def written_accounts(accounts: Iterable[str], domain: str = "") -> dict[str, str]:
    """How each account is written in a listing that holds all of these.

    Args:
        domain: of the pool's own users. An account of another domain is written whole: it may be one of another pool's
            users (`alice@physics`), whom nobody shall take for a local user of the same name. Empty: domains tell
            nothing of that.
    """
    known = set(accounts)
    domains = Counter(map(without_domain, known))

    def is_whole(account: str) -> bool:
        return domains[without_domain(account)] > 1 or bool(domain and is_foreign(account, domain))

    return {account: account if is_whole(account) else without_domain(account) for account in known}


def is_foreign(account: str, domain: str) -> bool:
    """Whether an account has another domain."""
    _, at, other = account.rpartition("@")
    return bool(at) and other != domain
