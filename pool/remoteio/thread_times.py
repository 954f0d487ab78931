"""Processor time of threads that work for one job, read while they run: from the kernel, at no cost to their work."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class ThreadTimes:
    """The threads of one job."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[int] = set()
        self._ended = 0.0
        self._reported = 0.0

    def start(self, target: Callable[..., None], *args: Any) -> None:
        """Start a thread whose time counts."""
        threading.Thread(target=self._run, args=(target, args), daemon=True).start()

    def _run(self, target: Callable[..., None], args: tuple[Any, ...]) -> None:
        thread = threading.get_native_id()
        with self._lock:
            self._running.add(thread)
        try:
            target(*args)
        finally:
            with self._lock:
                self._running.discard(thread)
                self._ended += seconds_of(thread)

    def since_report(self) -> float:
        """Seconds that all of them used since this was asked last."""
        with self._lock:
            used = self._ended + sum(map(seconds_of, self._running))
            fresh, self._reported = used - self._reported, used
        return max(0.0, fresh)


def seconds_of(thread: int) -> float:
    """Processor seconds of a thread of this process; 0 where the kernel does not say."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat", "rb") as file:
            return int(file.read().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0
