"""The node's end of a file server: starting it as its user, asking it, ending it when idle.

One server for each user, started at the first use. It is started with posix_spawn: forking the node, as large
as it is, would cost more than everything the server does. When it dies, what was asked of it fails with
`retry`, and the next use starts another.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from typing import Any, cast

import msgpack

from pool import metering
from pool.errors import PoolError
from pool.identity import start_as
from pool.shadow.access import FileProblem
from pool.shadow.files import UserFiles, named, opened
from pool.shadow.served import LARGEST

#: Seconds for one operation, of a disk that is as slow as can be; after that its server is killed.
ANSWERED = 300.0


class ServerLost(PoolError):
    """The file server ended while it was being asked."""


class ServedFiles(UserFiles):
    """The files of a user this node is not.

    Args:
        name: of the user, for messages.
        uid, gid, groups: what the server becomes.
        idle: seconds without anything to do after which it is ended.
    """

    def __init__(self, name: str, uid: int, gid: int, groups: list[int], *, idle: float = 60.0) -> None:
        self._name = name
        self._identity = (uid, gid, *groups)
        self._idle = idle
        self._link: _ServerLink | None = None
        self._open = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def running(self) -> bool:
        """Whether a server is up."""
        return self._link is not None and not self._link.ended

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        link, self._link = self._link, None
        self._open = 0
        if link is not None:
            await link.close()

    async def _call(self, name: str, path: str, *arguments: Any, size: int = 0, slow: bool = False) -> Any:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._link is None or self._link.ended:
            self._open = 0
            self._link = _ServerLink(self._name, self._identity)
        try:
            done, result = await self._link.request(name, arguments)
        finally:
            self._maybe_idle()
        if done:
            return result
        if done is None:
            raise PoolError(f"the file server of {self._name} failed at {path}: {result}")
        raise FileProblem(named(name, arguments), path, int(result))

    def _let_go(self, number: int) -> None:
        self._released()
        if self._link is not None and not self._link.ended:
            self._link.send_request("close", (number,))

    def _held(self) -> None:
        self._open += 1

    def _released(self) -> None:
        self._open = max(0, self._open - 1)
        self._maybe_idle()

    def _maybe_idle(self) -> None:
        if self._timer is None and self._open == 0 and self._link is not None and not self._link.waiting:
            self._timer = asyncio.get_running_loop().call_later(self._idle, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        if self._link is not None and not self._link.waiting and self._open == 0:
            self._link.hang_up()
            self._link = None


class _ServerLink(asyncio.Protocol):
    """One server process and the socket to it."""

    def __init__(self, name: str, identity: tuple[int, ...]) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self.waiting: dict[int, asyncio.Future[tuple[bool | None, Any, float]]] = {}
        self._given_up: dict[int, str] = {}
        self.ended = False
        self._number = 0
        self._received = bytearray()
        self._unsent: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._gone = self._loop.create_future()
        ours, theirs = socket.socketpair()
        try:
            self._pid = start_as("pool.shadow.served", theirs.fileno(), identity)
            self._watch(self._pid)
        except OSError as error:
            ours.close()
            raise PoolError(f"cannot start the file server of {name}: {error.strerror}", retry=True) from error
        finally:
            theirs.close()
        ours.setblocking(False)
        self._connecting = self._loop.create_task(self._connect(ours))

    async def request(self, name: str, arguments: tuple[Any, ...]) -> tuple[bool | None, Any]:
        """Send a request and wait for its answer. Raises ServerLost."""
        await self._writable.wait()
        if self.ended:
            raise self._lost()
        future: asyncio.Future[tuple[bool | None, Any, float]] = self._loop.create_future()
        number = self.send_request(name, arguments)
        self.waiting[number] = future
        try:
            async with asyncio.timeout(ANSWERED):
                done, result, used = await future
        except TimeoutError:
            self.ended = True
            os.kill(self._pid, signal.SIGKILL)  # it is still this process: its end is noticed on this loop
            raise ServerLost(
                f"the file server of {self._name} did not answer for {ANSWERED:.0f} s: a file system hangs", retry=True
            ) from None
        except asyncio.CancelledError:
            self._given_up[number] = name
            raise
        finally:
            self.waiting.pop(number, None)
        metering.add(used)
        return done, result

    def send_request(self, name: str, arguments: tuple[Any, ...]) -> int:
        """Send a request without waiting."""
        self._number += 1
        body = msgpack.packb([self._number, name, arguments], unicode_errors="surrogateescape")
        frame = struct.pack(">I", len(body)) + body
        if self._transport is None:
            self._unsent.append(frame)
        else:
            self._transport.write(frame)
        return self._number

    def hang_up(self) -> None:
        """End the server: it ends when its socket does."""
        self.ended = True
        if self._transport is not None:
            self._transport.close()
        else:
            self._connecting.cancel()

    async def close(self) -> None:
        """Hang up and wait until the process has gone; one that hangs on a file system is killed."""
        self.hang_up()
        try:
            await asyncio.wait_for(asyncio.shield(self._gone), 2.0)
        except TimeoutError:
            os.kill(self._pid, signal.SIGKILL)

    async def _connect(self, ours: socket.socket) -> None:
        try:
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            raise

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.writelines(self._unsent)
        self._unsent.clear()

    def data_received(self, data: bytes) -> None:
        buffer = self._received
        buffer += data
        start = 0
        while len(buffer) - start >= 4:
            (size,) = struct.unpack_from(">I", buffer, start)
            if size > LARGEST:
                self.hang_up()
                return
            if len(buffer) - start < 4 + size:
                break
            body = bytes(buffer[start + 4 : start + 4 + size])
            number, done, result, used = msgpack.unpackb(body, unicode_errors="surrogateescape")
            start += 4 + size
            given_up = self._given_up.pop(number, None)
            if given_up and done and (file := opened(given_up, result)):
                self.send_request("close", (file,))
            future = self.waiting.get(number)
            if future is not None and not future.done():
                future.set_result((done, result, used))
        if start:
            del buffer[:start]

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        self.ended = True
        self._writable.set()
        for future in self.waiting.values():
            if not future.done():
                future.set_exception(self._lost())

    def _lost(self) -> ServerLost:
        return ServerLost(f"the file server of {self._name} ended unexpectedly", retry=True)

    def _watch(self, pid: int) -> None:
        pidfd = os.pidfd_open(pid)

        def ended() -> None:
            self._loop.remove_reader(pidfd)
            os.close(pidfd)
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
            if not self._gone.done():
                self._gone.set_result(None)

        self._loop.add_reader(pidfd, ended)
