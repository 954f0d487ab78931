"""The load that the pool's own jobs cause, told apart from the owner's (A5; VS 7.4 left it open).

The kernel's load average is the number of runnable and uninterruptible tasks, damped over a minute. The same is done
here for the tasks of the jobs' process trees alone, with the same damping; what remains of the whole is the owner's.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterable

MINUTE = 60.0
_WAITING = (b"R", b"D")


class JobLoad:
    """An exponentially damped count of runnable tasks."""

    def __init__(self) -> None:
        self.value = 0.0
        self._last: float | None = None

    def sample(self, runnable: int, now: float) -> float:
        """Take in a count at a (monotonic) time; returns the one-minute load."""
        if self._last is not None:
            weight = math.exp(-max(0.0, now - self._last) / MINUTE)
            self.value = self.value * weight + runnable * (1.0 - weight)
        self._last = now
        return self.value


def runnable_in(roots: Iterable[int]) -> int:
    """Runnable and uninterruptible threads in the process trees below the given processes."""
    count = 0
    waiting = list(roots)
    seen: set[int] = set()
    while waiting:
        process = waiting.pop()
        if process in seen:
            continue
        seen.add(process)
        try:
            tasks = os.listdir(f"/proc/{process}/task")
        except OSError:
            continue
        for task in tasks:
            with contextlib.suppress(OSError):
                with open(f"/proc/{process}/task/{task}/stat", "rb") as handle:
                    state = handle.read(512).rpartition(b")")[2].split()[0]
                count += state in _WAITING
                with open(f"/proc/{process}/task/{task}/children", "rb") as handle:
                    waiting += [int(number) for number in handle.read().split()]
    return count
