"""To whom a job is charged: its group, whether it is nice, and what it takes of the pool's limits.

A claim is granted within somebody's quota and limits, and on somebody's turn. It may go on only with jobs of the same
charge; others are the negotiator's to place. Pure; what the charges add up to is counted by the negotiator.
"""

from __future__ import annotations

from dataclasses import dataclass

from pool.classad import ClassAd
from pool.jobs.nice import is_nice


@dataclass(frozen=True, slots=True)
class Charge:
    """Attributes:
    group: the accounting group that the job names, in lower case; empty for none.
    nice: whether the job comes after everybody else's.
    limits: its concurrency limits in one order, in lower case.
    """

    group: str = ""
    nice: bool = False
    limits: str = ""


def charge(ad: ClassAd) -> Charge:
    """To whom a job is charged, by its ad."""
    group = ad.value("AcctGroup", "")
    name = group.strip().lower() if isinstance(group, str) else ""
    return Charge(name, is_nice(name, ad.value("NiceUser", False)), _limits(ad))


def _limits(ad: ClassAd) -> str:
    """Where they depend on the machine, equal expressions are equal limits: it is one claim's machine."""
    value = ad.value("ConcurrencyLimits", None)
    if isinstance(value, str):
        return ",".join(sorted(part.strip() for part in value.lower().split(",")))
    expression = ad.get("ConcurrencyLimits")
    return expression.text if expression is not None else ""
