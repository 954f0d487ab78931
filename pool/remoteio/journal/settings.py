"""Rights, owners and times of files before a job set them."""

from __future__ import annotations

import stat as modes

from pool.remoteio.journal.aside import identity_of, status_of
from pool.remoteio.journal.book import Book
from pool.remoteio.places import Place

KINDS = frozenset("pot")


def before_setting(book: Book, kind: str, path: bytes, place: Place) -> None:
    """Rights ('p'), owner ('o') or times ('t') are going to be changed."""
    with book.lock:
        status = status_of(place)
        if identity_of(status) in book.fresh:
            return
        book.volumes.changed(status.st_dev, path)
        values = {
            "p": (modes.S_IMODE(status.st_mode),),
            "o": (status.st_uid, status.st_gid, modes.S_IMODE(status.st_mode)),
            "t": (status.st_atime_ns, status.st_mtime_ns),
        }[kind]
        book.note([kind, book.next(), 0, path, *identity_of(status), *values])
