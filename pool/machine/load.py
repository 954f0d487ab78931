"""The owner's load, separated from the load of the pool's own jobs (A5; VS 7.4 and 8 left it open).

The kernel's load average is the number of tasks that run or wait for the disk, counted every five seconds and damped
over a minute. Subtracting the pool's part from it is only right in the mean. When a job of sixty processes begins, the
kernel may count them one count before or after us, and the difference looks like an owner with a load of five.

So the owner's tasks are counted directly: at one moment the tasks of the machine that run, less those of the pool's
process trees that run, damped as the kernel damps. Differences may be negative while they are noise, and are cut at
zero only in the end. This count cannot see the owner's tasks that wait for the disk (the kernel has no cheap count of
them), but the kernel's average includes them. So the kernel's average also counts as the owner's where it exceeds the
pool's own average by more than the error that starts and ends of jobs can cause.

A process tree is complete: keepers adopt whatever their job leaves behind. The trees are walked by a bounded
number of reads; of a job too large for that, some threads stand for all, and jobs take turns.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pool.decimals import has_digits_only

MINUTE = 60.0
#: The kernel counts this often, seconds.
TICK = 5.0
#: Files of /proc that one look reads, ten to twenty microseconds each.
READS = 120
_WEIGHT_OF_TICK = 1.0 - math.exp(-TICK / MINUTE)


@dataclass(frozen=True, slots=True)
class Count:
    """Tasks at one moment: those that run, and those that wait for the disk."""

    running: float = 0.0
    waiting: float = 0.0

    @property
    def total(self) -> float:
        return self.running + self.waiting


class Damped:
    """An exponentially damped average over a minute, as the kernel's.

    Args:
        value: what it starts from.
    """

    def __init__(self, value: float = 0.0) -> None:
        self.value = value

    def add_sample(self, sample: float, seconds: float) -> float:
        """Take in a sample that stood for so long; returns the average."""
        keep = math.exp(-max(0.0, seconds) / MINUTE)
        self.value = self.value * keep + sample * (1.0 - keep)
        return self.value


class OwnerLoad:
    """The owner's part of a machine's load. Pure: counts and times are handed in."""

    def __init__(self) -> None:
        self._direct = Damped()
        self._pool = Damped()
        self._error = 0.0
        self._before: tuple[float, Count] | None = None

    @property
    def pool(self) -> float:
        """The load of the pool's own tasks."""
        return self._pool.value

    def sample(self, whole: float, running: float, own: Count, now: float) -> float:
        """The owner's load.

        Args:
            whole: the kernel's one-minute load average.
            running: tasks of the whole machine that run now.
            own: the pool's tasks, counted now.
            now: monotonic time.
        """
        if self._before is None:
            # The time before is not known: the pool's present part counts as its part then.
            self._pool = Damped(min(own.total, whole))
            self._direct = Damped(max(0.0, whole - own.total))
        else:
            then, before = self._before
            seconds = now - then
            self._direct.add_sample(running - own.running, seconds)
            self._pool.add_sample(own.total, seconds)
            self._error *= math.exp(-max(0.0, seconds) / MINUTE)
            self._error += abs(own.total - before.total) * _WEIGHT_OF_TICK
        self._before = (now, own)
        direct = max(0.0, self._direct.value)
        beyond = whole - self._pool.value - direct - self._error
        return min(whole, direct + max(0.0, beyond))


class Loads:
    """The load of each of several process trees, damped as the kernel's. Pure: counts and times are handed in."""

    def __init__(self) -> None:
        self._loads: dict[int, Damped] = {}
        self._before: float | None = None

    def sample(self, counts: Mapping[int, Count], now: float) -> dict[int, float]:
        """Take in the tasks of each tree, by its root, at a (monotonic) time; returns their loads."""
        seconds = TICK if self._before is None else now - self._before
        self._before = now
        self._loads = {root: self._loads.get(root) or Damped() for root in counts}
        return {root: self._loads[root].add_sample(count.total, seconds) for root, count in counts.items()}


class ProcessTrees:
    """Counts the tasks in process trees, within a bounded number of reads."""

    def __init__(self, proc: str = "/proc", reads: int = READS) -> None:
        self._proc = proc
        self._reads = reads
        self._left = 0
        self._known: dict[int, Count] = {}

    @property
    def by_root(self) -> dict[int, Count]:
        """The count of each tree at the last look."""
        return dict(self._known)

    def count(self, roots: Iterable[int]) -> Count:
        """Tasks of the trees below these processes; a root that lies in another's tree counts for itself alone."""
        wanted = dict.fromkeys(roots)
        self._known = {root: count for root, count in self._known.items() if root in wanted}
        # Those counted longest ago (or never) come first; a dict keeps the order in which they were.
        turns = [root for root in wanted if root not in self._known] + list(self._known)
        self._left = self._reads
        others = set(wanted)
        for root in turns:
            if self._left <= 0:
                break
            self._known.pop(root, None)
            self._known[root] = self._tree(root, others)
        return Count(
            sum(count.running for count in self._known.values()), sum(count.waiting for count in self._known.values())
        )

    def _tree(self, root: int, others: set[int]) -> Count:
        running = waiting = 0.0
        seen: set[int] = set()
        to_see = [root]
        while to_see:
            if seen and self._left <= 0:
                # A tree that is known but not seen counts as it did before.
                scale = 1 + len(to_see) / len(seen)
                return Count(running * scale, waiting * scale)
            process = to_see.pop()
            seen.add(process)
            tasks = self._tasks(process)
            looked = 0
            states = {b"R": 0, b"D": 0}
            for task in tasks:
                if looked and self._left <= 0:
                    break
                looked += 1
                state, children = self._task(process, task)
                if state in states:
                    states[state] += 1
                to_see += [child for child in children if child not in seen and child not in others]
            if looked:
                running += states[b"R"] * len(tasks) / looked
                waiting += states[b"D"] * len(tasks) / looked
        return Count(running, waiting)

    def _tasks(self, process: int) -> list[str]:
        try:
            return os.listdir(f"{self._proc}/{process}/task")
        except OSError:
            return []

    def _task(self, process: int, task: str) -> tuple[bytes, list[int]]:
        """A task's state, and the processes it started."""
        self._left -= 2
        stat = _contents(f"{self._proc}/{process}/task/{task}/stat")
        children = _contents(f"{self._proc}/{process}/task/{task}/children")
        return stat.rpartition(b")")[2][1:2], [int(number) for number in children.split()]


def running_tasks(loadavg: str = "/proc/loadavg") -> float:
    """Tasks of the whole machine that run now."""
    words = _contents(loadavg).split()
    running = words[3].partition(b"/")[0] if len(words) > 3 else b""
    return float(running) if has_digits_only(running.decode("ascii", "replace")) else 0.0


def _contents(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
