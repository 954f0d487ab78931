"""An event loop whose clock jumps: when nothing is ready, it is at once the time of the next timer.

    result = run_virtual(scenario())          # an hour of the pool's life in the time the work in it takes

The same program takes the same steps each time: there is no real clock, no real input or output and no thread in it
(work for an executor runs at once, in its place). When nothing is ready and no timer is set, nothing can ever happen
again: that is a `Deadlock` and says which tasks wait. A loop that takes very many steps without its clock moving is a
`Livelock`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context, copy_context
from heapq import heapify, heappop, heappush
from typing import Any, TypeVar

from pool.outside import OutsideWorld

T = TypeVar("T")

START_OF_TIME = 1_700_000_000.0  # wall time at loop time 0; any would do, as long as it is always the same
MOST_STEPS = 200_000
#: Timers that are no further apart than this ring in one turn, seconds.
RESOLUTION = 1e-9
#: So many objects are made before garbage is looked for among them.
YOUNG = 50_000
#: So many cancelled timers may always lie in the heap.
FEW_TIMERS = 100


class Deadlock(RuntimeError):
    """Nothing can happen any more, but somebody waits."""


class Livelock(RuntimeError):
    """Something happens all the time, and no time passes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above. `steps` counts the turns it has taken; `watch` is called whenever all that happens at one time has
    happened, before the clock moves: what it raises ends the run.

    It has a queue and a heap of timers of its own, since asyncio's are written for a loop that waits for input: timers
    of one time run in the order in which they were set.
    """

    #: Asked for each future and each handle. Nothing is slow here, so there is nothing to debug in asyncio's way.
    get_debug = staticmethod(bool)
    _closed: bool
    _stopping: bool
    _ready: deque[asyncio.Handle]
    _check_closed: Callable[[], None]

    def __init__(self, start: float = 0.0) -> None:
        self.steps = 0
        self.watch: Callable[[], None] | None = None
        self._now = start
        self._since_moved = 0
        self._timers: list[tuple[float, int, _Timer]] = []
        self._set = 0  # timers so far
        self._cancelled = 0  # of those in the heap
        self._no_input = _NoInput()
        super().__init__(self._no_input)
        self._no_input.sealed = True

    def time(self) -> float:
        return self._now

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:
            self._check_closed()
        handle = _Soon(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:
            self._check_closed()
        timer = _Timer(when, callback, args, self, context)
        self._set += 1
        heappush(self._timers, (when, self._set, timer))
        return timer

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Runs it here and now, so that there is one order of things."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        self._no_input.sealed = False
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Take turns until the loop is stopped. A turn is as asyncio's: all that was ready when it began."""
        ready, timers = self._ready, self._timers
        next_, put = ready.popleft, ready.append
        while True:
            self.steps += 1
            if ready or self._stopping:
                self._since_moved += 1
                if self._since_moved > MOST_STEPS:
                    self._since_moved = 0
                    raise Livelock(f"{MOST_STEPS} steps at {self._now:g} s; running: {self._waiting()}")
            else:
                self._let_time_pass()
            due = self._now + RESOLUTION
            while timers and timers[0][0] < due:
                timer = heappop(timers)[2]
                if timer._cancelled:
                    self._cancelled -= 1
                else:
                    timer._scheduled = False
                    put(timer)
            for _ in range(len(ready)):
                handle = next_()
                if not handle._cancelled:
                    try:
                        handle._context.run(handle._callback, *handle._args)  # type: ignore[attr-defined]
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException as error:
                        self.call_exception_handler(
                            {"message": f"Exception in callback {handle!r}", "exception": error, "handle": handle}
                        )
            if self._stopping:
                return

    def _let_time_pass(self) -> None:
        """Nothing is ready: it is the time of the next timer."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
            self._cancelled -= 1
        if not timers:
            raise Deadlock(f"at {self._now:g} s nothing is ready and no timer is set; waiting: {self._waiting()}")
        if self.watch is not None and timers[0][0] > self._now:
            self.watch()
            if self._ready:
                return
        self._now = max(self._now, timers[0][0])
        self._since_moved = 0

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Most timers guard a call that is answered: they do not stay until their time comes."""
        if not handle._scheduled:  # type: ignore[attr-defined]
            return
        self._cancelled += 1
        if self._cancelled > FEW_TIMERS and 2 * self._cancelled > len(self._timers):
            self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
            heapify(self._timers)
            self._cancelled = 0

    def _waiting(self) -> str:
        tasks = sorted(str(task.get_coro()).partition(" at ")[0] for task in asyncio.all_tasks(self))
        return "; ".join(tasks[:20]) or "no task"


class _Soon(asyncio.Handle):
    """A handle without what asyncio keeps for its debugging."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], loop: VirtualLoop, context: Context | None
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None


class _Timer(_Soon, asyncio.TimerHandle):
    """The same with a time."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., Any],
        args: tuple[Any, ...],
        loop: VirtualLoop,
        context: Context | None,
    ) -> None:
        self._context = copy_context() if context is None else context
        self._loop = loop
        self._callback = callback
        self._args = args
        self._cancelled = False
        self._repr = self._source_traceback = None
        self._when = when
        self._scheduled = True

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled = True
            self._callback = self._args = None  # type: ignore[assignment]
            self._loop._timer_handle_cancelled(self)


class _NoInput(selectors.BaseSelector):
    """In the place of a selector."""

    def __init__(self) -> None:
        self.sealed = False
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        if self.sealed:
            raise RuntimeError("a virtual loop has no real input and output")
        key = self._keys[fileobj] = selectors.SelectorKey(fileobj, int(fileobj), events, data)
        return key

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def get_key(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys[fileobj]

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys

    def close(self) -> None:
        self._keys.clear()


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine on a `VirtualLoop` of its own.

    Raises:
        Deadlock: it waits for something that cannot happen.
    """
    with _few_collections(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Look for garbage seldom: hours of a pool's life make as many objects as a node does in hours."""
    before = gc.get_threshold()
    gc.set_threshold(max(before[0], YOUNG), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def virtual_outside(seed: int = 0) -> OutsideWorld:
    """A world for roles on the running loop: its wall clock, and chance and secrets that follow from the
    seed."""
    loop = asyncio.get_running_loop()
    chance = random.Random(f"chance {seed}")
    secrets = random.Random(f"secrets {seed}")
    return OutsideWorld(
        wall=lambda: START_OF_TIME + loop.time(),
        chance=chance,
        secret=lambda count: secrets.randbytes(count).hex(),
        cpu=lambda: 0.0,
    )
