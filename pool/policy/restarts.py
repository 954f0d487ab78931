"""How often a failed role is started again: back-off, and a limit per hour (EV 2.4, TS 7).

Pure: the caller says when a failure happened, and the answer is how long to wait, or to give up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

HOUR = 3600.0
FIRST_DELAY = 0.5
LONGEST_DELAY = 60.0
#: A role that ran this long before it failed starts again with the shortest delay.
WELL = 300.0


@dataclass(slots=True)
class Restarts:
    """The failures of one role within the last hour.

    Args:
        limit: how many restarts an hour are allowed; the next failure after that gives the role up.
    """

    limit: int
    _failures: deque[float] = field(default_factory=deque)
    _delay: float = 0.0

    def failed(self, now: float, started: float) -> float | None:
        """Seconds to wait before the next start, or None to give up.

        Args:
            now: monotonic time of the failure.
            started: monotonic time at which the role had been started.
        """
        while self._failures and self._failures[0] <= now - HOUR:
            self._failures.popleft()
        self._failures.append(now)
        if len(self._failures) > self.limit:
            return None
        well = now - started >= WELL
        self._delay = FIRST_DELAY if well or not self._delay else min(self._delay * 2, LONGEST_DELAY)
        return self._delay
