"""The interface of a priority policy, and the simplest one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from pool.policy.negotiation import SubmitterTurns
from pool.policy.priorities.accounts import NICE_FACTOR, AccountUsage, SubmitterAccount
from pool.policy.priorities.turns import CycleSubmitter, LeastTurns


class PriorityPolicy(Protocol):
    """How priorities change, and what order follows from them.

    Attributes:
        name: as PRIORITY_POLICY has it.
        trouble: what is wrong with its expressions, in words; empty when nothing is.
    """

    name: str
    trouble: str

    def advance(self, account: SubmitterAccount, tally: AccountUsage, seconds: float) -> None:
        """Let time go by for one account that had this in the meantime."""

    def granted(self, account: SubmitterAccount, weight: float) -> None:
        """The account was given a slot of that weight."""

    def effective(self, account: SubmitterAccount) -> float:
        """The priority by which one user may preempt another: lower is better (RL 4.3)."""

    def charged(self, account: SubmitterAccount) -> float:
        """The use that the account is charged with now, in weighted seconds of slots: lower goes first.

        Only differences and ratios matter. A dedicated scheduler orders its users by it.
        """

    def turns(self, standings: Iterable[CycleSubmitter], total: float) -> SubmitterTurns:
        """The order in which submitters take slots in one cycle of a pool of that slot weight."""


class Equal:
    """Everybody is equal: the next slot goes to whoever holds least, and between equals to who has waited longest."""

    name = "equal"
    trouble = ""

    def advance(self, account: SubmitterAccount, tally: AccountUsage, seconds: float) -> None:
        """Nothing is remembered."""

    def granted(self, account: SubmitterAccount, weight: float) -> None:
        """Nothing is remembered."""

    def effective(self, account: SubmitterAccount) -> float:
        return NICE_FACTOR if account.nice else 1.0

    def charged(self, account: SubmitterAccount) -> float:
        """Nothing is remembered."""
        return NICE_FACTOR if account.nice else 0.0

    def turns(self, standings: Iterable[CycleSubmitter], total: float) -> SubmitterTurns:
        return LeastTurns(((standing, 1.0) for standing in standings), total)
