"""Rights, owners, times and extended attributes of files before a job set them."""

from __future__ import annotations

import errno
import os
import stat as modes

from pool.remoteio import kernel
from pool.remoteio.journal.book import Book, Identity, Note
from pool.remoteio.journal.removed_files import identity_of, status_of
from pool.remoteio.path_lookup import NameInDirectory

KINDS = frozenset("potX")
#: The prefixes of extended attributes that every owner of a file may use.
USERS = b"user."


class AttributeChanges:
    """The attributes that were set since the last mark."""

    def __init__(self, book: Book) -> None:
        self._book = book
        self._attributes: set[tuple[Identity, bytes]] = set()

    def before(self, kind: str, path: bytes, place: NameInDirectory) -> None:
        """Rights ('p'), owner ('o') or times ('t') are going to be changed."""
        with self._book.lock:
            self._before(kind, path, status_of(place))

    def before_open(self, kind: str, fd: int) -> None:
        """The same for an open file."""
        with self._book.lock:
            self._before(kind, None, os.fstat(fd), fd)

    def _before(self, kind: str, path: bytes | None, status: os.stat_result, fd: int = -1) -> None:
        if identity_of(status) in self._book.fresh:
            return
        values = {
            "p": (modes.S_IMODE(status.st_mode),),
            "o": (status.st_uid, status.st_gid, modes.S_IMODE(status.st_mode)),
            "t": (status.st_atime_ns, status.st_mtime_ns),
        }[kind]
        where = path if path is not None else os.readlink(kernel.path_of(fd))
        self._record_change(kind, where, status, *values)

    def before_attribute(self, path: bytes, place: NameInDirectory, name: bytes) -> None:
        """An extended attribute is going to be set or removed; noted once for each mark."""
        with self._book.lock:
            status = status_of(place)
            identity = identity_of(status)
            able = modes.S_ISREG(status.st_mode) or modes.S_ISDIR(status.st_mode)  # others can have none
            if not able or identity in self._book.fresh or (identity, name) in self._attributes:
                return
            try:
                value = os.getxattr(beneath(place), name, follow_symlinks=False)
            except OSError as error:
                if error.errno != errno.ENODATA:
                    return  # then it cannot be set either
                value = None
            if not self._book.full(len(value or b"")):
                self._attributes.add((identity, name))
                self._record_change("X", path, status, name, value)

    def _record_change(self, kind: str, path: bytes, status: os.stat_result, *values: object) -> None:
        self._book.volumes.changed(status.st_dev, path)
        self._book.write_record([kind, self._book.next(), 0, path, *identity_of(status), *values])

    def load_record(self, record: Note) -> None:
        """Take up a note of settings."""
        if record[0] == "X":
            self._attributes.add(((record[4], record[5]), record[6]))

    def forget(self) -> None:
        """Know nothing of the notes that are there."""
        self._attributes.clear()


def attributes(place: NameInDirectory) -> list[tuple[bytes, bytes]]:
    """Names and values of the extended attributes that are a user's own."""
    where = beneath(place)
    try:
        names = [os.fsencode(name) for name in os.listxattr(where, follow_symlinks=False)]
        return [(name, os.getxattr(where, name, follow_symlinks=False)) for name in names if name.startswith(USERS)]
    except OSError:
        return []  # there are none there, or none that may be read


def beneath(place: NameInDirectory) -> bytes:
    """A path of a place, for calls that take no directory; those that follow no link follow none in it."""
    return b"/proc/self/fd/%d/" % place.directory + place.name
