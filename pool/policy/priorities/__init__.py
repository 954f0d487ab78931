"""Users' priorities, and the turns in which a cycle serves users (A6, EV 2.6, TS 8.3).

    accounts.py    what is remembered of each user: index, usage, factor
    updown.py      the papers' up-down algorithm
    fairshare.py   usage that decays by half in a while, as today's users know it
    groups.py      quotas of groups of users, and who gets what they leave
    turns.py       from priorities and quotas to the order in which submitters take slots
    names.py       submitters and accounts by name: user, group, and whether they come after everybody else

One of up-down, fair share and equal is chosen by PRIORITY_POLICY (`choose`). Pure: the negotiator counts who runs what,
hands time in and keeps the accounts.
"""

from __future__ import annotations

from pool.policy.priorities.accounts import Accounts, AccountUsage, SubmitterAccount
from pool.policy.priorities.fairshare import FairShare
from pool.policy.priorities.groups import GroupQuota, QuotaError, allot, group_of, read_quotas
from pool.policy.priorities.policies import Equal, PriorityPolicy
from pool.policy.priorities.turns import (
    CreditorsFirst,
    CycleSubmitter,
    LeastTurns,
    NiceLast,
    Purse,
    UpDownTurns,
    WithinQuotas,
)
from pool.policy.priorities.updown import UpDown

__all__ = [
    "SubmitterAccount",
    "Accounts",
    "Equal",
    "FairShare",
    "LeastTurns",
    "NiceLast",
    "PriorityPolicy",
    "Purse",
    "GroupQuota",
    "QuotaError",
    "CreditorsFirst",
    "CycleSubmitter",
    "AccountUsage",
    "UpDown",
    "UpDownTurns",
    "WithinQuotas",
    "allot",
    "group_of",
    "read_quotas",
]
