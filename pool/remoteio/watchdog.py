"""Noticing that what a thread does takes long, so that another one takes its place meanwhile.

A look every twentieth of a second while something is done, none while nothing is: what is done pays for it with two
assignments.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds between looks. A request that is still being done at the second look takes long.
LOOK = 0.05
#: Looks at nothing after which it is waited for something.
_IDLE = 20


class Watchdog:
    """The watch over one thread's work.

    Args:
        overtake: called, in the watch's own thread, when a piece of work takes long.
    """

    def __init__(self, overtake: Callable[[], None]) -> None:
        self._overtake = overtake
        self._lock = threading.Lock()
        self._doing: object = None
        self._dormant = False
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._started = False
        #: Pieces of work that take long at the moment.
        self.behind = 0

    def begin(self) -> object:
        """A request begins; returns the argument of `end`."""
        doing = self._doing = object()
        if self._dormant:
            self._wake.set()
        elif not self._started:
            self._started = True
            threading.Thread(target=self._watch, daemon=True).start()
        return doing

    def end(self, doing: object) -> bool:
        """It is done; false when the thread has been overtaken."""
        with self._lock:
            if self._doing is doing:
                self._doing = None
                return True
            self.behind -= 1
            return False

    def close(self) -> None:
        """Nothing more is watched."""
        self._closing.set()
        self._wake.set()

    def _watch(self) -> None:
        before: object = None
        idle = 0
        while not self._closing.is_set():
            doing = self._doing
            idle = 0 if doing is not None else idle + 1
            if doing is not None and doing is before and self._given_up(doing):
                self._overtake()
            before = doing
            if idle < _IDLE:
                self._closing.wait(LOOK)
                continue
            self._wake.clear()
            self._dormant = True
            if self._doing is None and not self._closing.is_set():  # begun before the line above: it was not notified
                self._wake.wait()
            self._dormant = False
            idle = 0

    def _given_up(self, doing: object) -> bool:
        with self._lock:
            if self._doing is not doing:
                return False
            self._doing = None
            self.behind += 1
            return True
