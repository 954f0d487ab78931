"""An executor's connections to its workers: a unix socket, which passes memory files, and TLS to other machines.

A worker is believed once its first frame has shown the executor's secret; nothing is unpickled before that. The unix
socket lies in a directory that only this user can enter.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import os
import pickle
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pool.client.workers.worker import HEAD, Message, blob_size, mapped, memory_file

#: Bytes of the first frame at most, and seconds until it has come.
FIRST_MOST, FIRST_SECONDS = 65536, 10.0
#: Bytes that are read at a time, and memory files with them.
READ, FILES = 1 << 20, 16


class Listener(Protocol):
    """Learns about workers."""

    def worker_connected(self, link: WorkerLink, facts: dict[str, Any]) -> None:
        """A worker has shown the secret."""

    def worker_sent(self, link: WorkerLink, messages: list[Message], blob: memoryview | None) -> None:
        """A frame has come."""

    def worker_lost(self, link: WorkerLink) -> None:
        """The connection has ended."""


class WorkerLink(ABC):
    """One connection; its frames go to the listener. All of it happens in the loop's thread."""

    def __init__(self, listener: Listener, secret: str) -> None:
        self._listener = listener
        self._secret = secret
        self._read = bytearray()
        self._files: deque[int] = deque()
        self._known = False
        self.closed = False
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(FIRST_SECONDS, self._too_late)

    @abstractmethod
    def send(self, messages: Sequence[Message], buffers: Sequence[memoryview] = ()) -> None:
        """Send one frame; with a lost connection nothing happens."""

    def close(self) -> None:
        """Close the connection; the listener is told."""
        if self.closed:
            return
        self.closed = True
        self._deadline.cancel()
        for file in self._files:
            os.close(file)
        self._files.clear()
        self._end()
        if self._known:
            self._listener.worker_lost(self)

    @abstractmethod
    def _end(self) -> None:
        """Close the socket."""

    def _too_late(self) -> None:
        if not self._known:
            self.close()

    def _came(self, data: bytes) -> None:
        self._read += data
        try:
            while not self.closed and self._next_frame():
                pass
        except (ValueError, EOFError, IndexError, pickle.UnpicklingError, ConnectionError, RecursionError):
            self.close()

    def _next_frame(self) -> bool:
        if len(self._read) < HEAD.size:
            return False
        size, blob_bytes, passed = HEAD.unpack_from(self._read)
        if not self._known and (size > FIRST_MOST or blob_bytes):
            raise ValueError("not a worker's first frame")
        whole = HEAD.size + size + (0 if passed else blob_bytes)
        if len(self._read) < whole:
            return False
        body = bytes(self._read[HEAD.size : HEAD.size + size])
        blob: memoryview | None = None
        if blob_bytes and passed:
            if not self._files:
                raise ConnectionError("a memory file is missing")
            blob = mapped(self._files.popleft(), blob_bytes)
        elif blob_bytes:
            blob = memoryview(bytearray(self._read[HEAD.size + size : whole]))
        del self._read[:whole]
        if self._known:
            self._listener.worker_sent(self, pickle.loads(body), blob)
        else:
            self._introduced(json.loads(body))
        return True

    def _introduced(self, facts: Any) -> None:
        shown = facts.get("secret") if isinstance(facts, dict) else None
        if not isinstance(shown, str) or not hmac.compare_digest(shown.encode(), self._secret.encode()):
            raise ValueError("not a worker of this executor")
        self._known = True
        self._deadline.cancel()
        self._listener.worker_connected(self, facts)


