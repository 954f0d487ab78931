"""When the distance of another pool is measured: often while it changes, seldom while it stays."""

from __future__ import annotations

from dataclasses import dataclass

#: Seconds from one measurement to the next: after a change, and at the most.
SHORTEST, LONGEST = 300.0, 3600.0
#: A distance stays while it differs from the one that counts by no more than this part of it, or so many seconds.
PART, SECONDS = 0.2, 0.002


@dataclass(slots=True)
class Distance:
    """One pool's.

    Attributes:
        round_trip: the one that counts, seconds; None before it is measured.
        pause: seconds until it is measured again.
    """

    round_trip: float | None = None
    pause: float = SHORTEST

    def stays(self, found: float) -> bool:
        """Whether a measurement, in seconds, says the same as the one that counts."""
        before = self.round_trip
        return before is not None and abs(found - before) <= max(PART * before, SECONDS)

    def is_news(self, found: float) -> bool:
        """Whether a measurement counts from now on in the place of the one before."""
        if self.stays(found):
            self.pause = min(2 * self.pause, LONGEST)
            return False
        self.round_trip, self.pause = found, SHORTEST
        return True
