"""The collection of garbage of a node: short steps, and everything when there is nothing else to do."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from pool.roles import garbage
from pool.roles.garbage import SPARE, GarbageCollection, LastingGrowth, at_rest, everything_is_due

MB = 1_000_000


@pytest.mark.parametrize(
    ("memory", "before", "busy", "due"),
    [
        (100 * MB, 100 * MB, 0.0, False),  # nothing has grown
        (200 * MB, 100 * MB, 0.0, True),  # grown, and idle
        (200 * MB, 100 * MB, 0.5, False),  # grown, and at work
        (700 * MB, 100 * MB, 1.0, False),  # thousands of jobs begin
        (900 * MB, 100 * MB, 1.0, True),  # so much that work has to wait
        (SPARE, 0, 0.0, False),  # a small process
    ],
)
def test_when_everything_is_collected(memory: int, before: int, busy: float, due: bool) -> None:
    assert everything_is_due(memory, before, busy) is due


class Knot:
    """An object in a circle of references."""

    def __init__(self) -> None:
        self.own: Any = self


def test_a_full_collection_does_not_look_at_the_survivors_of_the_last() -> None:
    async def main() -> None:
        before = gc.get_threshold()
        collection = GarbageCollection(cpu=lambda: 0.0)
        try:
            survivor = [[] for _ in range(1000)]  # type: list[list[int]]
            gc.collect()
            frozen = gc.get_freeze_count()
            assert frozen > 1000
            assert len(gc.get_objects()) < 1000  # what Python would look at now
            del survivor
            assert gc.get_freeze_count() <= frozen - 1000  # frozen objects are freed by their reference counts
        finally:
            collection.close()
        assert gc.get_freeze_count() == 0
        assert gc.get_threshold() == before

    asyncio.run(main())


@pytest.mark.parametrize("at_rest_before", [0, 150 * MB])
def test_frozen_circles_are_freed_when_the_process_is_idle(
    monkeypatch: pytest.MonkeyPatch, at_rest_before: int
) -> None:
    """Also where objects that stay were made before the loop ran: they are in its memory from the start."""
    monkeypatch.setattr(garbage, "CHECK", 0.01)
    rest = iter([0, at_rest_before])
    with at_rest(garbage.LARGE, memory=lambda: next(rest)):
        pass
    gc.unfreeze()

    async def main() -> None:
        freed = asyncio.Event()
        memory = iter([100 * MB])
        collection = GarbageCollection(cpu=lambda: 0.0, memory=lambda: next(memory, 200 * MB))
        try:
            gc.disable()  # until all are frozen
            knots = [Knot() for _ in range(1000)]
            weakref.finalize(knots[0], freed.set)
            gc.freeze()
            del knots
            gc.enable()
            async with asyncio.timeout(20):
                await freed.wait()
        finally:
            gc.enable()
            collection.close()

    asyncio.run(main())


def test_memory_that_is_known_to_stay_is_no_reason_to_collect_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "CHECK", 0.01)

    async def main() -> None:
        size, looked = 100 * MB, asyncio.Event()
        full: list[int] = []

        def memory() -> int:
            looked.set()
            return size

        def collected(phase: str, info: dict[str, Any]) -> None:
            if info["generation"] == 2 and phase == "start":
                full.append(size)

        collection = GarbageCollection(cpu=lambda: 0.0, memory=memory)
        gc.callbacks.append(collected)
        try:
            with at_rest(garbage.LARGE, memory):
                assert not gc.isenabled()
                size = 900 * MB
            assert gc.isenabled()
            for then, due in ((900 * MB, []), (200 * MB, []), (600 * MB, [600 * MB])):
                size = then
                for _ in range(3):
                    looked.clear()
                    async with asyncio.timeout(20):
                        await looked.wait()
                assert full[:1] == due
        finally:
            gc.callbacks.remove(collected)
            collection.close()

    asyncio.run(main())


@pytest.mark.parametrize(("begun", "due"), [(1, 0), (2, 0), (0, 300 * MB)])
def test_what_work_on_many_objects_adds_to_them_is_no_growth(begun: int, due: int) -> None:
    """However often it is said that it begins."""
    rest, size = garbage._rest, 200 * MB
    rest.bytes = 0
    growth = LastingGrowth(lambda: size)
    for _ in range(begun):
        growth.begin()
        size += 150 * MB // begun
    size = 500 * MB
    growth.end()
    assert rest.bytes == 300 * MB - due
    size = 100 * MB
    growth.begin()
    growth.end()
    assert rest.bytes == 300 * MB - due
    rest.bytes = 0
