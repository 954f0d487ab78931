"""Which bytes of a file have been saved already: pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class Extents:
    """A set of byte ranges, kept merged."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of a range that are not in the set, in order."""
        found = []
        place = bisect_right(self._ends, start)
        while start < end and place < len(self._starts) and self._starts[place] < end:
            if start < self._starts[place]:
                found.append((start, self._starts[place]))
            start = max(start, self._ends[place])
            place += 1
        if start < end:
            found.append((start, end))
        return found

    def add(self, start: int, end: int) -> None:
        """Put a range into the set."""
        if start >= end:
            return
        first = bisect_left(self._ends, start)
        last = bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]
