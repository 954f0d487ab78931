"""A directory of this node, for the images of other nodes' schedds: named blobs, each node's apart from all others'.

The schedd (`pool.images.store`) knows which names are an image, and which may go. Here are names, bytes, and one bound
for all of them. A name is checked before it becomes a path.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from pool.images.blob_stores import Folder
from pool.wire import Call, Right, Service, Stream, method
from pool.wire.dispatch import streaming
from pool.wire.errors import CallRefused

T = TypeVar("T")
NAME = re.compile(r"chunks/[0-9a-f]{2}/[0-9a-f]{38}|jobs/[\w@%-][\w.@%-]*/[0-9]{9}\.(manifest|damaged)", re.ASCII)
FOLDERS = ("chunks", "jobs")
#: Bytes in one item of a stream, and entries of a list in one.
PIECE, BATCH = 256 * 1024, 1000
#: The largest blob taken in: a manifest of an image of about 800 GB.
LARGEST = 64 * 2**20


class ImageServer(Service):
    """The methods of a checkpoint server.

    Args:
        directory: a directory for each node is made in it.
        quota: bytes that all of them may take together, as of now; 0 for no bound but the disk's.
    """

    def __init__(self, directory: Path, quota: Callable[[], int]) -> None:
        super().__init__()
        self._directory = directory
        self._quota = quota
        self._folders: dict[str, Folder] = {}
        self._used: int | None = None
        self._lock = asyncio.Lock()

    @streaming(Right.SUBMIT, takes={"folder": str})
    async def names(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """A schedd's blobs here: {folder} -> [[name, size], ...] ..."""
        if params["folder"] not in FOLDERS:
            raise CallRefused(f"there is no folder {params['folder']!r}")
        folder = await self._folder(call)
        found = await _blocking(lambda: list(folder.names(params["folder"])))
        for place in range(0, len(found), BATCH):
            await stream.send([list(one) for one in found[place : place + BATCH]])
        await stream.finish()

    @streaming(Right.SUBMIT, takes={"name": str})
    async def read(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """One blob: {name} -> bytes ..., or nothing at all where there is none"""
        folder, name = await self._folder(call), _checked(params["name"])
        try:
            data = await _blocking(lambda: folder.read(name))
        except FileNotFoundError:
            await stream.send(["none"])
            data = b""
        for place in range(0, len(data), PIECE):
            await stream.send(data[place : place + PIECE])
        await stream.finish()

    @streaming(Right.SUBMIT, takes={"name": str, "durable": bool})
    async def write(self, call: Call, params: dict[str, Any], stream: Stream) -> None:
        """Take in one blob: {name, durable}, bytes ... ["done"] -> ["kept"] or ["full"]"""
        folder, name = await self._folder(call), _checked(params["name"])
        data, whole = bytearray(), False
        async for item in stream:
            if not isinstance(item, bytes):
                whole = True
                break
            data += item
            if len(data) > LARGEST:
                raise CallRefused("that is larger than can be kept here")
        if not whole:
            return
        async with self._lock:
            kept = await self._store(folder, name, bytes(data), bool(params["durable"]))
        await stream.send(["kept" if kept else "full"])
        await stream.finish()

    async def _store(self, folder: Folder, name: str, data: bytes, durable: bool) -> bool:
        quota = self._quota()
        if self._used is None:
            self._used = await _blocking(self._measure)
        if quota and self._used + len(data) > quota:
            return False
        try:
            await _blocking(lambda: folder.write(name, data, durable=durable))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return False
            raise CallRefused(
                f"cannot keep a checkpoint: {(error.strerror or str(error)).lower()}", retry=True
            ) from error
        self._used += len(data)
        return True

    @method(Right.SUBMIT, takes={"names": list})
    async def sync(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Have blobs on the disk for good: {names}"""
        folder, names = await self._folder(call), [_checked(name) for name in params["names"]]
        try:
            await _blocking(lambda: folder.sync(names))
        except OSError as error:
            raise CallRefused(
                f"cannot keep a checkpoint: {(error.strerror or str(error)).lower()}", retry=True
            ) from error
        return {}

    @method(Right.SUBMIT, takes={"name": str, "last": bool})
    async def remove(self, call: Call, params: dict[str, Any]) -> dict[str, Any]:
        """Remove a blob, if it is there: {name, last: its folder too when it is empty}"""
        folder, name = await self._folder(call), _checked(params["name"])
        await _blocking(lambda: folder.remove(name, last=params["last"]))
        self._used = None
        return {}

    async def _folder(self, call: Call) -> Folder:
        node = call.identity.node
        if not node:
            raise CallRefused("checkpoints are kept for nodes")
        folder = self._folders.get(node)
        if folder is None:
            plain = "".join(char if char.isalnum() or char in "_-" else f"%{ord(char):02x}" for char in node)
            made = await _blocking(lambda: Folder(self._directory / plain))
            folder = self._folders.setdefault(node, made)
        return folder

    def _measure(self) -> int:
        total = 0
        for below, _, files in os.walk(self._directory):
            total += sum(os.lstat(os.path.join(below, name)).st_size for name in files)
        return total


def _checked(name: Any) -> str:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise CallRefused(f"{str(name)[:80]!r} is no name of a part of a checkpoint")
    return name


async def _blocking(call: Callable[[], T]) -> T:
    return await asyncio.to_thread(call)
