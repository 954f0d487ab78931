"""When the distance to another pool is measured: often while it changes, rarely while it stays the same."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds between two measurements: after a change, and at most.
SHORTEST, LONGEST = 300.0, 3600.0
#: Two measurements are equal if they differ by no more than this part, or by this many seconds.
PART, SECONDS = 0.2, 0.002


@dataclass(slots=True)
class Distance:
    """The distance to one pool.

    Attributes:
        round_trip: the value in use, seconds; None before the first measurement.
        pause: seconds until the next measurement.
    """

    round_trip: float | None = None
    pause: float = SHORTEST

    def stays(self, found: float) -> bool:
        """Whether a measurement, in seconds, is equal to the value in use."""
        before = self.round_trip
        return before is not None and abs(found - before) <= max(PART * before, SECONDS)

    def is_news(self, found: float) -> bool:
        """Take a measurement; whether it replaces the value in use. Sets `pause`."""
        if self.stays(found):
            self.pause = min(2 * self.pause, LONGEST)
            return False
        self.round_trip, self.pause = found, SHORTEST
        return True
