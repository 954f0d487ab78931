"""All access of the submit side to users' files: with the rights of the one user they belong to (B5, EV 2.2).

The shadow, the executables' store and the user log work with `UserFiles`. `LocalFiles` is for a node that runs as that
user; `ServedFiles` asks a process that became the user, for a node that runs as root. `OwnedFiles` chooses. The
operations are in `pool.shadow.access`.

On a file system of this machine an operation takes microseconds and is done at once. On any other (NFS and its kind can
hang for minutes), and where it waits for the disk or moves much data, it is done in a thread.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pwd
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from pool.identity import identity_of
from pool.metering import counted_call
from pool.shadow.access import (
    CHUNK,
    MANY,
    OPERATIONS,
    Access,
    FileProblem,
    FileStatus,
    operation_of,
)
from pool.shadow.mounts import Mounts

__all__ = [
    "CHUNK",
    "FileProblem",
    "FileStatus",
    "FileWriter",
    "FilesOf",
    "LocalFiles",
    "OwnedFiles",
    "UserFiles",
]

_AT_ONCE = 1024 * 1024  # bytes that may be moved on the loop


class FileWriter:
    """A file in the making: not seen under its name before `commit`, gone without it."""

    def __init__(self, files: UserFiles, path: str, number: int) -> None:
        self._files = files
        self._path = path
        self._number = number

    @property
    def path(self) -> str:
        """Where it will be."""
        return self._path

    async def write(self, data: bytes) -> None:
        """Add to it. Raises FileProblem."""
        for start in range(0, len(data), _AT_ONCE):
            piece = data[start : start + _AT_ONCE] if len(data) > _AT_ONCE else data
            await self._files._call("write", self._path, self._number, piece, size=len(piece))

    async def skip(self, length: int) -> None:
        """Leave so many bytes unwritten: a hole. Raises FileProblem."""
        await self._files._call("skip", self._path, self._number, length)

    async def commit(self, *, sync: bool = False) -> None:
        """Put it in its place; with `sync` it survives a power cut from here on. Raises FileProblem."""
        number, self._number = self._number, 0
        if number:
            await self._files._call("commit", self._path, number, sync, slow=sync)
            self._files._released()

    async def sync(self) -> list[str]:
        """See its content on disk, not in its place yet: see `Access.sync`. Raises FileProblem."""
        pair: list[str] = await self._files._call("sync", self._path, self._number, slow=True)
        return pair

    def handed_over(self) -> int:
        """Its number, for `UserFiles.rename_into_place`, which has it from now on."""
        number, self._number = self._number, 0
        return number

    async def abandon(self) -> None:
        """Drop it; after `commit` this does nothing."""
        number, self._number = self._number, 0
        if number:
            self._files._let_go(number)


class ManyOutputs:
    """The outputs of one end, of which only a few are open at a time. Methods raise FileProblem."""

    def __init__(self, files: UserFiles, path: str, number: int) -> None:
        self._files = files
        self._path = path
        self._number = number

    async def set_aside(self, writers: Sequence[FileWriter]) -> None:
        """See these on disk, and close them."""
        numbers = [number for writer in writers if (number := writer.handed_over())]
        try:
            path = writers[0].path if writers else self._path
            await self._files._call("set_aside", path, self._number, numbers, slow=True)
        finally:
            for _ in numbers:
                self._files._released()

    async def rename_into_place(self) -> None:
        """Put all in their places, some at a time, so that others' turns come."""
        await self._files._call("commit_journal", self._path, self._number, slow=True)
        while not await self._files._call("place_some", self._path, self._number, MANY, slow=True):
            pass
        self._number = 0
        self._files._released()

    async def abandon(self) -> None:
        """Remove what was set aside; after `rename_into_place` this does nothing."""
        number, self._number = self._number, 0
        if number:
            self._files._released()
            await self._files.finish_journal(self._path, number)


