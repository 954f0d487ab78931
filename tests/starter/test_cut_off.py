"""A job's files while its node is cut off from the submit side: a minute, and longer than its lease (on a clock that
jumps).

The node's part (`pool.starter.files`), what carries (`pool.remoteio.relay`) and the protocol between nodes are real,
the network is in memory. The keeper's side asks again under its old numbers what was not answered, as the real one
does, and the submit side remembers what it has answered, as a real session does.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import socket
from collections.abc import Coroutine
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest

from pool.remoteio import direct, frames
from pool.remoteio.frames import APPEND, Op
from pool.remoteio.relay import forward
from pool.starter.files import StartFiles
from pool.starter.keeper import Keeper
from pool.testing import MemoryNetwork
from pool.testing.loop import VirtualLoop
from pool.wire import Call, Dispatcher, Right, Service, Stream, streaming
from tests.remoteio.support import Desk

STEPS, LEASE = 40, 300.0
#: Seconds between two looks at a socket that has nothing.
MOMENT = 0.05


class SocketLoop(VirtualLoop):
    """A clock that jumps, and sockets whose both ends are in this program: who waits for one looks again."""

    async def sock_recv(self, sock: socket.socket, nbytes: int) -> bytes:
        while True:
            try:
                return sock.recv(nbytes)
            except BlockingIOError:
                await asyncio.sleep(MOMENT)

    async def sock_sendall(self, sock: socket.socket, data: Any) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[sock.send(view) :]
            except BlockingIOError:
                await asyncio.sleep(MOMENT)


async def requests(end: socket.socket) -> Any:
    """Whole frames that come over a socket, until it ends."""
    loop, buffer = asyncio.get_running_loop(), b""
    try:
        while data := await loop.sock_recv(end, 1 << 16):
            buffer += data
            while len(buffer) >= frames.HEADER and len(buffer) >= (head := frames.header(buffer))[0]:
                yield *head[1:], buffer[frames.HEADER : head[0]]
                buffer = buffer[head[0] :]
    except OSError:
        return


class Home(Service):
    """Home's end: does each request once."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.facts = {"trees": [["/home", False]], "uid": 1, "gid": 1, "home": "/", "probes": []}
        self.facts["frames"] = frames.VERSION
        #: The directories that the node opens directly, once that is kept in the job's log.
        self.direct: list[Any] | None = None
        self.streams = 0
        self.again = 0
        self._answers: dict[int, bytes] = {}
        self._serving: asyncio.Task[None] | None = None

    @streaming(Right.READ)
    async def serve(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        self.streams += 1
        await stream.send(["open", self.facts])
        _, found, _ = await stream.receive()
        await asyncio.sleep(MOMENT)  # the disk
        self.direct = found
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        if self._serving is not None:
            self._serving.cancel()
        self._serving = asyncio.ensure_future(self._answer(theirs))
        try:
            await forward(stream, ours)
        finally:
            theirs.close()

    async def _answer(self, end: socket.socket) -> None:
        async for op, _, unique, body in requests(end):
            self.again += unique in self._answers
            if unique not in self._answers:
                values = frames.values_of(frames.REQUESTS[Op(op)], body)
                done = getattr(self.desk.work, Op(op).name.lower())(unique, *values)
                self._answers[unique] = frames.answer(Op(op), unique, *done)
            await asyncio.get_running_loop().sock_sendall(end, self._answers[unique])


class Job:
    """A keeper, its file server, and the one process of its job, which it kills when its lease ends."""

    def __init__(self, desk: Desk) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        #: Its files are open.
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._desk = desk
        self._open: dict[int, tuple[bytes, asyncio.Future[list[Any]]]] = {}
        self._unique = 0
        self._end: socket.socket | None = None
        self._reading: asyncio.Task[None] | None = None
        self.working = asyncio.ensure_future(self._work())

    def remote(self, fd: int) -> None:
        """Another connection: all that was not answered is asked again."""
        if self._end is not None:
            self._end.close()
        if self._reading is not None:
            self._reading.cancel()
        self._end = socket.socket(fileno=os.dup(fd))
        self._end.setblocking(False)
        for frame, _ in self._open.values():
            self._end.send(frame)
        self._reading = asyncio.ensure_future(self._read(self._end))

    async def _read(self, end: socket.socket) -> None:
        async for op, _, unique, body in requests(end):
            if unique in self._open:
                self._open.pop(unique)[1].set_result(frames.values_of(frames.ANSWERS[Op(op)], body))

    async def _ask(self, op: Op, *values: Any) -> list[Any]:
        self._unique += 1
        frame = frames.request(op, self._unique, *values)
        answer: asyncio.Future[list[Any]] = asyncio.get_running_loop().create_future()
        self._open[self._unique] = (frame, answer)
        if self._end is not None:
            try:
                self._end.send(frame)
            except OSError:
                pass  # it is asked again on the next connection
        return await answer

    async def _work(self) -> None:
        flags = os.O_RDWR | os.O_CREAT
        for handle, name in enumerate(("log", "place", "locked"), 1):
            await self._ask(Op.OPEN, handle, self._desk.path(name), flags, 0o644, 0)
        await self._ask(Op.LOCK, 3, 1, 2, 0, 0, 0)
        self.begun.set_result(None)
        for step in range(STEPS):
            # Three writes are under way at a time, as those that a cache sends.
            data = b"%6d\n" % step
            writes = [(1, APPEND, data), (2, 7 * step, data), (2, 7 * (step + STEPS), data)]
            await asyncio.gather(*(self._ask(Op.WRITE, *write) for write in writes))
            assert (await self._ask(Op.READ, 2, 7 * step, 7))[0] == data
            await asyncio.sleep(1.0)
        self.ended.set_result(None)

    def kill(self) -> None:
        self.working.cancel()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        if self._end is not None:
            self._end.close()


class Pair:
    """The submit side and a node far away, with a job that works there."""

    def __init__(self, desk: Desk, keepalive: float) -> None:
        self.desk = desk
        self.home = Home(desk)
        self.network = MemoryNetwork(random.Random(3), keepalive=keepalive)
        self._far = self.network.host("far", roles=["startd"])
        self.files = StartFiles("1.0", 1, self)

    async def remote_io(self, run: int, again: bool) -> Any:
        return await (await self._far.connect("mem://home")).stream("home.serve", {})

    async def listen(self) -> None:
        dispatcher = Dispatcher()
        dispatcher.add("home", self.home)
        self.server = await self.network.host("home", roles=["schedd"]).listen("mem://home", dispatcher)

    async def begin(self) -> Job:
        await self.listen()
        _, theirs = await self.files.begin(1, 1, ())
        assert theirs is not None
        job = Job(self.desk)
        with theirs:
            job.remote(theirs.fileno())
        self.files.serve(cast(Keeper, job))
        return job

    async def steps(self, count: int) -> None:
        for _ in range(10_000):
            if self.lines() >= count:
                return
            await asyncio.sleep(MOMENT)
        raise AssertionError(f"{self.lines()} of {count} steps")

    def lines(self) -> int:
        path = self.desk.tree / "log"
        return path.read_bytes().count(b"\n") if path.exists() else 0

    async def end(self, job: Job) -> None:
        await self.files.end()
        job.close()
        await self.server.close()


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=SocketLoop) as runner:
        runner.run(work)


