"""An event loop whose clock jumps: when nothing is ready, it is at once the time of the next timer.

    result = run_virtual(scenario())          # an hour of the pool's life in the time the work in it takes

The same program takes the same steps each time: there is no real clock, no real input or output and no thread
in it (what is sent to an executor runs at once, in its place). When nothing is ready and no timer is set,
nothing can ever happen again: that is a `Deadlock` and says which tasks wait. A loop that takes very many
steps without its clock moving is a `Livelock`.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from pool.outside import Outside

T = TypeVar("T")

START_OF_TIME = 1_700_000_000.0  # wall time at loop time 0; any would do, as long as it is always the same
MOST_STEPS = 200_000


class Deadlock(RuntimeError):
    """Nothing can happen any more, but somebody waits."""


class Livelock(RuntimeError):
    """Something happens all the time, and no time passes."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """See above. `steps` counts the turns it has taken."""

    def __init__(self, start: float = 0.0) -> None:
        self._clock = _Clock(start, self._waiting)
        super().__init__(self._clock)
        self._clock_resolution = 1e-9
        self._clock.sealed = True

    @property
    def steps(self) -> int:
        return self._clock.steps

    def time(self) -> float:
        return self._clock.now

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
        self._clock.sealed = False
        super().close()

    def _waiting(self) -> str:
        tasks = sorted(str(task.get_coro()).partition(" at ")[0] for task in asyncio.all_tasks(self))
        return "; ".join(tasks[:20]) or "no task"


class _Clock(selectors.BaseSelector):
    """In the place of a selector: waiting for input is letting time pass."""

    def __init__(self, start: float, waiting: Callable[[], str]) -> None:
        self.now = start
        self.steps = 0
        self.sealed = False
        self._waiting = waiting
        self._since_moved = 0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.steps += 1
        if timeout is None:
            raise Deadlock(
                f"at {self.now:g} s nothing is ready and no timer is set; waiting: {self._waiting()}"
            )
        if timeout > 0:
            self.now += timeout
            self._since_moved = 0
        else:
            self._since_moved += 1
            if self._since_moved > MOST_STEPS:
                self._since_moved = 0
                raise Livelock(f"{MOST_STEPS} steps at {self.now:g} s; running: {self._waiting()}")
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
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def virtual_outside(seed: int = 0) -> Outside:
    """A world for roles on the running loop: its wall clock, and chance and secrets that follow from the
    seed."""
    loop = asyncio.get_running_loop()
    chance = random.Random(f"chance {seed}")
    secrets = random.Random(f"secrets {seed}")
    return Outside(
        wall=lambda: START_OF_TIME + loop.time(),
        chance=chance,
        secret=lambda count: secrets.randbytes(count).hex(),
        cpu=lambda: 0.0,
    )
