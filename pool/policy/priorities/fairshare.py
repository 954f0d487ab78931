"""Fair share by decaying usage, as users of today's batch systems know it.

An account's *real* priority follows the number of slots it holds, halfway in each half-life. An account that holds ten
slots for long has 10, one that stops has half of that a half-life later, and nobody is better than 0.5. The *effective*
priority is that times a factor. Slots are shared in inverse proportion to effective priorities: of two users, one at 10
and the other at 5, the second is given two of three.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from pool.policy.negotiation import SubmitterTurns
from pool.policy.priorities.accounts import BEST, NICE_FACTOR, AccountUsage, SubmitterAccount
from pool.policy.priorities.turns import CycleSubmitter, LeastTurns

HALF_LIFE = 86400.0
FACTOR = 1000.0


class FairShare:
    """The fair-share policy.

    Args:
        half_life: seconds in which usage loses half of its weight.
        factor: of accounts that have none of their own.
    """

    name = "fairshare"
    trouble = ""

    def __init__(self, half_life: float = HALF_LIFE, factor: float = FACTOR) -> None:
        self._half_life = max(half_life, 1.0)
        self._factor = factor

    def advance(self, account: SubmitterAccount, tally: AccountUsage, seconds: float) -> None:
        kept = 0.5 ** (seconds / self._half_life)
        account.real = max(account.real * kept + tally.used * (1.0 - kept), BEST)

    def granted(self, account: SubmitterAccount, weight: float) -> None:
        """Held slots count as they are held."""

    def effective(self, account: SubmitterAccount) -> float:
        usual = NICE_FACTOR if account.nice else self._factor
        return account.real * (account.factor if account.factor is not None else usual)

    def charged(self, account: SubmitterAccount) -> float:
        """A slot that is held for ever comes to a half-life over ln 2."""
        return self.effective(account) / self._factor * self._half_life / math.log(2.0)

    def turns(self, standings: Iterable[CycleSubmitter], total: float) -> SubmitterTurns:
        return LeastTurns(((standing, self.effective(standing.account)) for standing in standings), total)
