"""A bulk stream: the bytes of one stream, in one direction, on a connection of their own, with a thread at either end.

Ordinary streams share one connection with all other messages between two nodes, and each item passes the event loop
four times: as a frame, through TLS, into and out of a transport. That costs too much for bytes that a job writes all
day. The socket of a bulk stream was a connection of the protocol before, and both sides have detached it
(`WireConnection.detach`). So it takes the way that connections take, and the key was sent over TLS, which proves the
peer's identity. Then it carries frames:

    length    4 bytes, big endian: bytes that follow
    sealed    at most FRAME bytes and a tag of 16 that covers the length too: AES-GCM, nonce the frame's number

An empty frame is the end. A key serves one bulk stream only. If it breaks, the caller deals with the bytes in transit;
after `MOST` bytes the caller asks for a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING

from pool.wire.errors import ConnectionLost, LocalFault

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Bytes in a frame at most: what a processor's own cache holds twice.
FRAME = 256 << 10
#: Bytes that wait to be sent, and after that the sender.
QUEUE = 1 << 20
#: Bytes that wait to be received, and after that the other side.
INBOX = 32 << 20
#: Bytes for one key; AES-GCM stays as good as it is far beyond.
MOST = 1 << 37
#: Bytes of a key.
KEY = 16

_LENGTH = Struct(">I")
_NONCE = Struct(">IQ")
_TAG = 16


class _BulkStream(ABC):
    """One end: its socket and its thread."""

    def __init__(self, peer: socket.socket, key: bytes) -> None:
        peer.setblocking(True)
        self._peer = peer
        self._key = key
        self._frames = 0
        self._loop = asyncio.get_running_loop()
        self._changed = threading.Condition()
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._waiter: asyncio.Future[None] | None = None
        self._lost: ConnectionLost | None = None
        threading.Thread(target=self._run, name="bulk stream", daemon=True).start()

    def close(self) -> None:
        """End it, at once. Nothing happens if it is over."""
        self._end(ConnectionLost("it was closed"))

    @abstractmethod
    def _run_thread(self, cipher: AESGCM) -> None:
        """The thread's work, until the stream is over."""

    def _run(self) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes longer than the loop may

            self._run_thread(AESGCM(self._key))
        except OSError as error:
            self._end(ConnectionLost(f"a connection for bytes of a job was lost: {error.strerror or error}"))
        except ConnectionLost as error:
            self._end(error)
        finally:
            self._end(ConnectionLost("it has ended"))
            with self._changed:
                self._peer.close()

    def _end(self, why: ConnectionLost) -> None:
        with self._changed:
            if self._lost is None:
                self._lost = why
                with contextlib.suppress(OSError):
                    self._peer.shutdown(socket.SHUT_RDWR)  # wakes the thread, which closes it
            self._changed.notify()
            self._wake()

    def _wake(self) -> None:
        """With the lock: let the task go on that waits."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(_set, waiter)

    def _nonce(self) -> bytes:
        self._frames += 1
        return _NONCE.pack(0, self._frames)


class BulkSender(_BulkStream):
    """The end that sends; one task of the loop uses it.

    Args:
        peer: a connected socket, which the stream takes over.
        key: `KEY` bytes that no other stream has had.
    """

    _sent = 0

    async def send(self, data: bytes) -> None:
        """Send bytes; b'' is the end. Waits while the queue is full.

        Raises:
            ConnectionLost: the stream is over, or has carried `MOST` bytes.
        """
        self._sent += len(data)
        if self._sent > MOST:
            self._end(ConnectionLost("a connection for bytes of a job has done its work"))
        with self._changed:
            if self._lost is not None:
                raise self._lost
            self._pieces.append(data)
            self._size += len(data)
            self._changed.notify()
            if self._size <= QUEUE:
                return
            waiter = self._waiter = self._loop.create_future()
        await waiter

    def _run_thread(self, cipher: AESGCM) -> None:
        while True:
            with self._changed:
                while not self._pieces and self._lost is None:
                    self._changed.wait()
                if self._lost is not None:
                    return
                data = self._pieces.popleft()
            with memoryview(data) as view:
                for start in range(0, len(data) or 1, FRAME):
                    self._write_piece(cipher, view[start : start + FRAME])
            with self._changed:
                self._size -= len(data)
                if self._size * 2 <= QUEUE:
                    self._wake()

    def _write_piece(self, cipher: AESGCM, piece: memoryview) -> None:
        length = _LENGTH.pack(len(piece) + _TAG)
        sealed = cipher.encrypt(self._nonce(), piece, length)
        sent = self._peer.sendmsg((length, sealed))
        if sent < len(length) + len(sealed):
            self._peer.sendall((length + sealed)[sent:])


class BulkReceiver(_BulkStream):
    """The end that receives; one task of the loop uses it. For its arguments see `BulkSender`."""

    async def receive(self) -> bytes:
        """Return the next bytes in order; b'' is the end.

        Raises:
            ConnectionLost: the stream is over, or was tampered with.
        """
        while True:
            with self._changed:
                if self._pieces:
                    data = self._pieces.popleft()
                    if self._size > INBOX:
                        self._changed.notify()
                    self._size -= len(data)
                    return data
                if self._lost is not None:
                    raise self._lost
                if self._waiter is not None:
                    raise LocalFault("two readers of one bulk stream")
                waiter = self._waiter = self._loop.create_future()
            try:
                await waiter
            finally:
                self._waiter = None

    def _run_thread(self, cipher: AESGCM) -> None:
        length, buffer = memoryview(bytearray(_LENGTH.size)), memoryview(bytearray(FRAME + _TAG))
        data = b"-"
        while data:
            self._fill(length)
            (size,) = _LENGTH.unpack(length)
            if not _TAG <= size <= len(buffer):
                raise ConnectionLost("a connection for bytes of a job carries something else")
            self._fill(buffer[:size])
            data = self._opened(cipher, buffer[:size], length)
            with self._changed:
                while self._size > INBOX and self._lost is None:
                    self._changed.wait()
                self._pieces.append(data)
                self._size += len(data)
                self._wake()

    def _fill(self, view: memoryview) -> None:
        while view:
            count = self._peer.recv_into(view, len(view), socket.MSG_WAITALL)
            if count == 0:
                raise ConnectionLost("a connection for bytes of a job was closed by the other side")
            view = view[count:]

    def _opened(self, cipher: AESGCM, sealed: memoryview, length: memoryview) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return cipher.decrypt(self._nonce(), sealed, length)
        except InvalidTag:
            raise ConnectionLost("a connection for bytes of a job carries what was tampered with") from None


def _set(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
