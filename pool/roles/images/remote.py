"""A checkpoint server as a place for images: what `pool.images.blob_stores` asks for, over the wire.

Its methods are called from threads and wait there; the talking is done on the node's loop. Every failure is an OSError.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from pool.errors import PoolError
from pool.images.blob_stores import BlobStore, Bounded
from pool.images.errors import failed
from pool.images.pacing import BandwidthShare
from pool.images.packs import place_at
from pool.roles.images.server import PIECE
from pool.roles.links import Links
from pool.wire import Connection

T = TypeVar("T")
#: How addresses of nodes begin.
WIRE = ("tcp://", "unix://", "local:", "mem://")
#: Seconds for one blob to come or go.
PATIENCE = 60.0
#: Names in one call.
BATCH = 1000


class RemoteBlobStore:
    """The directory that another node keeps for this one.

    Args:
        loop: the node's, on which no method is called.
    """

    at_once = 4

    def __init__(self, links: Links, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.where = address
        self._links = links
        self._loop = loop

    def names(self, folder: str) -> list[tuple[str, int]]:
        return self._wait(self._names(folder))

    def read(self, name: str) -> bytes:
        return self._wait(self._read(name))

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        self._wait(self._write(name, data, durable))

    def sync(self, names: Iterable[str]) -> None:
        found = list(names)
        for place in range(0, len(found), BATCH):
            self._wait(self._call("images.sync", {"names": found[place : place + BATCH]}))

    def remove(self, name: str, *, last: bool = False) -> None:
        self._wait(self._call("images.remove", {"name": name, "last": last}))

    def _wait(self, talk: Coroutine[Any, Any, T]) -> T:
        if _in_a_loop():
            talk.close()
            raise OSError(errno.EDEADLK, "the checkpoint server is not talked to from the loop's own thread")
        try:
            return asyncio.run_coroutine_threadsafe(_patiently(talk), self._loop).result()
        except FileNotFoundError:
            raise
        except (PoolError, TimeoutError) as error:
            raise OSError(errno.EIO, f"the checkpoint server {self.where}: {error}") from error

    async def _link(self) -> Connection:
        return await self._links.connect(self.where)

    async def _call(self, method: str, params: dict[str, Any]) -> None:
        await (await self._link()).call(method, params, timeout=PATIENCE)

    async def _names(self, folder: str) -> list[tuple[str, int]]:
        found: list[tuple[str, int]] = []
        async with await (await self._link()).stream("images.names", {"folder": folder}) as stream:
            async for some in stream:
                found += [(str(name), int(size)) for name, size in some]
        return found

    async def _read(self, name: str) -> bytes:
        data = bytearray()
        async with await (await self._link()).stream("images.read", {"name": name}) as stream:
            async for piece in stream:
                if not isinstance(piece, bytes):
                    raise FileNotFoundError(errno.ENOENT, "there is none", name)
                data += piece
        return bytes(data)

    async def _write(self, name: str, data: bytes, durable: bool) -> None:
        async with await (await self._link()).stream("images.write", {"name": name, "durable": durable}) as stream:
            for place in range(0, len(data), PIECE):
                await stream.send(data[place : place + PIECE])
            await stream.send(["done"])
            await stream.finish()
            async for item in stream:
                if item == ["kept"]:
                    return
                raise OSError(errno.ENOSPC, "No space left at the checkpoint server")
        raise OSError(errno.EIO, "the checkpoint server did not keep it")


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _patiently(talk: Coroutine[Any, Any, T]) -> T:
    async with asyncio.timeout(PATIENCE):
        return await talk


def place_for(
    server: str, node: str, links: Links, loop: asyncio.AbstractEventLoop, share: BandwidthShare | None = None
) -> BlobStore:
    """The place that CHECKPOINT_SERVER names, for the images of one node. Blocks; not for the loop's own thread.

    Args:
        share: what may be sent there, where that is bounded.

    Raises:
        PoolError: it cannot be used from here.
    """
    if server.startswith(WIRE):
        place: BlobStore = RemoteBlobStore(links, server, loop)
    else:
        try:
            place = place_at(f"{server.rstrip('/')}/{node}")
        except OSError as error:
            raise failed("open", server, error) from error
    if share is None:
        return place
    return Bounded(place, lambda size: asyncio.run_coroutine_threadsafe(share.wait_for_bytes(size), loop).result())
