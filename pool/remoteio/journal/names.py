"""Names that a job makes, removes and changes: noted, then done, so that each is done once and can be undone."""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from pool.remoteio import kernel
from pool.remoteio.journal.book import Book, Note
from pool.remoteio.journal.removed_files import RemovedFiles, identity_of, status_of
from pool.remoteio.journal.settings import attributes
from pool.remoteio.path_lookup import NameInDirectory, Places


class _Removal(NamedTuple):
    """A name that is going to be removed: its file gets a hidden name, with a number, or goes (number 0)."""

    place: NameInDirectory
    status: os.stat_result
    number: int
    hidden: bytes
    note: Note


class JournaledNames:
    """Changes of names, as the kernel's calls; they raise OSError as those do."""

    def __init__(self, book: Book, aside: RemovedFiles, places: Places) -> None:
        self._book = book
        self._aside = aside
        self._places = places

    def create(self, unique: int, path: bytes, make: Callable[[], int]) -> int:
        """Create a file with `make`, which answers its descriptor and fails where there is one."""
        book = self._book
        with book.lock:
            known = book.pop_begun(unique)
            sequence = book.intend("c", unique, path, known)
            try:
                fd = make()
            except FileExistsError:
                if known is None or known[0] != "c":
                    book.cancel(sequence)
                    raise
                with self._places.open_parent(path) as place:  # made, and then we were killed
                    fd = os.open(place.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
            except OSError:
                book.cancel(sequence)
                raise
            book.confirm(sequence, path, identity_of(os.fstat(fd)), fresh=True)
            return fd

    def create_special(
        self, kind: str, unique: int, path: bytes, place: NameInDirectory, act: Callable[[], None]
    ) -> None:
        """Make a directory ('d'), a symbolic link ('y'), another name ('k') or a pipe or socket ('n') with `act`."""
        book = self._book
        with book.lock:
            known = book.pop_begun(unique)
            sequence = book.intend(kind, unique, path, known)
            try:
                act()
            except OSError as error:
                if not (isinstance(error, FileExistsError) and known is not None and known[0] == kind):
                    book.cancel(sequence)
                    raise
            book.confirm(sequence, path, identity_of(status_of(place)), fresh=kind == "n")

    def unlink(self, unique: int, path: bytes, place: NameInDirectory) -> None:
        """Remove a name."""
        book = self._book
        with book.lock:
            removal = self._planned_removal(unique, path, place)
            if removal is not None:
                book.write_record(removal.note)
                self._remove(removal)

    def unlink_all(self, removals: Iterable[tuple[int, bytes, NameInDirectory]]) -> list[OSError | None]:
        """Remove names, each for a request of its own as `unlink`, but noted together.

        Returns:
            What came of each: None, or why it could not be removed.
        """
        book = self._book
        found: list[OSError | None] = []
        with book.lock:
            planned: list[_Removal | None] = []
            for removal in removals:
                try:
                    planned.append(self._planned_removal(*removal))
                    found.append(None)
                except OSError as error:
                    planned.append(None)
                    found.append(error)
            book.write_records([removal.note for removal in planned if removal is not None])
            for place, one in enumerate(planned):
                try:
                    if one is not None:
                        self._remove(one)
                except OSError as error:
                    found[place] = error
        return found

    def _planned_removal(self, unique: int, path: bytes, place: NameInDirectory) -> _Removal | None:
        """How to remove a name; None for one that this request had removed when we were killed."""
        known = self._book.pop_begun(unique)
        again = known is not None and known[0] == "u"
        try:
            status = status_of(place)
        except FileNotFoundError:
            if again:
                return None
            raise
        if modes.S_ISDIR(status.st_mode):
            raise IsADirectoryError(21, os.strerror(21))
        identity = identity_of(status)
        self._book.volumes.changed(status.st_dev, path)
        if known is not None and again and tuple(known[6:8]) != identity:
            return None  # that one is removed, and this another
        number, hidden = (0, b"") if self._aside.is_unneeded(status) else self._aside.name(path)
        return _Removal(
            place, status, number, hidden, ["u", self._book.next(), unique, path, number, hidden, *identity]
        )

    def _remove(self, removal: _Removal) -> None:
        """Do what was planned and noted."""
        place, number, hidden = removal.place, removal.number, removal.hidden
        try:
            if not number:
                os.unlink(place.name, dir_fd=place.directory)
                self._book.fresh.discard(identity_of(removal.status))
                return
            _hide(place, hidden)
        except OSError:
            self._book.cancel(removal.note[1])
            raise
        self._aside.add_file(number, hidden, removal.status)

    def rmdir(self, unique: int, path: bytes, place: NameInDirectory) -> None:
        """Remove a directory that is empty but for hidden names, which move up."""
        book = self._book
        with book.lock:
            known = book.pop_begun(unique)
            try:
                status = status_of(place)
            except FileNotFoundError:
                if known is not None and known[0] == "r":
                    return
                raise
            book.volumes.changed(status.st_dev, path)
            self._aside.evacuate(path, place)
            with book.recorded("r", unique, path, *_of_directory(place, status)):
                os.rmdir(place.name, dir_fd=place.directory)

    def rename(
        self, unique: int, old: bytes, at_old: NameInDirectory, new: bytes, at_new: NameInDirectory, flags: int
    ) -> None:
        """Rename, as renameat2 with these flags."""
        book = self._book
        with book.lock:
            known = book.pop_begun(unique)
            theirs = _status_or_none(at_new)
            done = (
                known is not None
                and known[0] == "m"
                and theirs is not None
                and tuple(known[8:10]) == identity_of(theirs)
            )
            try:
                ours = status_of(at_old)
            except FileNotFoundError:
                if done:
                    return
                raise
            book.volumes.changed(ours.st_dev, new)
            if known is not None and done:
                if known[6]:  # exchanged, and what was replaced not put aside yet
                    _hide(at_old, known[7])
                return
            if flags or theirs is None or identity_of(theirs) == identity_of(ours):
                self._rename(unique, old, at_old, new, at_new, flags, ours, theirs)
            elif modes.S_ISDIR(theirs.st_mode):
                if not modes.S_ISDIR(ours.st_mode):
                    raise IsADirectoryError(21, os.strerror(21))
                self._aside.evacuate(new, at_new)
                with book.recorded("r", 0, new, *_of_directory(at_new, theirs)):
                    self._rename(unique, old, at_old, new, at_new, 0, ours, None)
            elif modes.S_ISDIR(ours.st_mode):
                raise NotADirectoryError(20, os.strerror(20))
            elif self._aside.is_unneeded(theirs):
                self._rename(unique, old, at_old, new, at_new, 0, ours, theirs)
                book.fresh.discard(identity_of(theirs))
            else:
                self._replace(unique, old, at_old, new, at_new, ours, theirs)

    def _rename(
        self,
        unique: int,
        old: bytes,
        at_old: NameInDirectory,
        new: bytes,
        at_new: NameInDirectory,
        flags: int,
        ours: os.stat_result,
        theirs: os.stat_result | None,
    ) -> None:
        identities = (*identity_of(ours), *(identity_of(theirs) if theirs is not None else (0, 0)))
        with self._book.recorded("m", unique, old, new, flags, 0, b"", *identities):
            kernel.renameat2(at_old.directory, at_old.name, at_new.directory, at_new.name, flags)
        if modes.S_ISDIR(ours.st_mode) or (theirs is not None and modes.S_ISDIR(theirs.st_mode)):
            self._aside.directory_renamed(old, new, exchanged=bool(flags & kernel.EXCHANGE))

    def _replace(
        self,
        unique: int,
        old: bytes,
        at_old: NameInDirectory,
        new: bytes,
        at_new: NameInDirectory,
        ours: os.stat_result,
        theirs: os.stat_result,
    ) -> None:
        """Rename over a file that is still needed: exchanged first, so that there always is one of the new name."""
        number, hidden = self._aside.name(old)
        with self._book.recorded("m", unique, old, new, 0, number, hidden, *identity_of(ours), *identity_of(theirs)):
            kernel.renameat2(at_old.directory, at_old.name, at_new.directory, at_new.name, kernel.EXCHANGE)
        _hide(at_old, hidden)
        self._aside.add_file(number, hidden, theirs)


def _hide(place: NameInDirectory, hidden: bytes) -> None:
    name = hidden.rpartition(b"/")[2]
    kernel.renameat2(place.directory, place.name, place.directory, name, kernel.NOREPLACE)


def _of_directory(place: NameInDirectory, status: os.stat_result) -> tuple[Any, ...]:
    """The properties to make a removed directory again with: rights, owner, times, extended attributes; and its
    identity.
    """
    rights = (modes.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
    return (*rights, status.st_atime_ns, status.st_mtime_ns, attributes(place), *identity_of(status))


def _status_or_none(place: NameInDirectory) -> os.stat_result | None:
    try:
        return status_of(place)
    except FileNotFoundError:
        return None
