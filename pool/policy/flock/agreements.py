"""The rights of other pools here, and ours there: the flock's file (EV 5.3, CONFIG_REC).

    [physics]
    in = true            # its jobs may run here
    out = true           # our jobs may run there
    machines = 20        # of our slots at most, at a time
    users = ["alice"]    # of its users only these

The file is read again on SIGHUP and by `poolnode reload`. A right that is withdrawn is gone at once for jobs that have
not begun yet. Jobs that run then run on, under the rules of the machine's owner.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pool.errors import PoolError

#: Slots that a pool may have at a time where the file does not say.
ANY_NUMBER = 1_000_000


class BadAgreement(PoolError):
    """The flock's file cannot be understood."""


@dataclass(frozen=True, slots=True)
class FlockAgreement:
    """The rights between this pool and one other.

    Attributes:
        pool: the other pool.
        lets_in: its jobs may run here.
        sends_out: jobs of this pool may run there.
        machines: slots of this pool that it may have at a time.
        users: of its users only these; None lets in all.
    """

    pool: str
    lets_in: bool = True
    sends_out: bool = True
    machines: int = ANY_NUMBER
    users: frozenset[str] | None = None

    def admits(self, user: str) -> bool:
        """Whether jobs of this user of the other pool may run here."""
        return self.lets_in and (self.users is None or user in self.users)


#: Settings of a pool in the file: their types and, for people, what they are.
_KNOWN: dict[str, tuple[type, str]] = {
    "in": (bool, "true or false"),
    "out": (bool, "true or false"),
    "machines": (int, "a number of slots"),
    "users": (list, "a list of user names"),
}


def read_agreements(text: str) -> dict[str, FlockAgreement]:
    """The agreements of a flock file, by the names of the pools. A pool that it does not name has the usual rights.

    Raises:
        BadAgreement: the text is no TOML, or says something that is not known here.
    """
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadAgreement(f"the flock's file cannot be read: {error}", hint="it is written as TOML") from error
    return {pool: _agreement(pool, table) for pool, table in tables.items()}


def _agreement(pool: str, table: Any) -> FlockAgreement:
    if not isinstance(table, Mapping):
        raise BadAgreement(f"the flock's file: {pool} stands outside a pool", hint="settings follow a line [POOL]")
    for name, value in table.items():
        if name not in _KNOWN:
            known = ", ".join(_KNOWN)
            raise BadAgreement(f"the flock's file: [{pool}] has no setting {name}", hint=f"there are {known}")
        kind, words = _KNOWN[name]
        whole = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not whole or (name == "users" and not all(isinstance(user, str) for user in value)):
            raise BadAgreement(f"the flock's file: {name} of [{pool}] is not {words}")
    if table.get("machines", 0) < 0:
        raise BadAgreement(f"the flock's file: machines of [{pool}] is negative")
    users = table.get("users")
    return FlockAgreement(
        pool,
        table.get("in", True),
        table.get("out", True),
        table.get("machines", ANY_NUMBER),
        frozenset(users) if users is not None else None,
    )
