"""The order of submitters within a cycle, and how much each may take.

The cycle calls `next`, matches for that submitter until it has taken the weight it was given, reports every match by
`charge`, and calls `retire` when the submitter wants nothing more or nothing fits. It ends when `next` gives None.
Up-down, fair share with groups and quotas, and the equal turns below are all of this form.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Protocol


class SubmitterTurns(Protocol):
    """The order of submitters. Weights are slot weights (Cpus, unless SlotWeight says otherwise)."""

    def next(self) -> tuple[str, float] | None:
        """The submitter whose turn it is, and how much slot weight it may take before it must ask again; the last
        match of a turn may go beyond that, a job being indivisible. None when the cycle is over.

        A submitter may come again after `retire`, if somebody has taken something since.
        """

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        """It was matched with so much."""

    def retire(self, submitter: str) -> None:
        """It wants nothing more, or nothing that it wants fits or is allowed."""

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        """Whether it may be given one more job of this weight: its hard quota and, where the job would take a slot
        by better priority, its share of the pool.
        """


class EqualTurns:
    """The next job goes to the submitter that has the fewest slots, and between equals to the one whose oldest job has
    waited longest: EV 3.5 with users of equal priority.

    Args:
        held: slot weight that each submitter has already. Those who are not named take no part.
        oldest: when the oldest waiting job of each was submitted.
        total: slot weight of the pool; each may take its equal part of that by preemption.
        quantum: slot weight by which one may get ahead of another; more than 1 makes a large cycle quicker.
    """

    def __init__(
        self,
        held: Mapping[str, float],
        oldest: Mapping[str, float] | None = None,
        total: float = math.inf,
        quantum: float = 1.0,
    ) -> None:
        self._quantum = quantum
        self._held = dict(held)
        self._oldest = oldest or {}
        self._share = total / max(1, len(held))
        self._waiting = [self._entry(name) for name in held]
        heapq.heapify(self._waiting)
        self._present: str | None = None

    def _entry(self, name: str) -> tuple[float, float, str]:
        return (self._held[name], self._oldest.get(name, 0.0), name)

    def next(self) -> tuple[str, float] | None:
        if self._present is not None:
            heapq.heappush(self._waiting, self._entry(self._present))
            self._present = None
        if not self._waiting:
            return None
        held, _, name = heapq.heappop(self._waiting)
        self._present = name
        return name, max(self._quantum, self._waiting[0][0] - held) if self._waiting else math.inf

    def charge(self, submitter: str, weight: float, holder: str = "") -> None:
        self._held[submitter] = self._held.get(submitter, 0.0) + weight

    def retire(self, submitter: str) -> None:
        if self._present == submitter:
            self._present = None

    def allows(self, submitter: str, weight: float, *, preempting: bool, holder: str = "") -> bool:
        return not preempting or self._held.get(submitter, 0.0) + weight <= self._share
