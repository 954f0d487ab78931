"""When machines come free: the order of the expected ends, and a profile of free machines over time.

Both know kinds and counts, no machines by name: gangs are placed on machines only when they start.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Mapping, Sequence
from operator import lt

from pool.policy.dedicated.flow import ClassMatching, fits_together
from pool.policy.dedicated.model import DedicatedJob, Kind, PartClass

#: So many machines of each kind.
Counts = dict[Kind, int]
#: Steps of a profile at its beginning, at most: ends that are near each other count as the later one of them.
MOST_STEPS = 500


def enough(free: Mapping[Kind, int], parts: Sequence[PartClass]) -> bool:
    """Whether free machines by kind can hold all parts at once."""
    for part in parts:
        missing = part.count
        for kind in part.fits:
            missing -= max(0, free.get(kind, 0))
            if missing <= 0:
                break
        else:
            return False
    if len(parts) == 1:
        return True
    return fits_together(free, [(part.fits, part.count) for part in parts])


def taken_by(free: Mapping[Kind, int], parts: Sequence[PartClass]) -> Counts | None:
    """Which kinds the parts would take of free machines; None if they do not fit."""
    matching = ClassMatching(free)
    if not matching.offer([(part.fits, part.count) for part in parts]):
        return None
    return {
        kind: count - matching.left[kind] for kind, count in free.items() if count > 0 and matching.left[kind] != count
    }


class PlannedHead:
    """The planned start of a head that waits, and what is spare then.

    Attributes:
        time: when it can start, if the expected ends hold; inf when that is not known.
        spare: the machines that nobody uses at that time, the head's own taken out.
        holders: the jobs that end before, the first to end first.
    """

    def __init__(self, head: DedicatedJob, free: Counts, ends: Iterable[tuple[float, str, Counts]]) -> None:
        self.time = math.inf
        self.holders: list[str] = []
        wanted = {kind for part in head.parts for kind in part.fits}
        available = dict(free)
        for end, job, counts in sorted(ends, key=lambda entry: entry[0]):
            for kind, count in counts.items():
                available[kind] = available.get(kind, 0) + count
            if end == math.inf or wanted.isdisjoint(counts):
                continue
            self.holders.append(job)
            if enough(available, head.parts):
                self.time = end
                break
        self.spare = ClassMatching(available)
        self.spare.offer([(part.fits, part.count) for part in head.parts])


class Profile:
    """Free machines by kind over time, from now on, as steps."""

    def __init__(self, now: float, free: Mapping[Kind, int], kinds: Iterable[Kind]) -> None:
        self.times = [now]
        self.kinds = list(dict.fromkeys((*free, *kinds)))
        self.free: dict[Kind, list[int]] = {kind: [free.get(kind, 0)] for kind in self.kinds}

    def release(self, ends: Iterable[tuple[float, Mapping[Kind, int]]]) -> None:
        """Machines that come free at a time and stay free; before anything is taken."""
        known = sorted((entry for entry in ends if entry[0] != math.inf), key=lambda entry: entry[0])
        together = max(1, -(-len(known) // MOST_STEPS))
        for place, (_, counts) in enumerate(known):
            end = known[min(len(known) - 1, place - place % together + together - 1)][0]
            if end > self.times[-1]:
                self.times.append(end)
                for steps in self.free.values():
                    steps.append(steps[-1])
            for kind, count in counts.items():
                self.free[kind][-1] += count

    def fit(
        self, parts: Sequence[PartClass], duration: float, earliest: float = -math.inf
    ) -> tuple[float, Counts] | None:
        """The earliest time at which machines are free for all parts for so long.

        Returns:
            that time and the machines by kind; None if there is none.
        """
        times, count = self.times, len(self.times)
        first = max(0, bisect.bisect_right(times, earliest) - 1)
        if len(parts) == 1 and len(parts[0].fits) == 1:
            kind = parts[0].fits[0]
            steps, needed = self.free.get(kind), parts[0].count
            if steps is None:
                return None
            while first < count:
                if steps[first] < needed:
                    first += 1
                    continue
                start = max(times[first], earliest)
                position, end = first, start + duration
                while position < count and times[position] < end and steps[position] >= needed:
                    position += 1
                if position == count or times[position] >= end:
                    return start, {kind: needed}
                first = position + 1
            return None
        wanted = [kind for kind in self.kinds if any(kind in part.fits for part in parts)]
        columns = [self.free[kind] for kind in wanted]
        while first < count:
            least = [column[first] for column in columns]
            if not enough(dict(zip(wanted, least, strict=True)), parts):
                first += 1
                continue
            start = max(times[first], earliest)
            end, failed = start + duration, -1
            for position in range(first + 1, count):
                if times[position] >= end:
                    break
                lower = [column[position] for column in columns]
                if any(map(lt, lower, least)):
                    least = list(map(min, least, lower))
                    if not enough(dict(zip(wanted, least, strict=True)), parts):
                        failed = position
                        break
            if failed < 0:
                taken = taken_by(dict(zip(wanted, least, strict=True)), parts)
                assert taken is not None
                return start, taken
            # Nothing that begins before the failing step and needs it can fit if that step alone is not enough.
            alone = enough({kind: column[failed] for kind, column in zip(wanted, columns, strict=True)}, parts)
            first = first + 1 if alone else failed + 1
        return None

    def allocate(self, start: float, duration: float, counts: Mapping[Kind, int]) -> None:
        """Machines are used from a time for so long."""
        first = self._cut(start)
        last = self._cut(start + duration) if duration != math.inf else len(self.times)
        for kind, count in counts.items():
            steps = self.free.setdefault(kind, [0] * len(self.times))
            for position in range(first, last):
                steps[position] -= count

    def at(self, time: float) -> Counts:
        """The free machines at a time."""
        position = max(0, bisect.bisect_right(self.times, time) - 1)
        return {kind: steps[position] for kind, steps in self.free.items()}

    def _cut(self, time: float) -> int:
        position = bisect.bisect_left(self.times, time)
        if position == len(self.times) or self.times[position] != time:
            self.times.insert(position, time)
            for steps in self.free.values():
                steps.insert(position, steps[position - 1])
        return position
