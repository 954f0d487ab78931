"""The record of each user: one account, with everything that any policy needs, so that the policy can be changed.

An account belongs to a user (`alice@lab.example`), with the group in front where jobs name one
(`physics/alice@lab.example`), or to a machine from which jobs are submitted, as PRIORITY_OVER says.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from pool.policy.priorities.names import nice

if TYPE_CHECKING:
    from pool.policy.priorities.policies import PriorityPolicy

#: The best real priority there is, and that of somebody who has never run anything.
BEST = 0.5
#: Factors that can be given to an account.
LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e12
#: The factor of nice users who have none of their own.
NICE_FACTOR = 1e10
#: An account that has used nothing for so many seconds, and has nothing of its own set, is forgotten.
FORGET = 90 * 86400.0
#: Time without a negotiator counts for at most this, seconds.
LONGEST_GAP = 30 * 86400.0


@dataclass(slots=True)
class SubmitterAccount:
    """One user's standing.

    Attributes:
        index: the up-down priority (EV 2.6): higher goes first; everybody begins at 0.
        real: decayed usage in slots (fair share): lower goes first; BEST at the least.
        factor: what `real` is multiplied by; None for the pool's default.
        used: weighted seconds of slots, ever.
        since, last: wall times of the first and the latest use; None for never.
    """

    name: str
    index: float = 0.0
    real: float = BEST
    factor: float | None = None
    used: float = 0.0
    since: float | None = None
    last: float | None = None

    @property
    def nice(self) -> bool:
        """Whether it is of jobs that come after everybody else's."""
        return nice(self.name)

    def to_wire(self) -> dict[str, Any]:
        """As it is stored and shown."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self)}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> SubmitterAccount:
        """The reverse of `to_wire`; a number that is none counts as not said."""
        account = cls(str(wire["name"]))
        for name in ("index", "real", "factor", "used", "since", "last"):
            value = wire.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
                setattr(account, name, float(value))
        account.real = max(account.real, BEST)
        account.used = max(account.used, 0.0)
        return account


@dataclass(slots=True)
class AccountUsage:
    """The resources that an account has in the pool at one moment.

    Attributes:
        users: different users with jobs in the queue, running ones included: 0 or 1 where accounts are users.
        running: slots it holds, each by its weight.
        jobs: slots it holds.
        average: what `running` was on average since the last look; None where it has not changed.
    """

    users: int = 0
    running: float = 0.0
    jobs: int = 0
    average: float | None = None

    @property
    def used(self) -> float:
        """Slot weight held on average since the last look."""
        return self.running if self.average is None else self.average


NOTHING = AccountUsage()


class Accounts:
    """All accounts of the pool."""

    def __init__(self, known: Iterable[SubmitterAccount] = ()) -> None:
        self._accounts = {account.name: account for account in known}
        self.changed: set[str] = set()

    def __iter__(self) -> Iterator[SubmitterAccount]:
        return iter(self._accounts.values())

    def __len__(self) -> int:
        return len(self._accounts)

    def account_of(self, name: str) -> SubmitterAccount:
        """The account of that name, a fresh one for somebody new."""
        found = self._accounts.get(name)
        if found is None:
            found = self._accounts[name] = SubmitterAccount(name)
        return found

    def find(self, name: str) -> SubmitterAccount | None:
        """The account of that name, if there is one."""
        return self._accounts.get(name)

    def advance(
        self, policy: PriorityPolicy, tallies: Mapping[str, AccountUsage], seconds: float, now: float, gap: float = 0.0
    ) -> None:
        """Let time go by for everybody.

        Args:
            tallies: what accounts have had since the last call; those not named have nothing.
            seconds: since the last call.
            now: wall time at the end of it.
            gap: seconds before that in which nobody counted (no negotiator ran): priorities recover, nothing is used.
        """
        for name in tallies:
            self.account_of(name)
        gap = min(max(gap, 0.0), LONGEST_GAP)
        for account in list(self._accounts.values()):
            before = account.index, account.real, account.used
            if gap:
                policy.advance(account, NOTHING, gap)
            tally = tallies.get(account.name, NOTHING)
            policy.advance(account, tally, max(seconds, 0.0))
            if tally.used > 0:
                account.used += tally.used * max(seconds, 0.0)
                account.since = now if account.since is None else account.since
                account.last = now
            if (account.index, account.real, account.used) != before:
                self.changed.add(account.name)
            elif self._idle(account, tally, now):
                del self._accounts[account.name]
                self.changed.add(account.name)

    def granted(self, policy: PriorityPolicy, name: str, weight: float) -> None:
        """An account was given a slot."""
        policy.granted(self.account_of(name), weight)
        self.changed.add(name)

    def set(self, name: str, *, factor: float | None = None, real: float | None = None) -> SubmitterAccount:
        """An administrator's word on an account; what is None stays.

        Raises:
            ValueError: a number that cannot be, in words.
        """
        if factor is not None and not LEAST_FACTOR <= factor <= MOST_FACTOR:
            raise ValueError(f"a factor lies between {LEAST_FACTOR:g} and {MOST_FACTOR:g}")
        if real is not None and not BEST <= real <= MOST_FACTOR:
            raise ValueError(f"a priority lies between {BEST:g} and {MOST_FACTOR:g}")
        account = self.account_of(name)
        account.factor = factor if factor is not None else account.factor
        account.real = real if real is not None else account.real
        self.changed.add(name)
        return account

    def reset(self, name: str) -> bool:
        """Forget what an account has used, but not its factor; False where there is none."""
        account = self._accounts.get(name)
        if account is None:
            return False
        self._accounts[name] = SubmitterAccount(name, factor=account.factor)
        self.changed.add(name)
        return True

    def forget(self, name: str) -> bool:
        """Forget an account altogether; False where there is none."""
        self.changed.add(name)
        return self._accounts.pop(name, None) is not None

    @staticmethod
    def _idle(account: SubmitterAccount, tally: AccountUsage, now: float) -> bool:
        untouched = account.index == 0 and account.real <= BEST and account.factor is None and tally == NOTHING
        return untouched and (account.last is None or now - account.last > FORGET)
