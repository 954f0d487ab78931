"""A connection's requests, one after the other: bytes into frames, nothing copied that is large.

This module knows neither the meaning of a request nor the thread that does it (`session`).
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from pool.remoteio import frames
from pool.remoteio.frames import MalformedFrame, Op

_ROOM = 256 * 1024
#: A frame of more bytes has a buffer of its own, into which it is received.
_LARGE = 32 * 1024
_WRITE = struct.Struct("<QQI")
_OPS = {int(op): op for op in Op}


class RequestReader:
    """One connection; read by one thread at a time.

    Attributes:
        greeted: whether a HELLO came.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.greeted = False
        self._room = memoryview(bytearray(_ROOM))
        self._start = self._end = 0

    def request(self) -> tuple[Op | int, int, list[Any]] | None:
        """The next request: operation, unique, values; a WRITE's data as a view of its own. None at the end.

        An operation that is not known has no values.

        Raises:
            MalformedFrame, ValueError: it is none.
            OSError: the connection is broken.
        """
        while True:
            have = self._end - self._start
            if have >= frames.HEADER:
                size, number, _, unique = frames.header(self._room, self._start)
                if have >= size:
                    body = self._room[self._start + frames.HEADER : self._start + size].tobytes()
                    self._start += size
                    return self._parsed(number, unique, body)
                if size > _LARGE:
                    return self._parsed(number, unique, self._large(size))
            if self._start == self._end:
                self._start = self._end = 0
            elif self._end > _ROOM - _LARGE:
                self._room[:have] = self._room[self._start : self._end].tobytes()
                self._start, self._end = 0, have
            count = self.connection.recv_into(self._room[self._end :])
            if not count:
                return None
            self._end += count

    def _large(self, size: int) -> memoryview:
        frame = memoryview(bytearray(size))
        have = self._end - self._start
        frame[:have] = self._room[self._start : self._end]
        self._start = self._end = 0
        while have < size:
            count = self.connection.recv_into(frame[have:])
            if not count:
                raise MalformedFrame("a frame that is cut off")
            have += count
        return frame[frames.HEADER :]

    @staticmethod
    def _parsed(number: int, unique: int, body: bytes | memoryview) -> tuple[Op | int, int, list[Any]]:
        op = _OPS.get(number)
        if op is None:
            return number, unique, []
        if op is not Op.WRITE:
            return op, unique, frames.values_of(frames.REQUESTS[op], bytes(body))
        if len(body) < _WRITE.size:
            raise MalformedFrame("a body that is cut off")
        handle, offset, size = _WRITE.unpack_from(body)
        data = body[_WRITE.size :]
        if len(data) != size:
            raise MalformedFrame("a body that is too long or cut off")
        return op, unique, [handle, offset, data]
