"""Which links between machines of a job a third node carries, where neither machine reaches the other.

The asker is a machine of a job that runs, and so is the other one. A job may have as many links as are left for all
others, so one job cannot take them all (dynamic thresholds; Choudhury and Hahne 1998).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

#: A job and its two machines.
Pair = tuple[Hashable, frozenset[str]]
#: Links that one node carries at most, and those that it makes at a time.
MOST, MOST_IN_MAKING = 1000, 32
#: Seconds between two links for the same two machines of a job.
PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class LinkAsk:
    """A machine asks for a link.

    Attributes:
        job: the job, and the run of it.
        asker, other: names of nodes.
    """

    job: Hashable
    asker: str
    other: str

    @property
    def pair(self) -> Pair:
        """The same for both machines."""
        return self.job, frozenset((self.asker, self.other))


class CarriedLinks:
    """The links of one node: those that are there, and those in the making. Clocks count seconds from any moment."""

    def __init__(self) -> None:
        self._there: set[Pair] = set()
        self._making: set[Pair] = set()
        #: When a link was asked for within the last `PAUSE`, the latest last.
        self._asked: dict[Pair, float] = {}

    def begin(self, ask: LinkAsk, machines: frozenset[str], now: float) -> str:
        """Take note of a link that is to be made; the reason against it, empty for none.

        Args:
            machines: those of the job's parts that run.
        """
        pair = ask.pair
        while self._asked and (first := next(iter(self._asked.items())))[1] <= now - PAUSE:
            del self._asked[first[0]]
        if ask.asker not in machines or ask.other not in machines or ask.asker == ask.other:
            return "that machine has no part of the job"
        if pair in self._making or pair in self._asked:
            return "the link was asked for a moment ago"
        if _of_job(self._making, ask.job) >= MOST_IN_MAKING - len(self._making):
            return "too many links are being made"
        if pair not in self._there and _of_job(self._all, ask.job) >= MOST - len(self._all):
            return "this node carries as many links for the job as it may"
        self._making.add(pair)
        self._asked[pair] = now
        return ""

    def settle(self, pair: Pair, *, there: bool) -> None:
        """Its making is over.

        Args:
            there: whether there is a link of this pair now.
        """
        self._making.discard(pair)
        self._there.discard(pair)
        if there:
            self._there.add(pair)

    def end(self, pair: Pair) -> None:
        """A link is over."""
        self._there.discard(pair)

    @property
    def _all(self) -> set[Pair]:
        return self._there | self._making


def _of_job(pairs: set[Pair], job: Hashable) -> int:
    return sum(pair[0] == job for pair in pairs)
