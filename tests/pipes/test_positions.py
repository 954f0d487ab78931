"""Checkpoints of both sides of a pipe to another machine, each at its moment: nothing is lost, nothing comes twice."""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import random
import socket
import termios
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pool.images import ImageDamaged
from pool.jobs.activation import Activation
from pool.jobs.pipes.model import Joint, PipelineProcess
from pool.pipes import receiver, remote_pipes, sender
from pool.pipes.positions import FLOWS, PipePositions, ReceiverPosition, SenderPosition
from pool.pipes.protocol import StreamLost
from pool.pipes.receiver import Receiver
from pool.pipes.remote_pipes import RemotePipes
from tests.pipes.support import START, Crossing, crossing

DATA = random.Random(5).randbytes(400_000)


def lies_in(fd: int) -> int:
    """Bytes in a pipe."""
    count = array.array("i", [0])
    fcntl.ioctl(fd, termios.FIONREAD, count)
    return count[0]


class Job:
    """A writer to one end and a reader from the other: a step of each at a time.

    Attributes:
        wrote, got: how much by now. closed: the writer has closed its end, or ended.
    """

    def __init__(self, made: Crossing, chance: random.Random, wrote: int = 0, got: bytes = b"") -> None:
        self.made, self.chance, self.wrote, self.got, self.closed = made, chance, wrote, got, False
        for fd in (made.write, made.read):
            os.set_blocking(fd, False)

    def writes(self) -> None:
        if self.closed:
            return
        if self.wrote == len(DATA):
            self.closed = True
            self.made.done_writing()
            return
        try:
            self.wrote += os.write(self.made.write, DATA[self.wrote : self.wrote + self.chance.randrange(1, 20_000)])
        except BlockingIOError:
            pass

    def reads(self) -> bool:
        """True at the end of file."""
        try:
            piece = os.read(self.made.read, self.chance.randrange(1, 20_000))
        except BlockingIOError:
            return False
        self.got += piece
        return not piece

    async def lives(self, steps: int) -> None:
        for _ in range(steps):
            if self.chance.random() < 0.02:
                self.made.network.cut("here", "there")
                self.made.network.restore_links()
            (self.writes if self.chance.random() < 0.55 else self.reads)()
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)

    async def ends(self) -> None:
        """Until all has been written and read."""
        async with asyncio.timeout(60):
            over = False
            while not over:
                self.writes()
                over = self.reads()
                await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that much goes to and fro."""
    for module in (sender, receiver):
        monkeypatch.setattr(module, "WINDOW", 60_000)
    for module in (sender, remote_pipes):
        monkeypatch.setattr(module, "ROOM", 9_000)
    monkeypatch.setattr(receiver, "REPORT_STEP", 5_000)


@pytest.mark.parametrize("seed", range(25))
async def test_it_goes_on_from_any_moment(seed: int, tmp_path: Path) -> None:
    """The job runs on; the writer stands still at one moment and the reader at another, before or after."""
    chance = random.Random(seed)
    async with crossing(chance.choice([0.0, 0.0005])) as made:
        job = Job(made, chance)
        await job.lives(chance.randrange(300) if seed % 3 else 600)
        await made.out.pause()
        await job.lives(chance.randrange(30))
        out, into, wrote, got, in_pipe = SenderPosition(), ReceiverPosition(), 0, b"", b""

        async def writer_stands_still() -> None:
            nonlocal out, wrote
            out, wrote = made.out.frozen(not job.closed), job.wrote
            if not job.closed:
                assert out.read == job.wrote - lies_in(made.write)

        async def reader_stands_still() -> None:
            nonlocal into, got, in_pipe
            made.receiver.freeze()
            for _ in range(chance.randrange(5)):
                await asyncio.sleep(0)
            into, got, in_pipe = made.receiver.frozen(), job.got, DATA[len(job.got) :][: lies_in(made.read)]
            assert into.used == len(got) + len(in_pipe)
            made.receiver.resume()

        moments = [writer_stands_still, reader_stands_still]
        chance.shuffle(moments)
        for moment in moments:
            await moment()
            await job.lives(chance.randrange(30))
        PipePositions({0: out}, {1: into}).save(tmp_path)
        made.out.resume()
        await job.ends()
        assert job.got == DATA

    was = PipePositions.load(tmp_path)
    async with crossing(0.0, out=was.out[0], into=was.into[1]) as again:
        assert os.write(again.write, DATA[out.read : wrote]) == wrote - out.read or wrote == out.read
        if in_pipe:
            os.write(again.receiver._fd, in_pipe)  # as the keeper does
        again.receiver.resume()
        job = Job(again, chance, wrote, got)
        await job.ends()
        assert job.got == DATA


async def test_nothing_is_taken_from_a_pipe_that_is_held() -> None:
    async with crossing() as made:
        os.write(made.write, b"one")
        assert await asyncio.to_thread(os.read, made.read, 10) == b"one"
        await made.out.pause()
        os.write(made.write, b"two")
        for _ in range(50):
            await asyncio.sleep(0)
        assert made.out.frozen(True) == SenderPosition(3, [b"one"])
        assert lies_in(made.write) == 3
        made.out.resume()
        assert await asyncio.to_thread(os.read, made.read, 10) == b"two"


async def test_what_lay_in_a_pipe_that_nobody_writes_to_any_more_is_the_outlets() -> None:
    async with crossing() as made:
        await made.out.pause()
        os.write(made.write, b"last")
        made.done_writing()
        assert made.out.frozen(False) == SenderPosition(4, [b"last"])
        made.out.resume()
        assert await asyncio.to_thread(os.read, made.read, 10) == b"last"
        assert await asyncio.to_thread(os.read, made.read, 10) == b""
        await asyncio.wait_for(made.sender, 20)


async def test_of_a_writer_that_has_ended_the_reader_has_the_rest() -> None:
    async with crossing() as made:
        os.set_blocking(made.write, False)
        wrote = 0
        async with asyncio.timeout(20):
            while wrote < 110_000:  # more than the pipe of the reader holds
                try:
                    wrote += os.write(made.write, DATA[wrote : min(wrote + 4096, 110_000)])
                except BlockingIOError:
                    await asyncio.sleep(0)
            made.done_writing()
            await made.sender
        await made.out.pause()
        assert made.out.frozen(False).over
        made.receiver.freeze()
        into, in_pipe = made.receiver.frozen(), lies_in(made.read)
        assert into.ended
        assert in_pipe + sum(map(len, into.waiting)) == wrote
        assert b"".join(into.waiting) == DATA[into.used : wrote]


async def test_the_pipes_are_the_jobs_users() -> None:
    """So that a process may open its own anew, by /dev/stdin, and a keeper that puts it back."""
    owner = (65534, 65534) if os.getuid() == 0 else (os.getuid(), os.getgid())
    joint = Joint("w", "r", "", "")
    start = replace(START, processes=(PipelineProcess("r", "/bin/cat"),), pipes=(joint,), crossings=((0, 0, 1),))
    made = RemotePipes(start, Alone(), lambda why: None)
    assert await made.exchange_cards(owner) == [None, None]
    status = os.fstat(made.ends[0])
    assert (status.st_uid, status.st_gid) == owner
    await made.abandon()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_what_a_writer_wrote_last_is_sent_though_a_checkpoint_is_made_as_it_ends(when: str) -> None:
    """The bytes are taken out of its pipe for the image, while the sender waits until it may read the pipe again."""
    async with crossing() as made:
        os.set_blocking(made.read, False)
        os.write(made.write, b"first\n")
        assert await got(made, 6) == b"first\n"
        await made.out.pause()
        os.write(made.write, b"last\n")
        for _ in range(10):  # the sender sees that there is something to read, and that it is to wait
            await asyncio.sleep(0)
        if when == "before":
            made.done_writing()
        assert made.out.frozen(held=False).kept[-1] == b"last\n"
        made.out.resume()
        if when == "after":
            os.write(made.write, b"more\n")
            made.done_writing()
        assert await got(made, 100) == b"last\n" + (b"more\n" if when == "after" else b"")


async def got(made: Crossing, most: int) -> bytes:
    """So many bytes that arrive, or all until the end."""
    data = b""
    async with asyncio.timeout(20):
        while len(data) < most:
            try:
                piece = os.read(made.read, most - len(data))
            except BlockingIOError:
                await asyncio.sleep(0)
                continue
            if not piece:
                break
            data += piece
    return data


class Alone:
    """Other parts that are not there."""

    patience = 1.0

    async def ask_third(self, start: Activation, other: str, ticket: str) -> str:
        raise StreamLost("nobody is there")

    async def wait_for_parts(self, start: Activation) -> list[dict[str, Any] | None]:
        return [None, None]

    async def reach(self, start: Activation, parts: Sequence[int], direct: bool) -> tuple[socket.socket, bytes]:
        raise StreamLost("nobody is there")

    def is_direct(self, start: Activation, part: int) -> bool:
        return False

    async def join(self, part: int, card: dict[str, Any], start: Activation, stream: int) -> Any:
        raise StreamLost("nobody is there")

    def expect(self, start: Activation, stream: int, receiver: Receiver) -> None:
        """It never comes."""

    def forget(self, start: Activation) -> None:
        """It was never expected."""


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageDamaged):
        PipePositions.load(tmp_path)
    (tmp_path / FLOWS).write_bytes(b"\x93\x01\x02\x03")
    with pytest.raises(ImageDamaged):
        PipePositions.load(tmp_path)
