"""The time of a piece of work is counted wherever it is spent, and nothing of work beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from pool.metering import Meter, add, counted, counted_call, meter

T = TypeVar("T")


class Clock:
    """Processor seconds that only `use` lets pass."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def use(self, seconds: float) -> None:
        self.now += seconds


async def measured(mine: Meter, work: Coroutine[Any, Any, T]) -> T:
    return await mine.measured(work)


async def test_only_the_steps_of_the_measured_work_count() -> None:
    clock = Clock()
    mine, go = Meter(clock), asyncio.Event()

    async def work() -> str:
        clock.use(1.0)
        await go.wait()
        clock.use(2.0)
        return "done"

    running = asyncio.create_task(measured(mine, work()))
    await asyncio.sleep(0)
    clock.use(100.0)  # somebody else's turn
    go.set()
    assert await running == "done"
    assert mine.seconds == 3.0
    assert meter() is None


async def test_an_error_goes_through_and_counts() -> None:
    clock = Clock()
    mine = Meter(clock)

    async def inner() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            clock.use(1.0)
            raise

    running = asyncio.create_task(measured(mine, inner()))
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert mine.seconds == 1.0


async def test_tasks_threads_and_helpers_of_the_work_count_too() -> None:
    clock = Clock()
    mine = Meter(clock)

    async def task() -> None:
        await asyncio.sleep(0)
        clock.use(1.0)

    async def work() -> Callable[[float], None]:
        await asyncio.create_task(counted(task()))
        add(4.0)
        return counted_call(clock.use)

    in_a_thread = await mine.measured(work())
    assert mine.seconds == 5.0
    await asyncio.to_thread(in_a_thread, 2.0)
    assert mine.seconds == 7.0
    add(8.0)
    assert mine.seconds == 7.0, "nobody's meter is on"
