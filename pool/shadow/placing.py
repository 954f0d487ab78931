"""Putting very many outputs in their places as one: with few open files, and finished or undone after a crash.

    journal -> some files written, noted in the journal, given a name aside -> ... -> commit -> renamed, some at a time

The journal is a file of the user's beside the outputs; the schedd's store keeps its name only. Without the mark at its
end all that it names aside goes away again; with it, all of that goes to its place. So neither memory nor descriptors
grow with the number of files. Done with the rights of the files' owner, as all of `pool.shadow.access`.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterable, Iterator

CHUNK = 256 * 1024
#: So many files at once are cheaper to see on disk by their file system than one by one.
MANY = 16
#: No place has a name of no characters.
_MARK = b"\0whole\0"
_libc = ctypes.CDLL(None, use_errno=True)


class OutputJournal:
    """One job's outputs on their way to their places."""

    def __init__(self, path: str, *, new: bool) -> None:
        flags = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | (os.O_CREAT | os.O_EXCL if new else 0)
        self.path = path
        self._fd = os.open(path, flags, 0o600)
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            os.close(self._fd)
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), path)
        if new:
            sync_directory(os.path.dirname(path))
        self._pending: Iterator[tuple[str, str]] | None = None
        self._last = ""

    def close(self) -> None:
        os.close(self._fd)

    def record_pairs(self, pairs: Iterable[tuple[str, str]]) -> None:
        """(name aside, place) of files that are about to get their names aside; on disk when this returns."""
        data = b"".join(os.fsencode(aside) + b"\0" + os.fsencode(place) + b"\0" for aside, place in pairs)
        os.lseek(self._fd, 0, os.SEEK_END)
        write_all(self._fd, data)
        os.fsync(self._fd)

    def commit(self) -> None:
        """From here on all of it goes to its place, whatever happens."""
        os.lseek(self._fd, 0, os.SEEK_END)
        write_all(self._fd, _MARK)
        os.fsync(self._fd)

    @property
    def committed(self) -> bool:
        size = os.fstat(self._fd).st_size
        return size >= len(_MARK) and os.pread(self._fd, len(_MARK), size - len(_MARK)) == _MARK

    def rename_into_place(self, most: int) -> bool:
        """Put at most so many in their places; True when all are, and the journal is gone."""
        if self._pending is None:
            self._pending = self._pairs()
        for _ in range(most):
            pair = next(self._pending, None)
            if pair is None:
                self._sync_previous("")
                os.unlink(self.path)
                return True
            with contextlib.suppress(FileNotFoundError):  # it was there before a crash
                os.replace(*pair)
            self._sync_previous(os.path.dirname(pair[1]))
        return False

    def undo(self) -> None:
        """Remove all that has a name aside, and the journal."""
        for aside, _ in self._pairs():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        os.unlink(self.path)

    def _sync_previous(self, directory: str) -> None:
        """See what was renamed in a directory on disk, once the next one is another."""
        if self._last and self._last != directory:
            sync_directory(self._last)
        self._last = directory

    def _pairs(self) -> Iterator[tuple[str, str]]:
        """The notes, as far as they are whole."""
        left, at, aside = b"", 0, b""
        while chunk := os.pread(self._fd, CHUNK, at):
            at += len(chunk)
            *texts, left = (left + chunk).split(b"\0")
            for text in texts:
                if aside:
                    yield os.fsdecode(aside), os.fsdecode(text)
                    aside = b""
                elif not text:  # the mark
                    return
                else:
                    aside = text


def sync_files(descriptors: list[int]) -> None:
    """See the contents of files on disk."""
    if len(descriptors) < MANY:
        for fd in descriptors:
            os.fsync(fd)
        return
    for fd in {os.fstat(fd).st_dev: fd for fd in descriptors}.values():
        sync_volume(fd)


def sync_volume(fd: int) -> None:
    """See all on disk that was written in the file system of an open file."""
    if _libc.syncfs(fd) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def sync_directory(path: str) -> None:
    """See the names in a directory on disk."""
    fd = os.open(path or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
