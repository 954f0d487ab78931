"""The rights of other pools here, and ours there: the flock's file (EV 5.3, CONFIG_REC).

    [physics]
    in = true            # its jobs may run here
    out = true           # our jobs may run there
    machines = 20        # of our slots at most, at a time
    users = ["alice"]    # of its users only these
    hours = "18:00-08:00" # only then, by the machines' clocks; or a list, also with days: "mon-fri 20:00-06:00"
    kinds = "Memory < 64000" # only machines of which this is true
    status = true        # its users may list our machines
    guests_leave = false # its jobs stay on our machines while our own jobs wait
    direct = ["192.0.2.0/24"]  # our machines connect to its machines in these networks; without it through the worlds
    agreement = "credit" # use is counted and paid back (EV 4.2); or "idle-only"
    bound = 100          # machine-hours that one may owe the other
    half_life = 30       # days after which half of a debt is forgotten; 0 forgets nothing

The file is read again on SIGHUP and by `poolnode reload`. A right that is withdrawn is gone at once for jobs that have
not begun yet. Jobs that run then run on, under the rules of the machine's owner.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any

from pool.errors import PoolError
from pool.policy.flock.direct import BadNetwork, DirectNetwork, read_networks
from pool.policy.flock.ledger import CreditTerms
from pool.policy.flock.limits import ANY_MACHINE, BadLimit, MachineLimits, check_limits

#: Slots that a pool may have at a time where the file does not say.
ANY_NUMBER = 1_000_000
#: Kinds of agreements.
CREDIT, IDLE_ONLY = "credit", "idle-only"
#: Machine-hours that one pool may owe the other where nothing is said; no number in the file is as large as MOST.
USUAL_BOUND, MOST = 100.0, 1e9


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
        limits: which machines, and when.
        shows_status: its users may list our machines.
        guests_leave: whether its jobs leave our machines when own jobs need them; None where the file does not say.
        terms: of credit; None where the file says nothing of them.
        direct: the networks in which machines of both pools connect directly; none where all goes through the worlds.
    """

    pool: str
    lets_in: bool = True
    sends_out: bool = True
    machines: int = ANY_NUMBER
    users: frozenset[str] | None = None
    shows_status: bool = False
    terms: CreditTerms | None = None
    guests_leave: bool | None = None
    direct: tuple[DirectNetwork, ...] = ()
    limits: MachineLimits = ANY_MACHINE

    def admits(self, user: str) -> bool:
        """Whether jobs of this user of the other pool may run here."""
        return self.lets_in and (self.users is None or user in self.users)


#: Settings of a pool in the file: their types and, for people, what they are.
_KNOWN: dict[str, tuple[type | UnionType, str]] = {
    "in": (bool, "true or false"),
    "out": (bool, "true or false"),
    "machines": (int, "a number of slots"),
    "users": (list, "a list of user names"),
    "hours": (str | list, "a span of time, or a list of them"),
    "kinds": (str, "an expression"),
    "status": (bool, "true or false"),
    "guests_leave": (bool, "true or false"),
    "direct": (list, "a list of networks as 192.0.2.0/24"),
    "agreement": (str, "'credit' or 'idle-only'"),
    "bound": (int | float, "a number of machine-hours"),
    "half_life": (int | float, "a number of days"),
}


#: Settings whose lists hold texts.
_OF_TEXTS = ("users", "hours")


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
        if not whole or (
            name in _OF_TEXTS and isinstance(value, list) and not all(isinstance(one, str) for one in value)
        ):
            raise BadAgreement(f"the flock's file: {name} of [{pool}] is not {words}")
    if table.get("agreement", IDLE_ONLY) not in (CREDIT, IDLE_ONLY):
        raise BadAgreement(f"the flock's file: agreement of [{pool}] is not {_KNOWN['agreement'][1]}")
    for name in ("machines", "bound", "half_life"):
        if not 0 <= table.get(name, 0) < MOST:
            raise BadAgreement(
                f"the flock's file: {name} of [{pool}] is {'negative' if table[name] < 0 else 'too large'}"
            )
    try:
        direct = read_networks(table.get("direct", []))
    except BadNetwork as error:
        raise BadAgreement(f"the flock's file: direct of [{pool}]: {error.message}", hint=error.hint) from error
    users, hours = table.get("users"), table.get("hours", [])
    if called := [user for user in users or () if user.endswith(f"@{pool}")]:
        name = called[0].removesuffix(f"@{pool}")
        raise BadAgreement(
            f"the flock's file: users of [{pool}] has {called[0]}, as the user is called here", hint=f'write "{name}"'
        )
    try:
        limits = check_limits((hours,) if isinstance(hours, str) else tuple(hours), table.get("kinds", ""))
    except BadLimit as error:
        raise BadAgreement(f"the flock's file: [{pool}]: {error.message}", hint=error.hint) from error
    return FlockAgreement(
        pool,
        table.get("in", True),
        table.get("out", True),
        table.get("machines", ANY_NUMBER),
        frozenset(users) if users is not None else None,
        table.get("status", False),
        credit_terms(table["agreement"], table.get("bound", USUAL_BOUND), table.get("half_life", 0.0))
        if "agreement" in table
        else None,
        table.get("guests_leave"),
        direct,
        limits,
    )


def credit_terms(agreement: str, bound: float, half_life: float) -> CreditTerms:
    """Terms as administrators write them: machine-hours and days."""
    return CreditTerms(agreement == CREDIT, bound * 3600.0, half_life * 86400.0)


def limits_shown(agreement: FlockAgreement) -> dict[str, Any]:
    """The limits of another pool's use as `status` tells them; None, or empty, where there is none."""
    return {
        "machines": agreement.machines if agreement.machines < ANY_NUMBER else None,
        "users": sorted(agreement.users) if agreement.users is not None else None,
        "hours": list(agreement.limits.hours),
        "kinds": agreement.limits.kinds,
        "shows_status": agreement.shows_status,
    }


def rule_changes(before: str, after: str) -> list[tuple[str, str, str]]:
    """The differences between two texts of a flock file, both without mistakes: (name, value before, value now), in
    TOML's words; a value is empty where the text does not say it."""
    old, new = (  # by pool and setting
        {(pool, name): value for pool, table in tomllib.loads(text).items() for name, value in table.items()}
        for text in (before, after)
    )
    return [
        (f"[{pool}] {name}", _in_words(old.get((pool, name))), _in_words(new.get((pool, name))))
        for pool, name in sorted({*old, *new})
        if old.get((pool, name)) != new.get((pool, name))
    ]


def _in_words(value: Any) -> str:
    return "" if value is None else json.dumps(value, ensure_ascii=False)