@pytest.fixture
def desk() -> Any:
    with TemporaryDirectory() as directory:
        (Path(directory) / "tree").mkdir()
        (Path(directory) / "journal").mkdir()
        found = Desk(Path(directory) / "tree", Path(directory) / "journal")
        yield found
        found.close()


def expected(steps: int) -> tuple[bytes, bytes]:
    lines = b"".join(b"%6d\n" % step for step in range(steps))
    return lines, lines + lines


@pytest.mark.parametrize("how", ["cut", "silent", "silent for longer than connections live"])
def test_a_job_whose_node_is_cut_off_for_a_minute_goes_on(desk: Desk, how: str) -> None:
    """Nothing lost, nothing doubled, its lock held all the while."""

    async def trial() -> None:
        pair = Pair(desk, keepalive=30.0 if "longer" in how else 90.0)
        job = await pair.begin()
        await pair.steps(10)
        (pair.network.cut if how == "cut" else pair.network.drop_silently)("home", "far")
        began, there = asyncio.get_running_loop().time(), pair.lines()
        await asyncio.sleep(60.0)
        assert pair.lines() <= there + 1  # but for what was on its way
        with (desk.tree / "locked").open("r+") as other, pytest.raises(BlockingIOError):
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        pair.network.restore_links()
        await asyncio.wait_for(job.working, 120.0)
        assert asyncio.get_running_loop().time() - began > 60.0
        assert (pair.home.streams > 1) == (how != "silent")
        await pair.end(job)

    run(trial())
    assert ((desk.tree / "log").read_bytes(), (desk.tree / "place").read_bytes()) == expected(STEPS)


