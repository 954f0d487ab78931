"""Sharing a bounded bandwidth fairly among those who want some of it now (start-time fair queueing): pure.

Each has a virtual clock that advances by the bytes it has sent; the one furthest behind goes first. A sender that was
idle begins at the present of the others, so that none saves up, and a job that sends little hardly waits.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class FairBandwidth:
    """One bounded bandwidth.

    Attributes:
        rate: bytes in a second; 0 bounds nothing.
        burst: seconds' worth of bytes that may go at once after a pause.
    """

    rate: float
    burst: float = 0.1
    _free_at: float = 0.0
    _present: float = 0.0
    _clocks: dict[Hashable, float] = field(default_factory=dict)
    _waiting: list[tuple[float, int, Hashable, int]] = field(default_factory=list)
    _number: int = 0

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def request(self, who: Hashable, size: int, now: float) -> int:
        """Somebody wants to send so many bytes; the request's number. `now` is monotonic, in seconds."""
        if not self._waiting and self.rate > 0 and now > self._free_at:  # all was idle: what was before does not count
            self._present = max(self._clocks.values(), default=self._present)
            self._clocks.clear()
        # A sender that asks again at once is not back yet when others go in the same moment: it catches up.
        start = max(self._clocks.get(who, self._present), self._present - self.rate * self.burst)
        self._clocks[who] = start + size
        self._number += 1
        heapq.heappush(self._waiting, (start, self._number, who, size))
        return self._number

    def grant(self, now: float) -> tuple[list[int], float | None]:
        """The requests that may go now, in order, and when to ask again (None: nobody waits).

        Args:
            now: as for `request`.
        """
        given: list[int] = []
        while self._waiting:
            if self.rate > 0:
                self._free_at = max(self._free_at, now - self.burst)
                if self._free_at > now:
                    return given, self._free_at
            start, number, _, size = heapq.heappop(self._waiting)
            self._present = max(self._present, start)
            if self.rate > 0:
                self._free_at += size / self.rate
            given.append(number)
        past = self._present - self.rate * self.burst
        self._clocks = {who: clock for who, clock in self._clocks.items() if clock > past}
        return given, None

    def withdraw(self, number: int) -> None:
        """Nobody waits for this request any more."""
        self._waiting = [one for one in self._waiting if one[1] != number]
        heapq.heapify(self._waiting)
