"""Bare programs that make only the system calls, or load only the libraries, which a figure cannot do without.

They are measured beside the pool in the same run. What is above such a floor is the pool's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.benchmarks import processes

#: The libraries that a node with all roles loads.
LIBRARIES = "asyncio, ssl, sqlite3, msgpack, psutil, uvloop, zstandard"
#: Bytes of a message as long as that of a submit.
MESSAGE = 300
#: Seconds in which a bare program says that it is ready.
LONGEST = 30.0
#: Takes the messages that have come, writes a row for each, commits as the schedd's store does, and answers each.
_STORE = f"""
import socket, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = WAL")
database.execute("PRAGMA synchronous = FULL")
database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, ad BLOB)")
connection = socket.socket(fileno=int(sys.argv[2]))
rest = b""
while data := connection.recv(1 << 20):
    rest += data
    messages = len(rest) // {MESSAGE}
    database.execute("BEGIN")
    for number in range(messages):
        database.execute("INSERT INTO jobs (ad) VALUES (?)", (rest[number * {MESSAGE}:(number + 1) * {MESSAGE}],))
    database.execute("COMMIT")
    rest = rest[messages * {MESSAGE}:]
    connection.sendall(b"." * messages)
"""


def durable_messages(count: int, under_way: int) -> float:
    """Messages a second that a bare program answers over a unix socket after SQLite has them on the disk.

    Args:
        under_way: messages that are sent before the answers to them are read.
    """
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory, ours:
        arguments = [sys.executable, "-c", _STORE, str(Path(directory, "store")), str(theirs.fileno())]
        with subprocess.Popen(arguments, pass_fds=[theirs.fileno()]) as program:
            theirs.close()
            message = bytes(MESSAGE)
            ours.sendall(message)  # the first waits until the program has begun
            _receive(ours, 1)
            began, left = time.perf_counter(), count
            while left:
                together = min(under_way, left)
                ours.sendall(message * together)
                _receive(ours, together)
                left -= together
            took = time.perf_counter() - began
            ours.shutdown(socket.SHUT_WR)
            assert program.wait(LONGEST) == 0
    return count / took


def _receive(connection: socket.socket, count: int) -> None:
    while count:
        got = len(connection.recv(count))
        assert got, "the bare program ended"
        count -= got


@contextlib.contextmanager
def python_with(modules: str) -> Iterator[int]:
    """A Python that has imported these, and waits; its process."""
    code = f"import os, {modules}; os.write(1, b'.'); os.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.read(1) == b".", "the libraries cannot be imported"
        try:
            yield program.pid
        finally:
            program.send_signal(signal.SIGKILL)


def library_memory() -> tuple[int, int]:
    """(resident, proportional) bytes of a Python that has imported the libraries of a node, and nothing of the pool."""
    with python_with(LIBRARIES) as process:
        return processes.memory(process)


def written(path: Path, megabytes: int) -> float:
    """Seconds for that much memory to be written to a new file in order, which is removed then."""
    block = os.urandom(1 << 20)
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(block)
    took = time.perf_counter() - began
    path.unlink()
    return took
