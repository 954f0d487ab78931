"""Pipes to other machines: every byte once and in order, whatever becomes of the connection; ends as within one."""

from __future__ import annotations

import asyncio
import hashlib
import os
from pathlib import Path

import pytest

from pool.pipes.positions import PipePositions, ReceiverPosition, SenderPosition
from pool.pipes.protocol import ROOM, WINDOW, StreamLost
from pool.pipes.receiver import Receiver
from tests.pipes.support import DATA, START, crossing, read, written


async def test_all_bytes_come_and_then_the_end_of_file() -> None:
    async with crossing() as made:
        reading = asyncio.create_task(read(made))
        await written(made, DATA)
        made.done_writing()
        assert await reading == DATA
        await asyncio.wait_for(made.sender, 20)


async def test_a_connection_that_breaks_loses_and_doubles_nothing() -> None:
    async with crossing(0.001) as made:
        reading = asyncio.create_task(read(made))
        for begin in range(0, len(DATA), 500_000):
            await written(made, DATA[begin : begin + 500_000])
            made.network.cut("here", "there")
            made.network.restore_links()
        made.done_writing()
        assert hashlib.sha256(await reading).digest() == hashlib.sha256(DATA).digest()
        await asyncio.wait_for(made.sender, 20)
        assert made.joined > 1


async def test_who_writes_to_nobody_is_told_so() -> None:
    async with crossing() as made:
        await written(made, b"x" * 10)
        assert await read(made, 10) == b"x" * 10
        made.done_reading()
        with pytest.raises(BrokenPipeError):
            await written(made, b"y" * 100_000_000)
        await asyncio.wait_for(made.sender, 20)


async def test_a_part_that_is_over_tells_those_who_come_later() -> None:
    """The reader's job has ended while its writer was out of reach."""
    async with crossing(0.001) as made:
        made.network.cut("here", "there")
        await made.receiver.close()
        made.side.streams.forget(START)
        made.network.restore_links()
        await asyncio.wait_for(made.sender, 20)


async def test_a_reader_that_waits_holds_its_writer_up_and_a_delay_does_not() -> None:
    """Data on its way is bounded, and far more than one buffer: before anything has been read."""
    async with crossing() as made:
        os.set_blocking(made.write, False)
        sent, block = 0, bytes(ROOM)
        while sent < WINDOW:
            try:
                sent += os.write(made.write, block)
            except BlockingIOError:
                await asyncio.sleep(0)
        for _ in range(200):  # to a standstill
            try:
                sent += os.write(made.write, block)
            except BlockingIOError:
                await asyncio.sleep(0.001)
        assert WINDOW <= sent <= WINDOW + 4 * ROOM
        made.done_writing()
        assert len(await read(made)) == sent


async def test_all_that_an_outlet_had_kept_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    """As much as is on its way at most, none of which had been used."""
    kept = [bytes([number % 251]) * ROOM for number in range(WINDOW // ROOM + 1)]
    PipePositions({0: SenderPosition(len(kept) * ROOM, kept)}).save(tmp_path)
    async with crossing(out=PipePositions.load(tmp_path).out[0], into=ReceiverPosition()) as made:
        made.receiver.resume()
        made.done_writing()
        assert hashlib.sha256(await read(made)).digest() == hashlib.sha256(b"".join(kept)).digest()
        await asyncio.wait_for(made.sender, 20)


async def test_a_machine_that_has_forgotten_the_stream_breaks_it() -> None:
    async with crossing(0.001) as made:
        await written(made, b"x")
        assert await read(made, 1) == b"x"
        await made.lost()
        made.network.cut("here", "there")
        made.network.restore_links()
        with pytest.raises(StreamLost):
            await asyncio.wait_for(made.sender, 20)


async def test_a_machine_that_stays_away_is_given_up() -> None:
    async with crossing(0.001, patience=0.3) as made:
        await written(made, b"x")
        assert await read(made, 1) == b"x"
        made.network.cut("here", "there")
        with pytest.raises(StreamLost):
            await asyncio.wait_for(made.sender, 20)


async def test_what_all_came_before_the_job_was_put_back_is_written_when_it_is() -> None:
    """Nothing comes after it that would have it written."""
    reading, writing = os.pipe2(os.O_NONBLOCK)
    receiver = Receiver(writing, ReceiverPosition())
    await asyncio.sleep(0)  # its writer waits
    receiver._waiting.append(DATA[:1000])
    receiver._ended = True
    receiver._work.set()
    receiver.resume()
    async with asyncio.timeout(60):
        await receiver._writing
    assert os.read(reading, 2000) == DATA[:1000]
    os.close(reading)
