"""Serving the fakes on a real unix socket: in the test's own loop, or in a thread for whole commands."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

from pool.wire import RealNetwork
from tests.client.fakes import Fakes


@contextlib.asynccontextmanager
async def serving(fakes: Fakes, directory: Path) -> AsyncIterator[str]:
    """The fakes behind a socket in `directory`; yields its address."""
    address = f"unix://{directory}/node.sock"
    server = await RealNetwork().listen(address, fakes.dispatcher)
    try:
        yield address
    finally:
        await server.close()


class Served:
    """Fakes that live in a loop of their own."""

    def __init__(self, fakes: Fakes, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.fakes = fakes
        self.address = address
        self._loop = loop

    def do(self, what: Callable[..., Any], *given: Any) -> None:
        """Calls something in the fakes' loop."""
        self._loop.call_soon_threadsafe(what, *given)


@contextlib.contextmanager
def served(fakes: Fakes, directory: Path) -> Iterator[Served]:
    """The fakes behind a socket, in a thread, for as long as the block lasts."""
    ready = threading.Event()
    found: list[Served] = []
    stop: list[asyncio.Event] = []

    async def serve() -> None:
        async with serving(fakes, directory) as address:
            stop.append(asyncio.Event())
            found.append(Served(fakes, address, asyncio.get_running_loop()))
            ready.set()
            await stop[0].wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),), daemon=True)
    thread.start()
    assert ready.wait(5.0), "the fakes did not come up"
    try:
        yield found[0]
    finally:
        found[0].do(stop[0].set)
        thread.join(5.0)
