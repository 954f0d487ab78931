"""The keepers' directory as a node reads it: which cells are free, running, ended, and which keeper is dead.

A cell is a file (struct cell in pool/checkpoint/common/messages.h). A keeper holds a lock on its cell until no process
of its job is left; this module looks at locks but takes none for longer than the look.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from pool.checkpoint.messages_table import CellState
from pool.decimals import has_digits_only
from pool.starter.messages import CELL_LEASE, LEASE_END, Cell, unpack_cell
from pool.starter.spec import KeeperError

_STATE_OFFSET = 8
_FREE = struct.pack("=I", CellState.FREE)


class Directory:
    """The cells of one node.

    Args:
        path: made if absent, for its owner only. One node at a time may have it open.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self.fd = -1

    def open(self) -> None:
        """Take the directory.

        Raises:
            KeeperError: it cannot be made, or another node has it.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            self._lock = os.open("node", os.O_RDWR | os.O_CREAT, 0o600, dir_fd=self.fd)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.close()
            if error.errno == errno.EWOULDBLOCK:
                raise KeeperError(
                    f"cannot open the keepers' directory {self.path}: another node is using it",
                    hint="stop that node, or give this one another state directory",
                    retry=True,
                ) from error
            raise KeeperError(
                f"cannot open the keepers' directory {self.path}: {os.strerror(error.errno or 0).lower()}",
                hint="check its rights and the space on its disk",
            ) from error

    def close(self) -> None:
        """Give the directory back."""
        for fd in (self.fd, self._lock):
            if fd >= 0:
                os.close(fd)
        self.fd = self._lock = -1

    def socket(self, cell: int) -> str:
        """The name of a cell's socket; by way of /proc, since a socket's name has only 107 bytes."""
        return f"/proc/self/fd/{self.fd}/cell.{cell}.socket"

    def numbers(self) -> list[int]:
        """All cells there are, free ones too."""
        names = (name.removeprefix("cell.") for name in os.listdir(self.fd) if name.startswith("cell."))
        return sorted(int(name) for name in names if has_digits_only(name))

    def read(self, cell: int) -> Cell | None:
        """The content of a cell; None when it is empty, or of a form that this version cannot read."""
        try:
            fd = os.open(f"cell.{cell}", os.O_RDONLY, dir_fd=self.fd)
        except FileNotFoundError:
            return None
        try:
            return unpack_cell(os.pread(fd, os.fstat(fd).st_size, 0))
        finally:
            os.close(fd)

    def locked(self, cell: int) -> bool:
        """Whether a keeper has the cell: there may be processes of its job."""
        try:
            fd = os.open(f"cell.{cell}", os.O_RDONLY, dir_fd=self.fd)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except BlockingIOError:
            return True
        finally:
            os.close(fd)

    def renew(self, cell: int, end_us: int) -> None:
        """Note the end of a running job's lease, for whoever finds its keeper, or finds it standing still."""
        fd = os.open(f"cell.{cell}", os.O_WRONLY, dir_fd=self.fd)
        try:
            os.pwrite(fd, LEASE_END.pack(end_us), CELL_LEASE)
        finally:
            os.close(fd)

    def free(self, cell: int) -> None:
        """Drop what a cell holds; durable against the death of any process when this returns."""
        fd = os.open(f"cell.{cell}", os.O_WRONLY, dir_fd=self.fd)
        try:
            os.pwrite(fd, _FREE, _STATE_OFFSET)
        finally:
            os.close(fd)


def same_process(pid: int, born_us: int) -> bool:
    """Whether a process id still means the one born then (since boot), give or take a second."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            after_name = file.read().rpartition(b")")[2].split()
        began = int(after_name[19]) / os.sysconf("SC_CLK_TCK")
        return abs(began - born_us / 1e6) < 1.0
    return False
