"""From priorities to turns: which submitter takes the next slots, and how many before it is somebody else's turn.

Each kind answers the cycle's questions (`pool.policy.negotiation.SubmitterTurns`): whose turn it is, how much slot
weight may be taken in it, what was taken, who wants or fits nothing more, and what may be preempted for.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pool.policy.negotiation import SubmitterTurns
from pool.policy.priorities.accounts import SubmitterAccount
from pool.policy.priorities.names import nice

#: A turn with nobody behind it.
ALL = 1e9
#: Less slot weight than this is none.
TRIFLE = 1e-9


@dataclass(slots=True)
class CycleSubmitter:
    """A submitter in one cycle.

    Attributes:
        submitter: as the cycle names it.
        account: whose priority it has; several submitters may share one.
        held: slot weight that the account holds already.
        oldest: wall time since when its oldest job waits.
    """

    submitter: str
    account: SubmitterAccount
    held: float = 0.0
    oldest: float = 0.0


class LeastTurns:
    """The next slot goes to the account that holds least for its due: least `held` times `price`.

    Accounts of equal price end up with equal shares; one of half the price with twice as much. Slots that an account
    holds already count, so that shares are of the pool and not of the slots that happen to be free.

    Args:
        prices: each submitter, and what a slot costs it.
        total: slot weight of the pool; by preemption nobody is given more than the share of that which is their due.
    """

    def __init__(self, prices: Iterable[tuple[CycleSubmitter, float]], total: float = math.inf) -> None:
        self._price: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._account: dict[str, str] = {}
        self._gone: set[str] = set()
        heap: list[tuple[float, float, float, str]] = []
        for standing, price in prices:
            name = standing.submitter
            self._account[name] = standing.account.name
            self._price[name] = max(price, TRIFLE)
            self._held[standing.account.name] = max(standing.held, self._held.get(standing.account.name, 0.0))
            heap.append((0.0, price, standing.oldest, name))
        due = {account: 1.0 / self._price[name] for name, account in self._account.items()}
        self._share = {account: total * part / sum(due.values()) for account, part in due.items()}
        # The slots held by an account are only known now that all of its submitters were seen.
        self._heap = [(self._cost(name), price, oldest, name) for _, price, oldest, name in heap]
        heapq.heapify(self._heap)

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and the slot weight it may take in it."""
        while self._heap:
            cost, price, oldest, name = self._heap[0]
            if name in self._gone:
                heapq.heappop(self._heap)
                continue
            current = self._cost(name)
            if current != cost:  # another submitter of the account has taken something
                heapq.heapreplace(self._heap, (current, price, oldest, name))
                continue
            after = min((entry[0] for entry in self._heap[1:3]), default=None)
            if after is None:
                return name, ALL
            return name, max(1.0, (after - cost) / self._price[name])
        return None

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """The submitter whose turn it is has taken so much."""
        self._held[self._account[submitter]] += weight

    def retire(self, submitter: str) -> None:
        """The submitter wants or fits nothing more."""
        self._gone.add(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """By preemption no more than its share."""
        account = self._account[submitter]
        return not preempting or self._held[account] + weight <= self._share[account] + TRIFLE

    def _cost(self, submitter: str) -> float:
        return self._held[self._account[submitter]] * self._price[submitter]


class UpDownTurns:
    """EV 3.5's RESCHEDULE: the highest index first, as long as it is above the next; each slot takes one off.

    Between equals, where the paper leaves it open, each takes one in turn, the one with the oldest job first.

    Args:
        indices: each submitter and its account's index.
        total: slot weight of the pool; by preemption nobody is given more than an equal part of that.
    """

    def __init__(self, indices: Iterable[tuple[CycleSubmitter, float]], total: float = math.inf) -> None:
        self._index: dict[str, float] = {}
        self._held: dict[str, float] = {}
        self._account: dict[str, str] = {}
        self._heap: list[tuple[float, int, float, str]] = []
        self._gone: set[str] = set()
        self._taken = 0
        for standing, index in indices:
            self._account[standing.submitter] = standing.account.name
            self._index[standing.account.name] = index
            self._held[standing.account.name] = max(standing.held, self._held.get(standing.account.name, 0.0))
            self._heap.append((-index, 0, standing.oldest, standing.submitter))
        heapq.heapify(self._heap)
        self._share = total / max(1, len(self._held))

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and the slot weight it may take in it."""
        while self._heap:
            below, _, oldest, name = self._heap[0]
            if name in self._gone:
                heapq.heappop(self._heap)
                continue
            index = self._index[self._account[name]]
            if -below != index:
                self._taken += 1
                heapq.heapreplace(self._heap, (-index, self._taken, oldest, name))
                continue
            after = min((entry[0] for entry in self._heap[1:3]), default=None)
            if after is None:
                return name, ALL
            return name, max(1.0, index + after)
        return None

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """The submitter whose turn it is has taken so much."""
        account = self._account[submitter]
        self._index[account] -= weight
        self._held[account] += weight

    def retire(self, submitter: str) -> None:
        """The submitter wants or fits nothing more."""
        self._gone.add(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """By preemption no more than an equal part of the pool."""
        return not preempting or self._held[self._account[submitter]] + weight <= self._share + TRIFLE


class NiceLast:
    """Nice users after everybody else: they take what nobody else wants or fits, and nothing by better priority.

    Args:
        first: the order of everybody else.
        after: the order among nice users.
    """

    def __init__(self, first: SubmitterTurns, after: SubmitterTurns) -> None:
        self._first = first
        self._after = after

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and the slot weight it may take in it."""
        return self._first.next() or self._after.next()

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """The submitter whose turn it is has taken so much."""
        self._turns_of(submitter).charge(submitter, weight, holder)

    def retire(self, submitter: str) -> None:
        """The submitter wants or fits nothing more."""
        self._turns_of(submitter).retire(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """As the order it is in says; nice users take nothing from others."""
        if nice(submitter):
            return not preempting
        return self._first.allows(submitter, weight, preempting=preempting, holder=holder)

    def _turns_of(self, submitter: str) -> SubmitterTurns:
        return self._after if nice(submitter) else self._first


class CreditorsFirst:
    """Jobs of pools to which this one owes machine time before everybody else's (EV 4.2), and then all as ever.

    Args:
        creditors: the submitters of such jobs. They ask for no more than they may have first.
        inner: the order of all, these submitters among them.
    """

    def __init__(self, creditors: Iterable[str], inner: SubmitterTurns) -> None:
        self._creditors = dict.fromkeys(creditors)
        self._inner = inner

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and the slot weight it may take in it."""
        first = next(iter(self._creditors), None)
        return (first, ALL) if first is not None else self._inner.next()

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """The submitter whose turn it is has taken so much."""
        self._inner.charge(submitter, weight, holder)

    def retire(self, submitter: str) -> None:
        """The submitter wants or fits nothing more."""
        if submitter in self._creditors:
            del self._creditors[submitter]
        self._inner.retire(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """As the inner order; a machine that runs a job is not taken from it for a debt."""
        if preempting and submitter in self._creditors:
            return False
        return self._inner.allows(submitter, weight, preempting=preempting, holder=holder)


@dataclass(slots=True)
class Purse:
    """The slot weight that a group may still take in a cycle.

    Attributes:
        name: the group's.
        left: slot weight.
        exact: it is never overdrawn. Otherwise the last job that it pays a part of may overdraw it: slots do not come
            in fractions, and parts of several groups that are too small for a job would leave a machine idle.
    """

    name: str
    left: float
    exact: bool = True

    def allows(self, weight: float) -> bool:
        """Whether one more job of that weight may be taken."""
        return self.left + TRIFLE >= weight if self.exact else self.left > TRIFLE


class WithinQuotas:
    """Turns of others, kept within what their groups may take.

    A slot that goes from one to another of the same group costs that group nothing, and none above it: whose group may
    take nothing more has a turn behind all others, for such exchanges.

    Args:
        inner: the order among submitters.
        purses: for each submitter, and each that holds something, those that pay: its group's, and of the groups above.

    Attributes:
        bound: submitters that were stopped, and the group whose quota stopped them.
    """

    def __init__(self, inner: SubmitterTurns, purses: Mapping[str, tuple[Purse, ...]]) -> None:
        self._inner = inner
        self._purses = purses
        self._exchanging: deque[str] = deque()
        self.bound: dict[str, str] = {}

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and the slot weight it may take in it."""
        while (turn := self._inner.next()) is not None:
            submitter, weight = turn
            purses = self._purses.get(submitter, ())
            empty = next((purse for purse in purses if purse.left <= TRIFLE), None)
            if empty is None:
                return submitter, min([weight, *(purse.left for purse in purses)])
            self.bound[submitter] = empty.name
            self._inner.retire(submitter)
            self._exchanging.append(submitter)
        if not self._exchanging:
            return None
        self._exchanging.rotate(-1)
        return self._exchanging[-1], 1.0

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """The submitter whose turn it is has taken so much."""
        for purse in self._paying(submitter, holder):
            purse.left -= weight
        self._inner.charge(submitter, weight, holder)

    def retire(self, submitter: str) -> None:
        """The submitter wants or fits nothing more."""
        if submitter in self._exchanging:
            self._exchanging.remove(submitter)
        self._inner.retire(submitter)

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """Only what all of its purses can pay that its present holder's do not."""
        paying = self._paying(submitter, holder) if weight else ()
        short = next((purse for purse in paying if not purse.allows(weight)), None)
        if short is not None:
            self.bound[submitter] = short.name
            return False
        return self._inner.allows(submitter, weight, preempting=preempting, holder=holder)

    def _paying(self, submitter: str, holder: str) -> list[Purse]:
        """The purses that a slot costs, which a holder gives up where there is one."""
        gets = self._purses.get(holder, ()) if holder else ()
        return [purse for purse in self._purses.get(submitter, ()) if all(purse is not other for other in gets)]
