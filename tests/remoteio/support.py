"""Helpers for the tests of remote input and output: the submit side's files without a process, and a job that speaks to
one.
"""

from __future__ import annotations

import array
import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

from pool.remoteio import frames
from pool.remoteio.file_operations import FileOperations
from pool.remoteio.frames import Op
from pool.remoteio.journal import ChangeJournal
from pool.remoteio.path_lookup import Places
from pool.remoteio.trees import Tree

PLENTY = 64 * 1024 * 1024


class Desk:
    """Home's operations on a tree, called directly; names are relative to it."""

    def __init__(self, tree: Path, journal: Path, *, limit: int = PLENTY, readonly: bool = False) -> None:
        self.tree = tree
        self._journal = journal
        self.limit = limit
        self._unique = 0
        self._readonly = readonly
        self.open()

    def open(self) -> None:
        self.directory = os.open(self._journal, os.O_RDONLY | os.O_DIRECTORY)
        self.work = FileOperations(Places([Tree(str(self.tree), self._readonly)]))
        self.journal = self.work.journal = ChangeJournal(
            self.directory, "1.0", self.work.places, self.limit, self.work.is_open
        )

    def again(self) -> None:
        """As after a kill: nothing but what is on disk."""
        self.close()
        self.open()

    def close(self) -> None:
        self.work.close_all()
        self.work.places.close()
        self.journal.close()
        os.close(self.directory)

    def path(self, name: str) -> bytes:
        return os.fsencode(self.tree / name) if name else os.fsencode(self.tree)

    def do(self, operation: str, *arguments: Any, unique: int = 0) -> tuple[Any, ...]:
        """Names among the arguments become paths."""
        if not unique:
            self._unique += 1
            unique = self._unique
        given = [self.path(value) if isinstance(value, str) else value for value in arguments]
        found: tuple[Any, ...] = getattr(self.work, operation)(unique, *given)
        return found

    def unlink_names(self, directory: str, *names: bytes, unique: int = 0) -> list[tuple[int, int]]:
        """Remove several names at once; each takes a number, the last one `unique`. Answers what is refused."""
        if not unique:
            self._unique += len(names)
            unique = self._unique
        refused: list[tuple[int, int]] = self.do("unlink_names", directory, [[name] for name in names], unique=unique)[
            0
        ]
        return refused


def picture(tree: Path) -> dict[str, Any]:
    """Everything in a tree that a job could see, extended attributes too, but for times and inodes."""
    found: dict[str, Any] = {}
    for directory, names, files in os.walk(tree):
        for name in [*names, *files]:
            path = Path(directory, name)
            status = path.lstat()
            what: Any = None
            if stat.S_ISLNK(status.st_mode):
                what = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                what = path.read_bytes()
            own = [one for one in os.listxattr(path, follow_symlinks=False) if one.startswith("user.")]
            extra = [{one: os.getxattr(path, one, follow_symlinks=False) for one in own}] if own else []
            kind, rights = stat.S_IFMT(status.st_mode), stat.S_IMODE(status.st_mode)
            found[str(path.relative_to(tree))] = (kind, rights, what, *extra)
    return found


class HomeProcess:
    """A real home, and its node's end."""

    def __init__(self, uid: int | None = None, gid: int | None = None) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(20.0)
        identity = (os.getuid() if uid is None else uid, os.getgid() if gid is None else gid)
        self._number = 0
        self.events: list[dict[str, Any]] = []
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _START.format(fd=theirs.fileno()), *map(str, identity)],
                pass_fds=[theirs.fileno()],
            )

    def ask(self, do: str, fds: tuple[int, ...] = (), **fields: Any) -> dict[str, Any]:
        self._number += 1
        data = json.dumps({"id": self._number, "do": do, **fields}).encode()
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.control.sendmsg([data], rights)
        answer: dict[str, Any] = json.loads(self.control.recv(1 << 18))
        while "event" in answer:
            self.events.append(answer)
            answer = json.loads(self.control.recv(1 << 18))
        assert answer["id"] == self._number
        return answer

    def open(
        self, tree: Path, journal: Path, *, run: int = 1, back_to: int | None = None, job: str = "1.0", **more: Any
    ) -> JobEnd:
        """A start of a job, or its connection again."""
        fields: dict[str, Any] = {"allowed": "/", "trees": None, "writes": [str(tree)], "reads": []}
        fields |= {"hidden": [], "limit": PLENTY, "nonce": "", "watches": 1000, **more}
        ours, theirs = socket.socketpair()
        directory = os.open(journal, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with theirs:
                fds = (directory, theirs.fileno())
                self.answer = self.ask("open", fds, job=job, run=run, back_to=back_to, **fields)
        finally:
            os.close(directory)
        return JobEnd(ours, tree)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.control.close()

    def close(self) -> None:
        self.control.close()
        assert self.process.wait(20) == 0


_START = """
import os, sys
os.dup2({fd}, 3)
os.set_inheritable(3, False)
from pool.remoteio.file_server import main
main()
"""


class Refused(OSError):
    """An answer with an errno."""


class JobEnd:
    """The execute side of a connection, one request at a time or several."""

    def __init__(self, end: socket.socket, tree: Path) -> None:
        self.end = end
        self.tree = tree
        self.end.settimeout(20.0)
        self._buffer = b""
        self._unique = 100
        #: The unasked messages of the submit side: (number of a lease, name).
        self.notices: list[tuple[int, bytes]] = []

    def hello(self) -> list[Any]:
        return self.ask(Op.HELLO, frames.VERSION, b"1.0", b"")

    def path(self, name: str) -> bytes:
        return os.fsencode(self.tree / name) if name else os.fsencode(self.tree)

    def send(self, op: Op, *values: Any, unique: int = 0) -> int:
        """Send a request; names among the values become paths."""
        if not unique:
            self._unique += 1
            unique = self._unique
        given = [self.path(value) if isinstance(value, str) else value for value in values]
        self.end.sendall(frames.request(op, unique, *given))
        return unique

    def receive(self) -> tuple[int, int, list[Any]]:
        """The next answer: (unique, errno, values)."""
        while (found := self._frame()) is None:
            pass
        return found

    def told(self, number: int, name: bytes) -> None:
        """Wait until the submit side reports a name under a lease; forgets earlier reports."""
        while (number, name) not in self.notices:
            assert self._frame() is None
        del self.notices[: self.notices.index((number, name)) + 1]

    def _frame(self) -> tuple[int, int, list[Any]] | None:
        """The next frame, if it is an answer; a notice is kept."""
        while len(self._buffer) < frames.HEADER or len(self._buffer) < frames.header(self._buffer)[0]:
            piece = self.end.recv(1 << 20)
            if not piece:
                raise EOFError
            self._buffer += piece
        size, op, error, unique = frames.header(self._buffer)
        body, self._buffer = self._buffer[frames.HEADER : size], self._buffer[size:]
        if op == frames.NOTICE:
            self.notices += [(number, name) for number, name in frames.values_of(frames.NOTICED, body)[0]]
            return None
        return unique, error, [] if error else frames.values_of(frames.ANSWERS[Op(op)], body)

    def ask(self, op: Op, *values: Any, unique: int = 0) -> list[Any]:
        """Ask and wait. Raises Refused."""
        sent = self.send(op, *values, unique=unique)
        got, error, found = self.receive()
        assert got == sent
        if error:
            raise Refused(error, os.strerror(error))
        return found

    def close(self) -> None:
        self.end.close()
