"""What a priority policy is, and the simplest one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pool.policy.negotiation import Turns
from pool.policy.priorities.accounts import NICE_FACTOR, Account, Tally
from pool.policy.priorities.turns import LeastTurns, Standing


class Policy(Protocol):
    """How priorities change, and what order follows from them.

    Attributes:
        name: as PRIORITY_POLICY has it.
        trouble: what is wrong with its expressions, in words; empty when nothing is.
    """

    name: str
    trouble: str

    def advance(self, account: Account, tally: Tally, seconds: float) -> None:
        """Let time go by for one account that had this in the meantime."""

    def granted(self, account: Account, weight: float) -> None:
        """The account was given a slot of that weight."""

    def effective(self, account: Account) -> float:
        """The priority by which one user may preempt another: lower is better (RL 4.3)."""

    def turns(self, standings: Iterable[Standing], total: float) -> Turns:
        """The order in which submitters take slots in one cycle of a pool of that slot weight."""


class Equal:
    """Everybody is equal: the next slot goes to whoever holds least, and between equals to who has waited longest."""

    name = "equal"
    trouble = ""

    def advance(self, account: Account, tally: Tally, seconds: float) -> None:
        """Nothing is remembered."""

    def granted(self, account: Account, weight: float) -> None:
        """Nothing is remembered."""

    def effective(self, account: Account) -> float:
        return NICE_FACTOR if account.nice else 1.0

    def turns(self, standings: Iterable[Standing], total: float) -> Turns:
        return LeastTurns(((standing, 1.0) for standing in standings), total)