class UnixWorkerLink(WorkerLink):
    """A worker on this machine. Large buffers are memory files."""

    def __init__(self, listener: Listener, secret: str, connection: socket.socket) -> None:
        super().__init__(listener, secret)
        connection.setblocking(False)
        self._socket = connection
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[memoryview, int | None]] = deque()
        self._writing = False
        self._loop.add_reader(connection.fileno(), self._readable)

    def send(self, messages: Sequence[Message], buffers: Sequence[memoryview] = ()) -> None:
        if self.closed:
            return
        body = pickle.dumps(messages, protocol=5)
        file = memory_file(buffers) if buffers else None
        head = HEAD.pack(len(body), blob_size(buffers), int(file is not None))
        self._queue.append((memoryview(head + body), file))
        if not self._writing:
            self._writable()

    def _writable(self) -> None:
        try:
            while self._queue:
                data, file = self._queue[0]
                done = self._socket.send(data) if file is None else socket.send_fds(self._socket, [data], [file])
                if file is not None:
                    os.close(file)
                if done == len(data):
                    self._queue.popleft()
                else:
                    self._queue[0] = (data[done:], None)
        except BlockingIOError:
            if not self._writing:
                self._writing = True
                self._loop.add_writer(self._socket.fileno(), self._writable)
            return
        except OSError:
            self.close()
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._socket.fileno())

    def _readable(self) -> None:
        try:
            data, files, _, _ = socket.recv_fds(self._socket, READ, FILES)
        except BlockingIOError:
            return
        except OSError:
            data, files = b"", []
        self._files.extend(files)
        if not data:
            self.close()
        else:
            self._came(data)

    def _end(self) -> None:
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())
        self._socket.close()
        for _, file in self._queue:
            if file is not None:
                os.close(file)
        self._queue.clear()


class SecureWorkerLink(WorkerLink, asyncio.Protocol):
    """A worker on another machine, by TLS."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    def send(self, messages: Sequence[Message], buffers: Sequence[memoryview] = ()) -> None:
        if self.closed:
            return
        body = pickle.dumps(messages, protocol=5)
        self._transport.write(HEAD.pack(len(body), blob_size(buffers), 0) + body)
        for buffer in buffers:
            self._transport.write(buffer)
            self._transport.write(bytes(-buffer.nbytes % 64))

    def _end(self) -> None:
        self._transport.close()


class WorkerServer:
    """Where workers connect.

    Args:
        directory: for the unix socket; only this user can enter it.
        host: the address of this machine for workers on others; None: there are none.
    """

    def __init__(self, directory: Path, secret: str, listener: Listener, host: str | None) -> None:
        self.path = directory / "executor.sock"
        self.address: tuple[str, int] | None = None
        self.certificate = ""
        self._secret = secret
        self._listener = listener
        self._host = host
        self._server: asyncio.Server | None = None
        self._links: set[WorkerLink] = set()
        self._socket: socket.socket | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address cannot be used.
        """
        place = os.open(self.path.parent, os.O_PATH | os.O_CLOEXEC)
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._socket.bind(f"/proc/self/fd/{place}/{self.path.name}")
        finally:
            os.close(place)
        self.path.chmod(0o600)
        self._socket.listen(512)
        self._socket.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.add_reader(self._socket.fileno(), self._accept)
        if self._host is not None:
            context, self.certificate = await asyncio.to_thread(_secure, self.path.parent)
            self._server = await loop.create_server(
                lambda: SecureWorkerLink(self._listener, self._secret), self._host, 0, ssl=context
            )
            self.address = (self._host, int(self._server.sockets[0].getsockname()[1]))

    def _accept(self) -> None:
        assert self._socket is not None
        with contextlib.suppress(BlockingIOError, OSError):
            while True:
                connection, _ = self._socket.accept()
                UnixWorkerLink(self._listener, self._secret, connection)

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None
            self.path.unlink(missing_ok=True)
        if self._server is not None:
            self._server.close()


def _secure(directory: Path) -> tuple[ssl.SSLContext, str]:
    """A context with a certificate of its own, and the certificate of its authority, which signs nothing else."""
    from pool.outside import OutsideWorld
    from pool.wire.certificates import new_authority, new_key, new_request, sign_request

    now = OutsideWorld().wall()
    authority_key, key = new_key(), new_key()
    authority = new_authority(authority_key, "executor", now)
    certificate, _ = sign_request(authority_key, authority, new_request(key, "executor"), "executor", [], now)
    file = directory / "executor.pem"
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as opened:
        opened.write(key + certificate)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.load_cert_chain(file)
    finally:
        file.unlink()
    return context, authority
