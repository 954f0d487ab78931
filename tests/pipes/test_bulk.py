"""Streams between parts that carry much go on in lanes, through real sockets: the same bytes, the same ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pool.pipes import bulk
from pool.pipes.protocol import ROOM
from tests.pipes.support import DATA, START, Crossing, crossing, read, written


@pytest.fixture
async def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crossing]:
    """A crossing that gets a lane with its second item."""
    monkeypatch.setattr(bulk, "WORTH", 1)
    async with crossing(relay=tmp_path) as made:
        yield made


async def branched(made: Crossing, start: int) -> int:
    """Write bytes of the data one by one from `start` until there is a lane, which the next goes by; where that is."""
    made.branched.clear()
    async with asyncio.timeout(20):
        while not made.branched.is_set():
            await written(made, DATA[start : start + 1])
            start += 1
    return start


async def test_bytes_and_the_end_come_by_the_lane(made: Crossing) -> None:
    reading = asyncio.create_task(read(made))
    await written(made, DATA[await branched(made, 0) :])
    made.done_writing()
    assert await reading == DATA
    await asyncio.wait_for(made.sender, 20)
    assert (made.joined, made.lanes) == (1, 1)


async def test_lanes_that_break_lose_and_double_nothing(made: Crossing) -> None:
    reading = asyncio.create_task(read(made))
    place = 0
    while place < len(DATA):
        place = await branched(made, place)
        await written(made, DATA[place : place + 700_000])
        place += 700_000
        made.sever()
    made.done_writing()
    assert await reading == DATA
    await asyncio.wait_for(made.sender, 20)
    assert made.lanes > 1


async def test_who_writes_to_nobody_by_a_lane_is_told_so(made: Crossing) -> None:
    await branched(made, 0)
    made.done_reading()
    with pytest.raises(BrokenPipeError):
        await written(made, b"y" * 100_000_000)
    await asyncio.wait_for(made.sender, 20)


async def test_a_reader_that_waits_holds_up_a_lane(made: Crossing) -> None:
    """As a stream: at most a window is on its way, and all of it comes."""
    before = await branched(made, 0)
    sent = 80 * ROOM
    writing = asyncio.create_task(written(made, bytes(sent)))
    assert len(await read(made, before + ROOM)) == before + ROOM
    assert not writing.done()
    assert len(await read(made, sent - ROOM)) == sent - ROOM
    await writing


async def test_a_part_that_is_over_ends_the_lane_to_it(made: Crossing) -> None:
    await branched(made, 0)
    await made.receiver.close()
    made.side.streams.forget(START)
    await asyncio.wait_for(made.sender, 20)
