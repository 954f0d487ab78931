"""The reports of jobs: datagrams over a socket in the file system, which no fault cuts. See `reporter.c`."""

from __future__ import annotations

import os
import socket
import struct
import threading
from dataclasses import dataclass, field
from pathlib import Path

#: pid, uid, gid
CREDENTIALS = struct.Struct("3i")


@dataclass(slots=True)
class Copy:
    """One process of a job: one start of it, or one restart from a checkpoint. Times are real time.

    Attributes:
        began, seen: its first report and its last.
        ticks: the first that it reported, and the last.
        machine: filled in by `Machine.has` when its first report came.
    """

    pid: int
    began: float
    seen: float
    first: int
    last: int
    whole: bool = False
    machine: str = ""


@dataclass(slots=True)
class Reports:
    """Takes in all reports.

    Attributes:
        copies: by job, in the order of their first reports.
    """

    path: Path
    copies: dict[str, list[Copy]] = field(default_factory=dict)
    _socket: socket.socket = field(default_factory=lambda: socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))

    def listen(self) -> None:
        """Begin, in a thread: a job waits while nobody reads."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(self.path))
        self.path.chmod(0o777)
        threading.Thread(target=self._read, name="reports", daemon=True).start()

    def _read(self) -> None:
        while True:
            text, parts, _, _ = self._socket.recvmsg(256, socket.CMSG_SPACE(CREDENTIALS.size))
            for level, kind, data in parts:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    self._take(text.decode(), CREDENTIALS.unpack(data[: CREDENTIALS.size])[0])

    def _take(self, text: str, pid: int) -> None:
        job, what, tick, at = text.split()
        copies = self.copies.setdefault(job, [])
        for copy in copies:
            if copy.pid == pid:
                break
        else:
            copy = Copy(pid, float(at), float(at), int(tick), int(tick))
            copies.append(copy)
        copy.seen, copy.last = float(at), int(tick)
        copy.whole = copy.whole or what == "end"

    def alive(self, job: str) -> list[Copy]:
        """The copies of a job whose processes are there."""
        return [copy for copy in self.copies.get(job, ()) if not copy.whole and os.path.exists(f"/proc/{copy.pid}")]
