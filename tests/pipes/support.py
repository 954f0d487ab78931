"""A pipe from one host to another of a network in memory, through real pipes: for tests and benchmarks of crossings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pool.jobs.activation import Activation, FileMode
from pool.pipes.bulk import SwitchingSender, open_bulk_stream
from pool.pipes.positions import ReceiverPosition, SenderPosition
from pool.pipes.receiver import Receiver
from pool.pipes.sender import Sender
from pool.roles.startd.running.streams import ExpectedStreams
from pool.testing.network import MemoryNetwork
from pool.wire import Call, Dispatcher, Network, RealNetwork, Right, Service, Stream, method, own_identity, streaming
from pool.wire.bulk_stream import BulkSender

START = Activation((1, 0), 1, "alice", FileMode.SHARED, "/bin/x", None, ("x",), {}, "/", gang="secret", parts=2)

DATA = random.Random(3).randbytes(3_000_017)


class Side(Service):
    """The part of a startd that takes streams."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = ExpectedStreams()

    @streaming(Right.EXECUTE, takes={"gang": str, "run": int, "stream": int})
    async def join(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """As a startd's."""
        await self.streams.serve(params, stream)

    @method(Right.EXECUTE)
    async def open_bulk(self, call: Call, params: dict[str, Any]) -> None:
        """As a startd's."""
        await self.streams.open_bulk(params, call.connection)

    @method(Right.EXECUTE, cancellable=True)
    async def wait_bulk(self, call: Call, params: dict[str, Any]) -> None:
        """As a startd's."""
        await self.streams.wait_bulk(params)


class Crossing:
    """One of them.

    Attributes:
        write, read: the job's ends, blocking; -1 once closed.
        network: for trouble between `here` and `there`.
        out: the writer's side. sender: what carries; its result is the sender's.
        joined, lanes: how many streams and lanes there have been; branched: set with each lane.
    """

    def __init__(self, network: MemoryNetwork, write: int, read: int, side: Side, receiver: Receiver) -> None:
        self.network, self.write, self.read, self.side, self.receiver = network, write, read, side, receiver
        self.joined = self.lanes = 0
        self.branched = asyncio.Event()
        self.passing: set[asyncio.StreamWriter]
        self.out: Sender
        self.sender: asyncio.Task[None]

    def done_writing(self) -> None:
        """The writer has ended."""
        os.close(self.write)
        self.write = -1

    def done_reading(self) -> None:
        """The reader has ended."""
        os.close(self.read)
        self.read = -1

    def sever(self) -> None:
        """Break what goes through the relay."""
        for writer in self.passing:
            writer.transport.abort()

    async def lost(self) -> None:
        """The reader's machine knows nothing of it any more."""
        self.side.streams = ExpectedStreams()


@asynccontextmanager
async def crossing(
    delay: float = 0.0,
    patience: float = 20.0,
    relay: Path | None = None,
    out: SenderPosition | None = None,
    into: ReceiverPosition | None = None,
) -> AsyncIterator[Crossing]:
    """A pipe that is there at once.

    Args:
        delay: seconds between the hosts, each way.
        relay: through sockets in this directory, and a relay that keeps every byte so long; not a network in memory.
        out, into: where a checkpoint had its sides.
    """
    network = MemoryNetwork(random.Random(1), delay=(delay, delay))
    dispatcher, side = Dispatcher(), Side()
    dispatcher.add("startd", side)
    there: Network = network.host("there", roles=("startd",), dispatcher=dispatcher)
    here: Network = network.host("here", roles=("startd",), dispatcher=Dispatcher())
    address = far = "mem://there"
    between, passing = None, set[asyncio.StreamWriter]()
    if relay is not None:
        there, here = RealNetwork(dispatcher, own_identity("there")), RealNetwork()
        address, far = f"unix://{relay}/relay", f"unix://{relay}/there"
        pass_on = partial(_relay, f"{relay}/there", delay, passing)
        between = await asyncio.start_unix_server(pass_on, f"{relay}/relay")
    server = await there.listen(far, dispatcher)
    (from_job, write), (read, to_job) = os.pipe(), os.pipe()
    for fd in (from_job, to_job):
        os.set_blocking(fd, False)
    receiver = Receiver(to_job, into)
    side.streams.expect(START, 0, receiver)
    made = Crossing(network, write, read, side, receiver)
    made.passing = passing

    async def join() -> Any:
        made.joined += 1
        link = await here.connect(address)
        params = {"gang": START.gang, "run": START.run, "stream": 0}

        async def branch() -> tuple[str, BulkSender]:
            opened = await open_bulk_stream(link, partial(here.connect, address), params, secrets.token_hex)
            made.lanes += 1
            made.branched.set()
            return opened

        return SwitchingSender(await link.stream("startd.join", params), branch)

    made.out = Sender(from_job, join, patience, out)
    made.sender = asyncio.create_task(made.out.run())
    try:
        yield made
    finally:
        made.sender.cancel()
        await asyncio.gather(made.sender, return_exceptions=True)
        await receiver.close()
        await server.close()
        if between is not None:
            between.close()
        for fd in (made.write, made.read):
            if fd >= 0:
                os.close(fd)


async def _relay(
    target: str,
    delay: float,
    passing: set[asyncio.StreamWriter],
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    far_reader, far_writer = await asyncio.open_unix_connection(target)
    ends = {writer, far_writer}
    passing |= ends
    with contextlib.suppress(asyncio.CancelledError, OSError):
        await asyncio.gather(_pass(reader, far_writer, delay), _pass(far_reader, writer, delay))
    passing -= ends


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 20):
        if delay:
            loop.call_later(delay, writer.write, data)
        else:
            writer.write(data)
            await writer.drain()
    loop.call_later(delay, writer.close)


async def written(made: Crossing, data: bytes) -> None:
    """Write as a process does."""

    def work() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(made.write, rest) :]

    await asyncio.to_thread(work)


async def read(made: Crossing, most: int = -1) -> bytes:
    """Until so many bytes or the end of file."""

    def work() -> bytes:
        got = bytearray()
        while most < 0 or len(got) < most:
            piece = os.read(made.read, 1 << 16 if most < 0 else min(1 << 16, most - len(got)))
            if not piece:
                break
            got += piece
        return bytes(got)

    return await asyncio.wait_for(asyncio.to_thread(work), 20)