def test_a_job_whose_files_are_cut_off_while_its_program_starts_goes_on(desk: Desk) -> None:
    """Its program and its outputs are opened through its files: a start waits for the next connection, not that for the
    start.
    """

    async def trial() -> None:
        pair = Pair(desk, keepalive=30.0)
        await pair.listen()
        _, theirs = await pair.files.begin(1, 1, ())
        assert theirs is not None
        pair.network.cut("home", "far")
        job = Job(desk)
        pair.files.serve(cast(Keeper, job))
        with theirs:
            job.remote(theirs.fileno())
        await asyncio.sleep(1.0)
        assert not job.begun.done()
        pair.network.restore_links()
        await asyncio.wait_for(job.begun, 10.0)
        assert pair.home.streams == 2
        await asyncio.wait_for(job.working, 120.0)
        await pair.end(job)

    run(trial())
    assert ((desk.tree / "log").read_bytes(), (desk.tree / "place").read_bytes()) == expected(STEPS)


@pytest.mark.parametrize("how", ["cut", "silent"])
def test_beyond_its_lease_a_job_is_killed_and_nobody_asks_any_more(desk: Desk, how: str) -> None:
    async def trial() -> None:
        pair = Pair(desk, keepalive=30.0)
        job = await pair.begin()
        await pair.steps(10)
        (pair.network.cut if how == "cut" else pair.network.drop_silently)("home", "far")
        asyncio.get_running_loop().call_later(LEASE, job.kill)  # as its keeper does, by its own clock
        await asyncio.wait_for(job.ended, LEASE + 1)
        streams = pair.home.streams
        pair.network.restore_links()
        await asyncio.sleep(LEASE)
        assert pair.home.streams == streams
        await pair.end(job)

    run(trial())
    assert expected(STEPS)[0].startswith((desk.tree / "log").read_bytes())
    assert (desk.tree / "place").read_bytes().replace(b"\0", b"").count(b"\n") <= 2 * 12


@pytest.mark.parametrize("there", [True, False])
def test_a_job_that_opens_all_its_files_directly_asks_home_once(desk: Desk, there: bool) -> None:
    """The submit side has kept that before the job begins, and no connection is left, nor made again."""

    async def trial() -> None:
        pair = Pair(desk, keepalive=30.0)
        pair.home.facts |= {"trees": [[str(desk.tree), False]] if there else [], "uid": os.getuid()}
        if there:
            pair.home.facts["probes"] = direct.place_probes(desk.work.places, [str(desk.tree)], "0123456789abcdef" * 2)
        await pair.listen()
        seen, end = await pair.files.begin(os.getuid(), os.getgid(), ())
        found = [str(desk.tree)] if there else []
        assert (seen.trees, end, [home for _, home in pair.home.direct or ()]) == ((), None, found)
        assert pair.home.direct is not None
        job = Job(desk)
        pair.files.serve(cast(Keeper, job))
        await asyncio.sleep(LEASE)
        assert pair.home.streams == 1
        job.kill()
        await pair.end(job)

    run(trial())
