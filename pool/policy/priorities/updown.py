"""The up-down algorithm: who waits rises, who runs sinks (EV 2.6, TS 8.3; first in Mutka and Livny, EV's [15]).

Each account has an index, 0 at first. Every interval the index of an active account becomes UPDATE_PRIO, as shipped
`Prio + Users - Running`; that of an inactive one (INACTIVE, `Users <= 0`) goes one step back towards 0. A cycle serves
the highest index first and takes one off for each slot it gives (EV 3.5, SIMPLE NEGOTIATE). So a heavy user's index
falls as long as the user runs much, and somebody who comes with a few jobs is before them at once: heavy load cannot
make light users wait.

Two things are ours: indices stay within a bound, so that a year of waiting does not buy a year of precedence, and
`Running` counts a slot by its weight. An expression without a number as its value leaves the index as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from pool.classad import ClassAd, Expr, evaluate, parse_expr
from pool.policy.negotiation import SubmitterTurns
from pool.policy.priorities.accounts import NICE_FACTOR, AccountUsage, SubmitterAccount
from pool.policy.priorities.turns import CycleSubmitter, UpDownTurns

#: The papers' expressions and time (EV 2.6).
INACTIVE = "Users <= 0"
UPDATE_PRIO = "Prio + Users - Running"
INTERVAL = 300.0
#: Indices stay between this and its negative: more than a thousand slots held for a day.
BOUND = 1e6
#: Steps made up for at once after a gap.
MOST_STEPS = 10_000


class UpDown:
    """The up-down policy.

    Args:
        inactive, update: expressions over Prio, Users, Running and Jobs.
        interval: seconds between two updates.
    """

    name = "updown"

    def __init__(self, inactive: Expr | None = None, update: Expr | None = None, interval: float = INTERVAL) -> None:
        self._inactive = inactive or parse_expr(INACTIVE)
        self._update = update or parse_expr(UPDATE_PRIO)
        self._shipped = (self._inactive.text, self._update.text) == (INACTIVE, UPDATE_PRIO)
        self._interval = max(interval, 1e-3)
        self._owed: dict[str, float] = {}
        self.trouble = ""

    def advance(self, account: SubmitterAccount, tally: AccountUsage, seconds: float) -> None:
        owed = self._owed.pop(account.name, 0.0) + seconds
        # A timer that is a hair early must not lose its step.
        steps = min(int(owed / self._interval + 1e-6), MOST_STEPS)
        if steps < MOST_STEPS and (left := owed - steps * self._interval) > 1e-6 * self._interval:
            self._owed[account.name] = left
        for _ in range(steps):
            before = account.index
            account.index = self.updated(before, tally)
            if account.index == before:
                break

    def updated(self, index: float, tally: AccountUsage) -> float:
        """An index one interval later."""
        if self._shipped:  # by far the most: thousands of accounts are updated at once, on the negotiator's loop
            if tally.users <= 0:
                return _towards_zero(index)
            return min(max(index + tally.users - tally.running, -BOUND), BOUND)
        ad = ClassAd({"Prio": index, "Users": tally.users, "Running": tally.running, "Jobs": tally.jobs})
        inactive = evaluate(self._inactive, ad)
        if not isinstance(inactive, (bool, int, float)):
            self.trouble = f"INACTIVE is {_as_text(inactive)}: {INACTIVE} was used"
            inactive = tally.users <= 0
        if inactive:
            return _towards_zero(index)
        value = evaluate(self._update, ad)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            self.trouble = f"UPDATE_PRIO is {_as_text(value)}: priorities stay as they are"
            return index
        return min(max(float(value), -BOUND), BOUND)

    def granted(self, account: SubmitterAccount, weight: float) -> None:
        account.index = max(account.index - weight, -BOUND)

    def effective(self, account: SubmitterAccount) -> float:
        return (NICE_FACTOR if account.nice else 0.0) - account.index  # not -0.0

    def charged(self, account: SubmitterAccount) -> float:
        """A slot costs one of the index in each interval, as shipped."""
        return self.effective(account) * self._interval

    def turns(self, standings: Iterable[CycleSubmitter], total: float) -> SubmitterTurns:
        return UpDownTurns(((standing, standing.account.index) for standing in standings), total)


def _towards_zero(index: float) -> float:
    """One step towards 0."""
    return index + 1 if index <= -1 else index - 1 if index >= 1 else 0.0


def _as_text(value: Any) -> str:
    return str(value) if not isinstance(value, str) else "a text"
