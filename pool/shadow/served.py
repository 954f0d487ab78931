"""The file server: a process that became one user and does file operations for the schedd of a root node.

Started by `pool.shadow.files.ServedFiles` with a socket on descriptor 3 and the identity on its command line.
It gives up root for good before it reads the first request, so that nothing a request can say reaches beyond
the rights of that user. It ends when the socket does. One request is done at a time.

Frames: four bytes of length, most significant first, then msgpack: [number, operation, arguments] one way; [number,
true, result], [number, false, errno] or [number, null, text of a defect] the other. Behind each answer stand the
processor seconds that were used since the answer before.
"""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys
from typing import Any

import msgpack

from pool.identity import SOCKET, become
from pool.shadow.access import Access, operation_of

LARGEST = 16 * 1024 * 1024


def _receive(size: int) -> bytes:
    pieces = bytearray()
    while len(pieces) < size:
        piece = os.read(SOCKET, size - len(pieces))
        if not piece:
            raise EOFError
        pieces += piece
    return bytes(pieces)


def _send(message: list[Any]) -> None:
    body = msgpack.packb(message, unicode_errors="surrogateescape")
    view = memoryview(struct.pack(">I", len(body)) + body)
    while view:
        view = view[os.write(SOCKET, view) :]


def answer(access: Access, request: list[Any]) -> list[Any]:
    """Do one request."""
    number, name, arguments = request
    try:
        return [number, True, operation_of(access, name)(*arguments)]
    except OSError as error:
        return [number, False, error.errno or 5]
    except ValueError:
        return [number, False, errno.EINVAL]
    except Exception as defect:
        return [number, None, f"{type(defect).__name__}: {defect}"]


def _cpu_used() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Serve until the socket ends."""
    uid, gid, *groups = (int(word) for word in sys.argv[1:])
    become(uid, gid, groups)
    os.chdir("/")
    os.umask(0o022)
    access = Access()
    reported = 0.0
    try:
        while True:
            (size,) = struct.unpack(">I", _receive(4))
            if size > LARGEST:
                return
            done = answer(access, msgpack.unpackb(_receive(size), unicode_errors="surrogateescape"))
            used = _cpu_used()
            _send([*done, used - reported])
            reported = used
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass


if __name__ == "__main__":
    main()