class UserFiles(ABC):
    """One user's files. Paths are absolute. Every method raises FileProblem."""

    async def stat(self, path: str) -> FileStatus:
        """The file that is there, following symbolic links."""
        return FileStatus(*await self._call("stat", path, path))

    async def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        names: list[str] = await self._call("listdir", path, path)
        return names

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The content from `offset` on, at most `length` bytes, in chunks of at most 256 KiB."""
        left = length
        data, number = await self._call("open", path, path, offset)
        try:
            if number:
                self._held()
            while data:
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                if data:
                    yield data
                if not number or left == 0:
                    return
                data = await self._call("read", path, number)
        finally:
            if number:
                self._let_go(number)

    async def pieces(self, path: str, size: int) -> AsyncIterator[bytes | int]:
        """The content of a file of so many bytes, in chunks; a number is the length of a hole."""
        data, number = await self._call("open", path, path, 0)
        try:
            if number:
                self._held()
            while data:
                yield data
                if not number:
                    return
                data = await self._call("piece", path, number, size)
        finally:
            if number:
                self._let_go(number)

    async def read_all(self, path: str, *, most: int = 16 * CHUNK) -> bytes:
        """A small file as a whole; larger than `most` bytes is a FileProblem (EFBIG)."""
        pieces = bytearray()
        async for piece in self.read(path, length=most + 1):
            pieces += piece
        if len(pieces) > most:
            raise FileProblem("read", path, errno.EFBIG)
        return bytes(pieces)

    async def place_unnamed(self, path: str, job: str) -> str:
        """Where an output goes that its job does not name: see `Access.place_unnamed`."""
        place: str = await self._call("place_unnamed", path, path, job)
        return place

    async def create(self, path: str, *, mode: int = 0o644) -> FileWriter:
        """Begin a new file, or a new content of an old one; see `Access.create`."""
        number = await self._call("create", path, path, mode)
        self._held()
        return FileWriter(self, path, number)

    async def append(self, path: str, data: bytes, *, sync: bool = False) -> None:
        """Add to the end, all or nothing; makes the file where it is missing."""
        await self._call("append", path, path, data, sync, size=len(data), slow=sync)

    async def rename_into_place(self, writers: Sequence[FileWriter]) -> None:
        """Put synced files in their places, one right after the other: see `Access.rename_into_place`."""
        numbers = [number for writer in writers if (number := writer.handed_over())]
        if numbers:
            try:
                await self._call("rename_into_place", ", ".join(writer._path for writer in writers), numbers, slow=True)
            finally:
                for _ in numbers:
                    self._released()

    async def finish(self, pairs: list[list[str]]) -> bool:
        """Finish or undo a `rename_into_place` that was cut short: see `Access.finish`."""
        done: bool = await self._call("finish", pairs[0][1], pairs, slow=True)
        return done

    async def rename(self, path: str, to: str) -> bool:
        """Give a file another name: see `Access.rename`."""
        done: bool = await self._call("rename", path, path, to)
        return done

    async def begin_journal(self, path: str) -> ManyOutputs:
        """Outputs that are too many to be kept open: see `pool.shadow.placing`."""
        number = await self._call("begin_journal", path, path, slow=True)
        self._held()
        return ManyOutputs(self, path, number)

    async def finish_journal(self, path: str, number: int = 0) -> bool:
        """Finish or undo what a journal tells of: see `Access.finish_journal`."""
        done: bool = await self._call("finish_journal", path, path, number, slow=True)
        return done

    async def makedirs(self, path: str, *, mode: int = 0o755) -> None:
        """Make a directory and those above it, where missing."""
        await self._call("makedirs", path, path, mode)

    async def remove(self, path: str) -> None:
        """Remove a file; that it is not there is no error."""
        await self._call("remove", path, path)

    async def check(self, path: str, want: str = "read") -> None:
        """Raise what 'read', 'write', 'execute' or 'enter' would meet there; changes nothing."""
        await self._call("check", path, path, want)

    async def remove_tree(self, path: str) -> None:
        """Remove all that is in a directory, some at a time, so that others' turns come."""
        while not await self._call("remove_some", path, path, MANY, slow=True):
            pass

    async def tree_size(self, path: str) -> int:
        """Bytes on disk of all that is in a directory."""
        size: int = await self._call("tree_size", path, path, slow=True)
        return size

    async def sync_volume(self, path: str) -> None:
        """See all on disk that was written in the file system of a directory."""
        await self._call("sync_volume", path, path, slow=True)

    def real(self, path: str) -> str:
        """Where on this machine a file lies."""
        return path

    async def close(self) -> None:  # noqa: B027
        """End what works for it; it begins again when used again."""

    @abstractmethod
    async def _call(self, name: str, path: str, *arguments: Any, size: int = 0, slow: bool = False) -> Any:
        """Do an operation of `Access`; `size` bytes are moved, `slow` ones wait for the disk."""

    @abstractmethod
    def _let_go(self, number: int) -> None:
        """Close an open file without waiting for it."""

    def _held(self) -> None:  # noqa: B027
        """A file stays open from here on."""

    def _released(self) -> None:  # noqa: B027
        """One fewer."""


