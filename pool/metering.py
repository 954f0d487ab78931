"""Processor time that one piece of work takes, wherever in this process and its helpers it is done (EV 2.8).

The node is one process that works for many jobs in turns, so a job's share is counted turn by turn: `Meter.measured`
drives a coroutine and counts each of its steps. Threads and helper processes that work for it add what they took, by
`Meter.call` and `add`: they find the meter in the context that they were asked in.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")


class Meter:
    """Counts processor seconds.

    Args:
        clock: processor seconds of the thread that asks.
        whole: a meter that counts this one's part of this process, too.

    Attributes:
        seconds: all that was counted.
        inside: what of it was spent in this process, and not by helpers.
    """

    __slots__ = ("_clock", "_whole", "inside", "seconds")

    def __init__(self, clock: Callable[[], float], whole: Meter | None = None) -> None:
        self.seconds = 0.0
        self.inside = 0.0
        self._clock = clock
        self._whole = whole

    def count(self, seconds: float) -> None:
        """So much was spent in this process."""
        self.seconds += seconds
        self.inside += seconds
        if self._whole is not None:
            self._whole.count(seconds)

    async def task(self, work: Coroutine[Any, Any, T]) -> T:
        """`measured`, for what becomes a task of its own."""
        return await self.measured(work)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """Count the work of threads and helpers for this context. Steps of coroutines are not counted."""
        token = _METER.set(self)
        try:
            yield
        finally:
            _METER.reset(token)

    def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function, in whatever thread, and count what it takes."""
        before = self._clock()
        try:
            return function(*args)
        finally:
            self.count(self._clock() - before)

    @types.coroutine
    def measured(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        """Run a coroutine and count each of its steps, but not the time between them."""
        clock, token = self._clock, _METER.set(self)
        step: Callable[[Any], Any] = work.send
        given: Any = None
        try:
            while True:
                before = clock()
                try:
                    waits_for = step(given)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    self.count(clock() - before)
                try:
                    given, step = (yield waits_for), work.send
                except BaseException as error:
                    given, step = error, work.throw
        finally:
            _METER.reset(token)


_METER: ContextVar[Meter | None] = ContextVar("meter", default=None)


def meter() -> Meter | None:
    """The meter of the present context."""
    return _METER.get()


def add(seconds: float) -> None:
    """A helper process took so much for the present context."""
    found = _METER.get()
    if found is not None:
        found.seconds += seconds


def counted(work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
    """A coroutine that will be a task of its own, counted by the meter of the context that it is made in."""
    found = _METER.get()
    return work if found is None else found.task(work)


def counted_call(function: Callable[..., T]) -> Callable[..., T]:
    """A function for another thread, counted by the meter of the present context."""
    found = _METER.get()
    if found is None:
        return function
    return lambda *args: found.call(function, *args)
