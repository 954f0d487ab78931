"""A link between two machines' relays: what a relay writes arrives at the other one, encrypted on the way.

The connection was one of the protocol, and both nodes have detached it (as for `pool.wire.bulk_stream`, whose frames
it carries too). Two threads move bytes between it and a stream to the relay, without the event loop: a packet's way is
short then. A relay that is not read writes no more, and drops packets instead; so nothing here grows. When either side
ends, both do, and the caller connects again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from pool.wire.bulk_stream import FRAME, KEY, MOST

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Bytes of the keys of both directions; the dialing side sends with the first.
KEYS = 2 * KEY
_LENGTH, _NONCE = Struct(">I"), Struct(">IQ")
_TAG = 16


class SealedLink:
    """One link, from its making until either side ends.

    Args:
        peer: the connection to the other machine; the link takes it over.
        keys: `KEYS` bytes that no other link has had.
        dialed: whether this side made the connection.
        ended: called on the event loop when the link is over.
    """

    def __init__(self, peer: socket.socket, keys: bytes, *, dialed: bool, ended: Callable[[], None]) -> None:
        peer.setblocking(True)
        with contextlib.suppress(OSError):  # not of TCP
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peer = peer
        self._own, self.relay = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.relay.setblocking(False)
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._left = 2
        first, second = keys[:KEY], keys[KEY:]
        sending, receiving = (first, second) if dialed else (second, first)
        for move, key in ((self._send, sending), (self._receive, receiving)):
            threading.Thread(target=self._run, args=(move, key), name="network link", daemon=True).start()

    def close(self) -> None:
        """End it; its threads end by themselves."""
        for end in (self._peer, self._own):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _run(self, move: Callable[[AESGCM], None], key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes longer than the loop may

        with contextlib.suppress(OSError, InvalidTag):
            move(AESGCM(key))
        self.close()
        with self._lock:
            self._left -= 1
            last = not self._left
        if last:
            self._peer.close()
            self._own.close()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._ended)

    def _send(self, cipher: AESGCM) -> None:
        buffer, sent, number = memoryview(bytearray(FRAME)), 0, 0
        while (count := self._own.recv_into(buffer)) and sent < MOST:
            number, sent = number + 1, sent + count
            length = _LENGTH.pack(count + _TAG)
            sealed = cipher.encrypt(_NONCE.pack(0, number), buffer[:count], length)
            done = self._peer.sendmsg((length, sealed))
            if done < len(length) + len(sealed):
                self._peer.sendall((length + sealed)[done:])

    def _receive(self, cipher: AESGCM) -> None:
        buffer, number = memoryview(bytearray(_LENGTH.size + FRAME + _TAG)), 0
        while self._fill(buffer[: _LENGTH.size]):
            number += 1
            (size,) = _LENGTH.unpack(buffer[: _LENGTH.size])
            if not _TAG < size <= FRAME + _TAG:
                return
            sealed = buffer[_LENGTH.size : _LENGTH.size + size]
            if not self._fill(sealed):
                return
            self._own.sendall(cipher.decrypt(_NONCE.pack(0, number), sealed, buffer[: _LENGTH.size]))

    def _fill(self, view: memoryview) -> bool:
        while view:
            count = self._peer.recv_into(view, len(view), socket.MSG_WAITALL)
            if not count:
                return False
            view = view[count:]
        return True
