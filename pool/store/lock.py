"""One store, one schedd: an advisory lock on a file beside the store that says who holds it.

The kernel drops the lock with its holder, however that ends. On file systems without flock (some network
ones) it protects only as far as they do.
"""

from __future__ import annotations

import fcntl
import os

from pool.decimals import has_digits_only
from pool.store.errors import StoreBusy, StoreUnwritable


class StoreLock:
    """Held from construction to `release`.

    Raises:
        StoreBusy: somebody else holds it; the message gives the process id that was written into the file.
    """

    def __init__(self, path: str) -> None:
        self._path = path + ".lock"
        try:
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreUnwritable(
                f"cannot open store {path}: {error.strerror}",
                hint="check that its directory exists and may be written",
                retry=True,
            ) from error
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._fd, 32, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            who = f"process {holder}" if has_digits_only(holder) else "another process"
            raise StoreBusy(
                f"cannot open store {path}: another schedd works on it ({who})",
                hint="stop that one, or give this one a directory of its own",
                retry=True,
            ) from error
        # The holder is written only for the message above; a full disk must not keep the schedd from starting.
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, b"%d\n" % os.getpid(), 0)
        except OSError:
            pass

    def release(self) -> None:
        """Let go. The file stays: removing it would let two holders lock two different files."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
