"""Files that a job has removed and that may be needed again: under hidden names, where they were."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pool.remoteio import kernel
from pool.remoteio.journal.book import Book, Identity, Note
from pool.remoteio.path_lookup import UNDO, NameInDirectory, Places


class _HidingDirectory:
    """A directory with hidden files, by its present path, and their numbers."""

    __slots__ = ("numbers", "path")

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.numbers: set[int] = set()


@dataclass(slots=True)
class RemovedFile:
    """A removed file under its hidden name, which the notes of this segment gave it."""

    directory: _HidingDirectory
    name: bytes
    identity: Identity
    segment: int

    @property
    def path(self) -> bytes:
        """Where it lies now."""
        return self.directory.path + b"/" + self.name


class RemovedFiles:
    """The hidden files of one job, by their numbers, by what they are, and by their directories: a job may remove very
    many, and each answer about a file asks for its hidden names.

    Args:
        name: of the job, for hidden names.
        opened: whether a file is open in the job.
    """

    def __init__(self, book: Book, name: str, places: Places, opened: Callable[[Identity], bool]) -> None:
        self._book = book
        #: The prefix of this job's hidden names.
        self.prefix = UNDO + os.fsencode(name) + b"."
        self._places = places
        self._opened = opened
        self._away: dict[int, RemovedFile] = {}
        self._identities: dict[Identity, set[int]] = {}
        self._directories: dict[bytes, _HidingDirectory] = {}

    def paths(self) -> set[bytes]:
        """All that are known."""
        return {away.path for away in self._away.values()}

    def name(self, path: bytes) -> tuple[int, bytes]:
        """A number and a hidden path for what is removed."""
        number = self._book.next()
        return number, path.rpartition(b"/")[0] + b"/" + self.prefix + b"%d" % number

    def add_file(self, number: int, hidden: bytes, status: os.stat_result) -> None:
        """A file has got its hidden name."""
        self._store_name(number, hidden, identity_of(status), self._book.current.number)
        if status.st_nlink == 1 and not self._book.why:
            size = status.st_blocks * 512
            if not self._book.full(size):
                self._book.held_bytes += size
        if self._book.why and number in self._away and self.is_unneeded(status):
            self._drop(number)  # planned before nothing could be undone any more

    def is_unneeded(self, status: os.stat_result) -> bool:
        """Whether a file that is removed is needed by nobody: nothing of it is older than the last mark."""
        identity = identity_of(status)
        forgotten = bool(self._book.why) or identity in self._book.fresh
        return status.st_nlink == 1 and not self._opened(identity) and forgotten

    def directory_renamed(self, old: bytes, new: bytes, *, exchanged: bool) -> None:
        """A directory has another name: so have the hidden files in it."""
        moved = []
        for path in list(self._directories):
            if _is_within(path, old):
                moved.append((self._directories.pop(path), new + path[len(old) :]))
            elif exchanged and _is_within(path, new):
                moved.append((self._directories.pop(path), old + path[len(new) :]))
        for directory, path in moved:
            directory.path = path
            there = self._directories.setdefault(path, directory)
            if there is not directory:
                for number in directory.numbers:
                    self._away[number].directory = there
                there.numbers |= directory.numbers

    def evacuate(self, path: bytes, place: NameInDirectory) -> None:
        """Move the hidden names in a directory up, if they are all that is in it. Raises OSError."""
        fd = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
        try:
            names = [os.fsencode(name) for name in os.listdir(fd)]
            if not names:
                return
            if any(not name.startswith(UNDO) for name in names):
                raise OSError(39, os.strerror(39))
            here = self._directories.get(path)
            numbers = {self._away[number].name: number for number in here.numbers} if here is not None else {}
            for name in names:
                old, new = path + b"/" + name, path.rpartition(b"/")[0] + b"/" + name
                if name not in numbers:
                    raise OSError(39, os.strerror(39))
                number = numbers[name]
                self._book.write_record(["v", self._book.next(), 0, number, old, new])
                kernel.renameat2(fd, name, place.directory, name, kernel.NOREPLACE)
                self._move_to(number, new)
        finally:
            os.close(fd)

    def drop(self, *, older: int | None = None, but: Iterable[int] = (), opened: bool = True) -> None:
        """Take hidden files away for good.

        Args:
            older: only those that were hidden before this mark.
            but: numbers of some that stay.
            opened: those too that the job has open.
        """
        stay = set(but)
        for number, away in list(self._away.items()):
            old = older is None or away.segment < older
            if old and number not in stay and (opened or not self._opened(away.identity)):
                self._drop(number)

    def _drop(self, number: int) -> None:
        away = self._away[number]
        path = away.path
        self._take_out(number)
        try:
            with self._places.open_parent(path, own=True) as place:
                if identity_of(status_of(place)) == away.identity:
                    os.unlink(place.name, dir_fd=place.directory)
        except OSError:
            return  # whoever took it away has saved us the trouble

    def open_ones(self) -> list[list[object]]:
        """Those that the job has open, as they are noted."""
        return [[n, away.path, *away.identity] for n, away in self._away.items() if self._opened(away.identity)]

    def links(self, identity: Identity) -> int:
        """How many of a file's names are hidden ones."""
        if not self._identities:
            return 0
        with self._book.lock:
            return len(self._identities.get(identity, ()))

    def find(self, identity: Identity) -> bytes | None:
        """The hidden name of a file that was removed."""
        with self._book.lock:
            return next((self._away[number].path for number in sorted(self._identities.get(identity, ()))), None)

    def load_record(self, record: Note, segment: int) -> None:
        """Take up a note of names."""
        kind = record[0]
        if kind == "H":
            for number, path, dev, ino in record[3]:
                self._store_name(number, path, (dev, ino), segment)
        elif kind == "u" and record[4]:
            self._store_name(record[4], record[5], (record[6], record[7]), segment)
        elif kind == "m":
            self.directory_renamed(record[3], record[4], exchanged=bool(record[5] & kernel.EXCHANGE))
            if record[6]:
                self._store_name(record[6], record[7], (record[10], record[11]), segment)
        elif kind == "v" and record[3] in self._away:
            self._move_to(record[3], record[5])

    def forget(self) -> None:
        """Know nothing of the notes that are there."""
        self._away.clear()
        self._identities.clear()
        self._directories.clear()

    # -- the tables --------------------------------------------------------------------------------------

    def _store_name(self, number: int, path: bytes, identity: Identity, segment: int) -> None:
        if number in self._away:
            self._take_out(number)
        directory, name = self._directory_of(path)
        self._away[number] = RemovedFile(directory, name, identity, segment)
        self._identities.setdefault(identity, set()).add(number)
        directory.numbers.add(number)

    def _move_to(self, number: int, path: bytes) -> None:
        away = self._away[number]
        self._leave_directory(number, away.directory)
        away.directory, away.name = self._directory_of(path)
        away.directory.numbers.add(number)

    def _take_out(self, number: int) -> None:
        away = self._away.pop(number)
        same = self._identities[away.identity]
        same.discard(number)
        if not same:
            del self._identities[away.identity]
        self._leave_directory(number, away.directory)

    def _directory_of(self, path: bytes) -> tuple[_HidingDirectory, bytes]:
        above, _, name = path.rpartition(b"/")
        directory = self._directories.get(above)
        if directory is None:
            directory = self._directories[above] = _HidingDirectory(above)
        return directory, name

    def _leave_directory(self, number: int, directory: _HidingDirectory) -> None:
        directory.numbers.discard(number)
        if not directory.numbers:
            self._directories.pop(directory.path, None)


def _is_within(path: bytes, directory: bytes) -> bool:
    return path == directory or path.startswith(directory + b"/")


def identity_of(status: os.stat_result) -> Identity:
    """The identity of a file."""
    return status.st_dev, status.st_ino


def status_of(place: NameInDirectory) -> os.stat_result:
    """The file that is there, a link itself."""
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
