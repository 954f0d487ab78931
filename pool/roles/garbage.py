"""Python's collection of garbage, in short steps.

Python's full collection looks at every object of the process at once: 200 ms with the objects of 1,000 running jobs,
seconds with a queue of a million. Meanwhile no request is answered. Here each full collection looks only at what
was made since the one before: its survivors are frozen (`gc.freeze`), and Python does not look at frozen objects
again. They are still freed by their reference counts as usual; only a frozen object in a circle of references
stays. When the memory of the process has grown, everything is collected once, at a moment when the process has
nothing to do. What is known to stay, as the jobs of a large queue, is no such growth: `at_rest`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

CHECK = 5.0
"""Seconds between two checks whether everything is to be collected."""
OFTEN = 2
"""Collections of young objects (7,000 each) between two full ones; Python's default is ten."""
GROWTH, SPARE = 1.25, 50_000_000
"""Everything is collected when memory is so many times as large as after the last time, and so many bytes larger."""
OVERDUE, OVERDUE_SPARE = 4.0, 400_000_000
"""How many times as large, and how many bytes larger, it is when the process is not waited for to have nothing to do.
Roles leave hardly any circles, so this is for what nobody has foreseen: it stops a process with thousands of jobs for
half a second."""
IDLE = 0.02
"""The share of a processor that a process with nothing to do uses."""
LARGE = 20_000
"""From this many objects on nothing is collected while they are made."""


def everything_is_due(memory: int, before: int, busy: float) -> bool:
    """Whether to look at all objects now.

    Args:
        memory: the bytes of the process in memory.
        before: how many they were after everything was collected the last time.
        busy: the share of a processor that the process used since the last check, 0 to 1.
    """
    if memory > OVERDUE * before + OVERDUE_SPARE:
        return True
    return busy < IDLE and memory > GROWTH * before + SPARE


def resident() -> int:
    """The bytes of this process in memory."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


class _Rest:
    """The time in which objects are made that stay: how many make some now, and the memory that they have taken."""

    def __init__(self) -> None:
        self.makers = 0
        self.bytes = 0
        self.before = 0


_rest = _Rest()


@contextlib.contextmanager
def at_rest(count: int, memory: Callable[[], int] = resident) -> Iterator[None]:
    """While so many objects are made that will stay: collect no garbage if they are many, and never look at them again.

    Python would look at each of them again and again, for nothing.
    """
    if count < LARGE:
        yield
        return
    if not _rest.makers:
        _rest.before = memory()
    _rest.makers += 1
    gc.disable()
    try:
        yield
    finally:
        _rest.makers -= 1
        if not _rest.makers:
            _rest.bytes += max(memory() - _rest.before, 0)
            gc.freeze()
            gc.enable()


class LastingGrowth:
    """The memory that work on many objects adds to them while garbage is collected as usual, such as the reasons for
    which a million jobs are held: it stays, too, and is no reason to look at everything.

    Args:
        memory: the bytes of the process in memory.
    """

    def __init__(self, memory: Callable[[], int] = resident) -> None:
        self._memory = memory
        self._before: int | None = None

    def begin(self) -> None:
        """From now on what is added stays. Asked again it changes nothing."""
        if self._before is None:
            self._before = self._memory()

    def end(self) -> None:
        """The work is done; nothing happens where none has begun."""
        if self._before is not None:
            _rest.bytes += max(self._memory() - self._before, 0)
            self._before = None


class GarbageCollection:
    """The collection of garbage of this process while its loop runs, from the moment it is made until `close`.

    Args:
        cpu: the processor time that the thread of the loop has used, in seconds.
        memory: its bytes in memory.
    """

    def __init__(self, cpu: Callable[[], float], memory: Callable[[], int] = resident) -> None:
        self._cpu = cpu
        self._memory = memory
        self._loop = asyncio.get_running_loop()
        self._thresholds = gc.get_threshold()
        gc.set_threshold(*self._thresholds[:2], OFTEN)
        gc.freeze()
        self._before, _rest.bytes = memory(), 0
        self._used, self._checked = cpu(), self._loop.time()
        gc.callbacks.append(self._collected)
        self._timer = self._loop.call_later(CHECK, self._check)

    def close(self) -> None:
        """Leave the collection to Python again."""
        self._timer.cancel()
        gc.callbacks.remove(self._collected)
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            gc.freeze()

    def _check(self) -> None:
        used, now = self._cpu(), self._loop.time()
        busy = (used - self._used) / max(now - self._checked, 0.001)
        memory = self._memory()
        self._before, _rest.bytes = min(self._before + _rest.bytes, memory), 0
        if gc.isenabled() and everything_is_due(memory, self._before, busy):
            gc.unfreeze()
            gc.collect()
            self._before = self._memory()
            used, now = self._cpu(), self._loop.time()
        self._used, self._checked = used, now
        self._timer = self._loop.call_later(CHECK, self._check)
