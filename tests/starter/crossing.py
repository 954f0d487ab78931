"""A pipe from one host to another of a network in memory, through real pipes: for tests and benchmarks of crossings."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pool.jobs.activation import Activation, Mode
from pool.roles.startd.streams import Streams
from pool.starter.crossings import Inlet, Outlet
from pool.testing.network import MemoryNetwork
from pool.wire import Call, Dispatcher, Network, RealNetwork, Right, Service, Stream, own_identity, streaming

START = Activation((1, 0), 1, "alice", Mode.SHARED, "/bin/x", None, ("x",), {}, "/", gang="secret", parts=2)


class Side(Service):
    """The part of a startd that takes streams."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = Streams()

    @streaming(Right.EXECUTE, takes={"gang": str, "run": int, "stream": int})
    async def join(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """As a startd's."""
        await self.streams.serve(params, stream)


class Crossing:
    """One of them.

    Attributes:
        write, read: the job's ends, blocking; -1 once closed.
        network: for trouble between `here` and `there`.
        outlet: what carries; its result is the outlet's.
    """

    def __init__(self, network: MemoryNetwork, write: int, read: int, side: Side, inlet: Inlet) -> None:
        self.network, self.write, self.read, self.side, self.inlet = network, write, read, side, inlet
        self.joined = 0
        self.outlet: asyncio.Task[None]

    def done_writing(self) -> None:
        """The writer has ended."""
        os.close(self.write)
        self.write = -1

    def done_reading(self) -> None:
        """The reader has ended."""
        os.close(self.read)
        self.read = -1

    async def lost(self) -> None:
        """The reader's machine knows nothing of it any more."""
        self.side.streams = Streams()


@asynccontextmanager
async def crossing(delay: float = 0.0, patience: float = 20.0, relay: Path | None = None) -> AsyncIterator[Crossing]:
    """A pipe that is there at once.

    Args:
        delay: seconds between the hosts, each way.
        relay: through sockets in this directory, and a relay that keeps every byte so long; not a network in memory.
    """
    network = MemoryNetwork(random.Random(1), delay=(delay, delay))
    dispatcher, side = Dispatcher(), Side()
    dispatcher.add("startd", side)
    there: Network = network.host("there", roles=("startd",), dispatcher=dispatcher)
    here: Network = network.host("here", roles=("startd",), dispatcher=Dispatcher())
    address = far = "mem://there"
    between = None
    if relay is not None:
        there, here = RealNetwork(dispatcher, own_identity("there")), RealNetwork()
        address, far = f"unix://{relay}/relay", f"unix://{relay}/there"
        between = await asyncio.start_unix_server(partial(_relay, f"{relay}/there", delay), f"{relay}/relay")
    server = await there.listen(far, dispatcher)
    (from_job, write), (read, to_job) = os.pipe(), os.pipe()
    for fd in (from_job, to_job):
        os.set_blocking(fd, False)
    inlet = Inlet(to_job)
    side.streams.expect(START, 0, inlet)
    made = Crossing(network, write, read, side, inlet)

    async def join() -> Any:
        made.joined += 1
        link = await here.connect(address)
        return await link.stream("startd.join", {"gang": START.gang, "run": START.run, "stream": 0})

    made.outlet = asyncio.create_task(Outlet(from_job, join, patience).run())
    try:
        yield made
    finally:
        made.outlet.cancel()
        await asyncio.gather(made.outlet, return_exceptions=True)
        await inlet.close()
        await server.close()
        if between is not None:
            between.close()
        for fd in (made.write, made.read):
            if fd >= 0:
                os.close(fd)


async def _relay(target: str, delay: float, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    far_reader, far_writer = await asyncio.open_unix_connection(target)
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.gather(_pass(reader, far_writer, delay), _pass(far_reader, writer, delay))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 20):
        loop.call_later(delay, writer.write, data)
    loop.call_later(delay, writer.close)
