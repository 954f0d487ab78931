"""The content of files before a job changed it: their lengths, and the bytes it overwrote or cut off."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from pool.remoteio.journal.book import Book, Identity, Note
from pool.remoteio.journal.extents import Extents
from pool.remoteio.journal.removed_files import identity_of


@dataclass(slots=True)
class _Touched:
    length: int
    saved: Extents = field(default_factory=Extents)


class Contents:
    """The state of the files that were changed since the last mark."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._touched: dict[Identity, _Touched] = {}

    def before_write(self, fd: int, offset: int, size: int) -> None:
        """Bytes of an open file are going to be overwritten, or the file to grow."""
        with self._book.lock:
            self._before_change(fd, offset, offset + size)

    def before_truncate(self, fd: int, size: int) -> None:
        """An open file is going to get this length."""
        with self._book.lock:
            self._before_change(fd, size, os.fstat(fd).st_size)

    def appending(self, unique: int, fd: int, data: bytes | memoryview) -> bool:
        """Bytes are going to be appended; whether they have been already, for this request."""
        book = self._book
        with book.lock:
            status = os.fstat(fd)
            self._before_change(fd, status.st_size, status.st_size + len(data))
            known = book.pop_begun(unique)
            if known is not None and known[0] == "a":
                if os.pread(fd, len(data), known[5]) == data:
                    return True
            else:
                book.write_record(["a", book.next(), unique, status.st_dev, status.st_ino, status.st_size])
            return False

    def _before_change(self, fd: int, start: int, end: int) -> None:
        status = os.fstat(fd)
        identity = identity_of(status)
        if self._book.why or identity in self._book.fresh:
            return
        touched = self._touched.get(identity)
        path = os.fsencode(os.readlink(f"/proc/self/fd/{fd}"))
        if touched is None:
            self._book.volumes.changed(status.st_dev, path)
            touched = self._touched[identity] = _Touched(status.st_size)
            times = (status.st_atime_ns, status.st_mtime_ns)
            self._book.write_record(["l", self._book.next(), 0, path, *identity, status.st_size, *times])
        for gap_start, gap_end in touched.saved.missing(start, min(end, touched.length)):
            self._save(fd, path, identity, gap_start, gap_end)
            touched.saved.add(gap_start, gap_end)

    def _save(self, fd: int, path: bytes, identity: Identity, start: int, end: int) -> None:
        book = self._book
        try:
            source = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            book.disable(f"what it overwrites in {os.fsdecode(path)} may not be read: {error.strerror}")
            return
        try:
            for hole, begin, finish in _parts(source, start, end):
                if hole:
                    book.write_record(["z", book.next(), 0, path, *identity, begin, finish - begin])
                elif not book.full(finish - begin):
                    for piece in book.current.save(source, begin, finish):
                        book.write_record(["x", book.next(), 0, path, *identity, *piece])
        except OSError as error:
            book.disable(f"its undo journal cannot be written: {error.strerror}")
        finally:
            os.close(source)

    def load_record(self, record: Note) -> None:
        """Take up a note of contents."""
        if record[0] == "l":
            self._book.volumes.changed(record[4], record[3])
            self._touched[record[4], record[5]] = _Touched(record[6])
        elif record[0] in ("x", "z"):
            self._touched[record[4], record[5]].saved.add(record[6], record[6] + record[7])

    def forget(self) -> None:
        """Know nothing of the notes that are there."""
        self._touched.clear()


def _parts(source: int, start: int, end: int) -> Iterator[tuple[bool, int, int]]:
    """The pieces of a range of a file: (whether it is a hole, start, end), in order."""
    while start < end:
        try:
            data = min(os.lseek(source, start, os.SEEK_DATA), end)
        except OSError as error:
            if error.errno != errno.ENXIO:  # not: nothing but a hole from there on
                raise
            data = end
        if data > start:
            yield True, start, data
        if data < end:
            start = min(os.lseek(source, data, os.SEEK_HOLE), end)
            yield False, data, start
        else:
            start = end
