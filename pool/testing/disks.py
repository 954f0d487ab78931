"""Disks of machines that do not exist, which can be full: real files, and what the kernel says of one more byte.

    disk = Disk(Path("/tmp/x/m1"))
    store = Store.open(path, inline=True, factory=disk.connect)
    with nothing_fits([disk]):
        disk.full = True         # no commit, no directory, no input is taken below its path

Stored data can be read and removed, and a row that is to change needs room, as in SQLite's log.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from pool.starter import staging

SHARED_MEMORY = Path("/dev/shm")


@dataclass(slots=True, eq=False)
class Disk:
    """One machine's: what lies below a directory, and the stores that were opened with `connect`."""

    path: Path
    full: bool = False

    def connect(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        """A connection to a store on this disk; takes what `sqlite3.Connection` does."""
        connection = _OnDisk(*args, **kwargs)
        connection.disk = self
        return connection

    def holds(self, path: Any) -> bool:
        """Whether a path lies on it."""
        return isinstance(path, (str, bytes, os.PathLike)) and Path(os.fsdecode(path)).is_relative_to(self.path)


class _OnDisk(sqlite3.Connection):
    """Commits nothing that has changed something while the disk is full."""

    disk: Disk
    _before = 0

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql.startswith("BEGIN"):
            self._before = self.total_changes
        elif sql == "COMMIT" and self.disk.full and self.total_changes > self._before:
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error
        return super().execute(sql, *args)


def memory_directory() -> Path | None:
    """The machine's directory in memory, where a directory is made and removed in microseconds; None if it has none."""
    return SHARED_MEMORY if os.access(SHARED_MEMORY, os.W_OK | os.X_OK) else None


@contextlib.contextmanager
def nothing_fits(disks: Iterable[Disk]) -> Iterator[None]:
    """While it lasts, those of the disks that are full take no new directory and no bytes of a job's input."""
    make_directory, write_all = os.mkdir, staging.write_all

    def refuse(path: Any) -> None:
        if any(disk.full and disk.holds(path) for disk in disks):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        if not os.path.lexists(path):
            refuse(path)
        make_directory(path, *args, **kwargs)

    def write(file: int, data: bytes) -> None:
        refuse(os.readlink(f"/proc/self/fd/{file}"))
        write_all(file, data)

    with mock.patch.object(os, "mkdir", mkdir), mock.patch.object(staging, "write_all", write):
        yield