class FilesOf(Protocol):
    """Users' files by user name. Raises PoolError where this node may not touch that user's."""

    def __call__(self, owner: str, /) -> UserFiles: ...


class LocalFiles(UserFiles):
    """The files of the user this node runs as.

    Args:
        inline: do everything at once, never in a thread: for loops whose clock is virtual.
        threads: at most that many operations wait at a time.
    """

    def __init__(self, *, inline: bool = False, threads: int = 4) -> None:
        self._access = Access()
        self._inline = inline
        self._mounts = Mounts()
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    async def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None

    async def _call(self, name: str, path: str, *arguments: Any, size: int = 0, slow: bool = False) -> Any:
        operation = operation_of(self._access, name)
        loop = asyncio.get_running_loop()
        try:
            if self._inline or not (slow or size > _AT_ONCE or self._mounts.may_hang(path, loop.time())):
                return operation(*arguments)
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="files")
            running = loop.run_in_executor(self._pool, counted_call(operation), *arguments)
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                running.add_done_callback(partial(self._given_up, name))
                raise
        except OSError as error:
            raise FileProblem(named(name, arguments), path, error.errno or errno.EIO) from error
        except ValueError as error:
            raise FileProblem(named(name, arguments), path, errno.EINVAL) from error

    def _given_up(self, name: str, running: asyncio.Future[Any]) -> None:
        """Nobody waits for this operation any more: close what it opened."""
        if running.cancelled() or running.exception() is not None:
            return
        number = opened(name, running.result())
        if number:
            self._access.close(number)

    def _let_go(self, number: int) -> None:
        self._access.close(number)


class OwnedFiles:
    """Chooses how each user's files are reached from this node: a FilesOf.

    Args:
        user: the name this node's own user goes by; None looks it up.
        idle: seconds after which a user's file server that has nothing to do is ended.
    """

    def __init__(self, *, user: str | None = None, idle: float = 60.0) -> None:
        self._uid = os.geteuid()
        self._user = user if user is not None else _name_of(self._uid)
        self._idle = idle
        self._own = LocalFiles()
        self._served: dict[str, UserFiles] = {}

    def __call__(self, owner: str, /) -> UserFiles:
        if owner == self._user:
            return self._own
        found = self._served.get(owner)
        if found is not None:
            return found
        uid, gid, groups = identity_of(owner, self._user)
        from pool.shadow.serving import ServedFiles

        made: UserFiles
        if uid == self._uid:
            made = self._own
        else:
            made = ServedFiles(owner, uid, gid, groups, idle=self._idle)
        self._served[owner] = made
        return made

    async def close(self) -> None:
        """End every file server."""
        for files in (self._own, *self._served.values()):
            await files.close()
        self._served.clear()


def opened(name: str, result: Any) -> int:
    """The number of the file an operation left open; 0 for none."""
    if name == "create":
        return int(result)
    return int(result[1]) if name == "open" else 0


def named(name: str, arguments: tuple[Any, ...]) -> str:
    """The name of an operation in an error."""
    if name == "check":
        return {"write": "write", "execute": "execute", "enter": "enter"}.get(str(arguments[-1]), "read")
    return OPERATIONS[name]


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
