"""Locks on the submit side's files for a job: open-file-description locks, so that jobs and programs of the submit side
exclude each other.

A lock that has to be waited for blocks no thread. `set_lock` raises `Waits`, and the caller tries again when `wake` was
called, or a while later: a program on the submit side does not say when it releases a lock.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import threading

_FLOCK = struct.Struct("@hhqqi4x")
_KINDS = (fcntl.F_UNLCK, fcntl.F_RDLCK, fcntl.F_WRLCK)
_GETLK, _SETLK = 36, 37  # F_OFD_GETLK, F_OFD_SETLK
WAIT, WHOLE, TEST = 1, 2, 4
#: The bytes that SQLite locks in the file by which users of a database share memory: each has one of them.
_DATABASE = (120, 9)


class Waits(Exception):
    """Somebody else has it."""


class Locks:
    """Those of one job."""

    def __init__(self) -> None:
        self.freed = threading.Event()

    def wake(self) -> None:
        """Something was let go of: those who wait may try again."""
        self.freed.set()

    def is_database_in_use(self, fd: int) -> bool:
        """Whether anybody else uses the database whose file for shared memory this is."""
        start, length = _DATABASE
        found = self.set_lock(fd, start, length, _KINDS.index(fcntl.F_WRLCK), TEST)
        return found is not None and found[0] != 0

    def set_lock(self, fd: int, start: int, length: int, kind: int, how: int) -> tuple[int, int, int, int] | None:
        """Take, change or let go of a lock.

        Args:
            how: `WAIT`, `WHOLE` (a lock of flock, which those of fcntl do not meet), `TEST` (only look).

        Returns:
            With TEST what is in the way: kind (0 for nothing), start, length, process (0 unknown).

        Raises:
            Waits: it is not free, and is to be waited for.
            OSError: EAGAIN where it is not to be.
        """
        if kind >= len(_KINDS):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        wanted = _FLOCK.pack(_KINDS[kind], os.SEEK_SET, start, length if length < 2**63 else 0, 0)
        if how & TEST:
            found, _, start, length, process = _FLOCK.unpack(fcntl.fcntl(fd, _GETLK, wanted))
            return (0, 0, 0, 0) if found == fcntl.F_UNLCK else (_KINDS.index(found), start, length, max(process, 0))
        try:
            if how & WHOLE:
                fcntl.flock(fd, (fcntl.LOCK_UN, fcntl.LOCK_SH, fcntl.LOCK_EX)[kind] | fcntl.LOCK_NB)
            else:
                fcntl.fcntl(fd, _SETLK, wanted)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            if how & WAIT:
                raise Waits from None
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None
        if kind == 0:
            self.wake()
        return None
