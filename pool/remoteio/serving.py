"""The node's end of the file servers: starting one as its user, asking it, ending it when idle.

When a file server dies, its requests fail with `retry` and its jobs' connections end; a later request finds another.
"""

from __future__ import annotations

import array
import asyncio
import json
import os
import signal
import socket
from collections.abc import Callable, Iterable
from typing import Any

from pool import metering
from pool.errors import PoolError
from pool.identity import start_as

#: Seconds without a job after which a file server is ended.
IDLE = 60.0
LONGEST = 256 * 1024
#: Whom a user's file server becomes: uid, gid, groups. Raises PoolError where this node cannot serve that user.
IdentityOf = Callable[[str], tuple[int, int, list[int]]]


class FileServerLost(PoolError):
    """A file server ended before it answered."""


class FileServers:
    """The file servers of one schedd, one for each user whose jobs need it.

    Args:
        on_event: called with the messages that a file server sends unasked.
    """

    def __init__(
        self, identity_of: IdentityOf, *, idle: float = IDLE, on_event: Callable[[dict[str, Any]], None] | None = None
    ) -> None:
        self._identity_of = identity_of
        self._on_event = on_event or (lambda event: None)
        self._idle = idle
        self._servers: dict[str, _FileServer] = {}

    async def request(self, owner: str, do: str, fds: Iterable[int] = (), **fields: Any) -> dict[str, Any]:
        """Ask a user's file server; see `pool.remoteio.file_server`.

        Raises:
            HomeLost: it died meanwhile.
            PoolError: it cannot be started, or fails.
        """
        server = self._servers.get(owner)
        if server is None or server.ended:
            server = self._servers[owner] = _FileServer(owner, self._identity_of(owner), self._idle, self._on_event)
        answer = await server.request({"do": do, **fields}, tuple(fds))
        metering.add(float(answer.pop("cpu", 0.0)))
        if "error" in answer:
            raise PoolError(f"the file server of {owner} failed: {answer['error']}")
        if "errno" in answer:
            reason = os.strerror(int(answer["errno"])).lower()
            thing = f" at {answer['path']}" if answer.get("path") else ""
            raise PoolError(f"the file server of {owner} failed{thing}: {reason}", retry=True)
        return answer

    def pid(self, owner: str) -> int | None:
        """The process that is a user's file server."""
        server = self._servers.get(owner)
        return server.pid if server is not None and not server.ended else None

    async def close(self) -> None:
        """End all of them."""
        servers, self._servers = list(self._servers.values()), {}
        for server in servers:
            await server.close()


class _FileServer:
    """One process and the socket to it."""

    def __init__(
        self,
        owner: str,
        identity: tuple[int, int, list[int]],
        idle: float,
        on_event: Callable[[dict[str, Any]], None],
    ) -> None:
        self._owner = owner
        self._on_event = on_event
        self._idle = idle
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._jobs: set[str] = set()
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self._gone = self._loop.create_future()
        self.ended = False
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        uid, gid, groups = identity
        try:
            self.pid = start_as("pool.remoteio.file_server", theirs.fileno(), (uid, gid, *groups))
            self._pidfd = os.pidfd_open(self.pid)
        except OSError as error:
            self._ours.close()
            raise PoolError(f"cannot start the file server of {owner}: {error.strerror}", retry=True) from error
        finally:
            theirs.close()
        self._ours.setblocking(False)
        self._loop.add_reader(self._ours.fileno(), self._readable)
        self._loop.add_reader(self._pidfd, self._exited)

    async def request(self, message: dict[str, Any], fds: tuple[int, ...]) -> dict[str, Any]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._number += 1
        number = self._number
        data = json.dumps({"id": number, **message}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        answer = self._waiting[number] = self._loop.create_future()
        try:
            while True:
                try:
                    self._ours.sendmsg([data], rights)
                    break
                except BlockingIOError:
                    await asyncio.sleep(0.01)
                except OSError as error:
                    if isinstance(error, ConnectionError):  # it has ended, and the loop has not heard of it yet
                        answer.cancel()
                        self._hang_up()
                    raise self._lost() from None
            found: dict[str, Any] = await answer
        finally:
            self._waiting.pop(number, None)
            self._count(str(message["do"]), str(message.get("job")))
        return found

    def _count(self, do: str, job: str) -> None:
        if do == "open":
            self._jobs.add(job)
        elif do in ("leave", "finish"):
            self._jobs.discard(job)
        if not self._jobs and not self._waiting and not self.ended:
            self._timer = self._loop.call_later(self._idle, self._hang_up)

    def _readable(self) -> None:
        while not self.ended:
            try:
                data = self._ours.recv(LONGEST)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                data = b""
            if not data:
                self._hang_up()
                return
            message = json.loads(data)
            if "event" in message:
                self._on_event(message)
                continue
            answer = self._waiting.get(message.get("id", 0))
            if answer is not None and not answer.done():
                answer.set_result(message)

    def _lost(self) -> FileServerLost:
        return FileServerLost(f"the file server of {self._owner} ended unexpectedly", retry=True)

    def _hang_up(self) -> None:
        if self.ended:
            return
        self.ended = True
        self._loop.remove_reader(self._ours.fileno())
        self._ours.close()
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(self._lost())

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            pass
        self._hang_up()
        if not self._gone.done():
            self._gone.set_result(None)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._hang_up()
        try:
            await asyncio.wait_for(asyncio.shield(self._gone), 2.0)
        except TimeoutError:  # it hangs on a file system
            os.kill(self.pid, signal.SIGKILL)
