"""Moments: a thousand tasks that each have a short piece of work do it in slices, and the loop comes round between."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from pool.roles.cooperative import FREE, WorkTurns
from tests.roles.test_cooperative import beside

PIECES = 200


async def test_pieces_are_done_in_order_and_only_a_few_in_one_turn_of_the_loop() -> None:
    turns, done = WorkTurns(), list[tuple[int, int]]()

    async def piece(number: int, rounds: list[int]) -> None:
        await turns.moment("ann", "count")
        done.append((number, len(rounds)))

    async with beside() as rounds:
        await asyncio.gather(*(piece(number, rounds) for number in range(PIECES)))
    assert [number for number, _ in done] == list(range(PIECES))
    in_one_turn = Counter(round for _, round in done)
    assert max(in_one_turn.values()) <= FREE
    assert len(in_one_turn) > PIECES - FREE, "those who wait have a turn of the loop each"


async def test_a_few_at_a_time_do_not_wait() -> None:
    turns = WorkTurns()
    for _ in range(3):
        for _ in range(FREE):
            moment = turns.moment("ann", "count")
            with pytest.raises(StopIteration):
                moment.send(None)  # its first step is its end
        one_more = turns.moment("ben", "count")
        assert one_more.send(None) is not None, "it waits for something"
        one_more.close()
        for _ in range(4):  # a slice for nobody, and its rest
            await asyncio.sleep(0)


async def test_nobody_goes_before_long_work_that_has_its_slice() -> None:
    turns = WorkTurns()
    async with turns.work("ann", "list"):
        moment = asyncio.create_task(turns.moment("ben", "count"))
        await asyncio.sleep(0)
        assert not moment.done()
    async with asyncio.timeout(30):
        await moment


async def test_another_user_waits_for_one_slice_and_not_for_all() -> None:
    turns, loop = WorkTurns(), asyncio.get_running_loop()
    done: list[str] = []
    first = asyncio.Event()

    async def piece(who: str) -> None:
        await turns.moment(who, "count")
        first.set()
        began = loop.time()
        while loop.time() < began + 0.002:
            pass
        done.append(who)

    tasks = [asyncio.create_task(piece("ann")) for _ in range(PIECES)]
    await first.wait()
    await piece("ben")
    assert done.index("ben") < PIECES / 4
    await asyncio.gather(*tasks)
    assert done.count("ann") == PIECES


async def test_long_work_and_moments_take_turns() -> None:
    turns, loop = WorkTurns(), asyncio.get_running_loop()
    order: list[str] = []

    async def long() -> None:
        async with turns.work("ben", "list") as turn:
            while order.count("ann") < PIECES:
                if turn.is_over:
                    order.append("ben")
                    await turn.pause()

    async def piece() -> None:
        await turns.moment("ann", "count")
        order.append("ann")

    async with asyncio.timeout(30):
        working = loop.create_task(long())
        await asyncio.gather(*(piece() for _ in range(PIECES)))
        await working
    assert order.count("ann") == PIECES
    assert "ben" in order


async def test_a_task_that_is_cancelled_while_it_waits_holds_nobody_up() -> None:
    turns, done = WorkTurns(), list[int]()

    async def piece(number: int) -> None:
        await turns.moment("ann", "count")
        done.append(number)

    tasks = [asyncio.create_task(piece(number)) for number in range(-FREE, 6)]
    await asyncio.sleep(0)
    for number in (0, 2, 5):
        tasks[FREE + number].cancel()
    async with asyncio.timeout(30):
        await asyncio.gather(*tasks, return_exceptions=True)
        await piece(6)
    assert done == [*range(-FREE, 0), 1, 3, 4, 6]
    async with asyncio.timeout(30), turns.work("ben", "list"):
        pass


async def test_a_slice_in_which_other_processes_had_the_processor_is_followed_by_no_rest() -> None:
    loop = asyncio.get_running_loop()
    turns = WorkTurns(lambda: 0.0)  # of this thread's processor time nothing passes
    async with turns.work("ann", "list"):
        began = loop.time()
        while loop.time() < began + 0.2:
            pass
    began = loop.time()
    async with turns.work("ann", "list"):
        assert loop.time() < began + 0.2  # with a rest it would be twice as much
