"""Undoing what a job has changed since a mark: backwards through its journal (see `journal`).

Each record is undone only where the file it speaks of still is that file, by device and inode; what somebody else has
changed meanwhile stays as it is, and is named. Cut short anywhere, it is done again from where it was: how far it came
is noted, and a record that was undone twice is as if it had been once. A directory that was removed is made again as
another one: what the records before speak of is that one from then on (`_again_as`, noted, too).
"""

from __future__ import annotations

import errno
import os
import stat as modes
from typing import Any

from pool.remoteio import kernel
from pool.remoteio.journal.book import Identity, removed_for_good
from pool.remoteio.journal.journal import ChangeJournal, MarkForgotten
from pool.remoteio.journal.log import Segment
from pool.remoteio.journal.removed_files import identity_of
from pool.remoteio.journal.settings import beneath
from pool.remoteio.journal.volumes import Flushes
from pool.remoteio.path_lookup import NameInDirectory, PathDescriptor

#: Said after a restart of the submit side's machine; whether that was a power cut nobody knows.
RESTARTED = (
    "the submit machine was restarted meanwhile; if it lost power, what was written in its last seconds may be missing"
)


def rollback(journal: ChangeJournal, number: int, flushes: Flushes | None = None) -> list[str]:
    """Put everything back as it was at a mark; a line for each thing that could not be.

    Args:
        flushes: writes the restored bytes to the disk before their notes go; None leaves that to the kernel.

    Raises:
        MarkForgotten: what was changed since then is not known any more.
        OSError: the journal, or the restored bytes, cannot be written.
    """
    with journal.book.lock:
        if journal.why:
            raise MarkForgotten(journal.why)
        if number < journal.first or not any(segment.number == number for segment in journal.book.segments):
            raise MarkForgotten("a later checkpoint has taken its place")
        older = journal.book.is_before_boot
        undoing = _Undoing(journal, again=older)
        if older:
            undoing.problems += [RESTARTED, *lost(journal)]
        done = 0
        while True:
            segment = journal.book.segments[-1 - done]
            records = segment.records()
            undoing.segment(segment, records)
            if segment.number == number:
                break
            done += 1
        if flushes is not None and undoing.undone:
            journal.secure(flushes)
        for _ in range(done):
            journal.book.segments.pop().remove()
        segment.empty()
        segment.add(["H", 1, 0, next((record[3] for record in records if record[0] == "H"), [])])
        journal.reread()
        return undoing.problems


def lost(journal: ChangeJournal) -> list[str]:
    """Hidden files of the job, where it has worked, that no note tells the name of."""
    known = journal.aside.paths()
    begin = journal.aside.prefix
    found = []
    for directory in sorted(journal.book.directories()):
        try:
            with journal.places.open_parent(directory + b"/" + begin, own=True) as place:
                fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=place.directory)
        except OSError:
            continue
        try:
            names = [os.fsencode(name) for name in os.listdir(fd)]
        finally:
            os.close(fd)
        found += [directory + b"/" + name for name in names if name.startswith(begin)]
    return [
        f"{os.fsdecode(path)} is a file that was removed or replaced; under what name is not known any more"
        for path in found
        if path not in known
    ]


def _made_and_removed(records: list[list[Any]], cancelled: set[int]) -> set[int]:
    """The sequence numbers of files that were made and removed again: a file of the same inode is not theirs. Whether
    the removals at the very end were done is not known.
    """
    end = max((place for place, record in enumerate(records) if record[0] not in ("u", "!")), default=0)
    made: dict[Identity, int] = {}
    found = set()
    for record in records[:end]:
        gone = removed_for_good(record)
        if record[0] == "C":
            made[record[4], record[5]] = record[3]
        elif gone in made and record[1] not in cancelled:
            found.add(made.pop(gone))
    return found


class _Undoing:
    """
    Args:
        again: undo too what is noted as undone: the disk may have the note and not the undoing.
    """

    def __init__(self, journal: ChangeJournal, *, again: bool) -> None:
        self._journal = journal
        self._again = again
        self.undone = False
        self.problems: list[str] = []
        self._file: tuple[bytes, Identity, int] | None = None
        #: Of directories that were made again: which each stands for, by which it is now.
        self._again_as: dict[Identity, Identity] = {}
        for segment in journal.book.segments:
            for record in segment.records():
                if record[0] == "=":
                    self._again_as[record[6], record[7]] = (record[4], record[5])

    def segment(self, segment: Segment, records: list[list[Any]]) -> None:
        """Undo one segment's records, the last first."""
        cancelled = {record[3] for record in records if record[0] == "-"}
        cancelled |= _made_and_removed(records, cancelled)
        made = {record[3]: (record[4], record[5]) for record in records if record[0] == "C"}
        done = len(records)
        if not self._again:
            done = min((record[3] for record in records if record[0] == "!"), default=done)
        for index in range(done - 1, -1, -1):
            record = records[index]
            kind, sequence = record[0], record[1]
            undo = getattr(self, f"_undo_{kind}", None) if kind.isalpha() else None
            if undo is None or sequence in cancelled:
                continue
            try:
                undo(segment, record, made.get(sequence))
            except OSError as error:
                self._problem(record[3], error.strerror or str(error))
            self.undone = True
            segment.add(["!", sequence, 0, index])
        self._let_go()

    def _problem(self, path: bytes, why: str) -> None:
        self.problems.append(f"{os.fsdecode(path)}: {why[:1].lower()}{why[1:]}")

    # -- names -------------------------------------------------------------------------------------------

    def _identity(self, path: bytes) -> Identity | None:
        try:
            with self._journal.places.open_parent(path, own=True) as place:
                return self._recorded_identity(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False))
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            raise

    def _recorded_identity(self, status: os.stat_result) -> Identity:
        """Which file this is in the records."""
        identity = identity_of(status)
        return self._again_as.get(identity, identity)

    def _rename(self, old: bytes, new: bytes, flags: int = kernel.NOREPLACE) -> None:
        places = self._journal.places
        with places.open_parent(old, own=True) as at_old, places.open_parent(new, own=True) as at_new:
            kernel.renameat2(at_old.directory, at_old.name, at_new.directory, at_new.name, flags)

    def _undo_c(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        with self._journal.places.open_parent(record[3], own=True) as place:
            try:
                status = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            except FileNotFoundError:
                return
            ours = (status.st_dev, status.st_ino) == made if made is not None else status.st_size == 0
            if ours and not modes.S_ISDIR(status.st_mode):
                os.unlink(place.name, dir_fd=place.directory)

    def _undo_y(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if made is not None and self._identity(record[3]) == made:
            with self._journal.places.open_parent(record[3], own=True) as place:
                os.unlink(place.name, dir_fd=place.directory)

    _undo_k = _undo_n = _undo_y

    def _undo_d(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if made is not None and self._identity(record[3]) == made:
            with self._journal.places.open_parent(record[3], own=True) as place:
                now = identity_of(os.stat(place.name, dir_fd=place.directory, follow_symlinks=False))
                os.rmdir(place.name, dir_fd=place.directory)
                self._again_as.pop(now, None)  # the number may be another one's next

    def _undo_r(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        path, mode, uid, gid, accessed, modified, extra = record[3:10]
        with self._journal.places.open_parent(path, own=True) as place:
            if not self._make_again(segment, record, place):
                return
            status = os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)
            if (status.st_uid, status.st_gid) != (uid, gid):
                os.chown(place.name, uid, gid, dir_fd=place.directory, follow_symlinks=False)
            for name, value in extra:
                os.setxattr(beneath(place), name, value, follow_symlinks=False)
            self._chmod(place, (status.st_dev, status.st_ino), mode)
            kernel.utimensat(place.directory, place.name, accessed, modified)

    def _make_again(self, segment: Segment, record: list[Any], place: NameInDirectory) -> bool:
        """Make a removed directory, noted as what it stands for before it has its name; false where there is one."""
        here, path = place.directory, record[3]
        hidden = self._journal.aside.prefix + b"again.%d" % record[1]
        try:
            os.stat(place.name, dir_fd=here, follow_symlinks=False)
            return False
        except FileNotFoundError:
            pass
        try:
            os.mkdir(hidden, 0o700, dir_fd=here)
        except FileExistsError:  # we were killed before it had its name
            pass
        now = identity_of(os.stat(hidden, dir_fd=here, follow_symlinks=False))
        if len(record) > 11:  # else written by an older file server
            self._again_as[now] = (record[10], record[11])
            segment.add(["=", record[1], 0, path, *self._again_as[now], *now])
        kernel.renameat2(here, hidden, here, place.name, kernel.NOREPLACE)
        return True

    def _undo_u(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        path, number, hidden, dev, ino = record[3:8]
        if not number or self._identity(path) == (dev, ino):
            return
        self._rename(hidden, path)

    def _undo_v(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        _, old, new = record[3:6]
        if self._identity(new) is not None:
            self._rename(new, old)

    def _undo_m(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        old, new, flags, number, hidden = record[3:8]
        ours, theirs = (record[8], record[9]), (record[10], record[11])
        at_old, at_new = self._identity(old), self._identity(new)
        if at_new == ours and at_old == theirs and (number or flags & kernel.EXCHANGE):
            self._rename(old, new, kernel.EXCHANGE)
            return
        if at_new == ours and at_old is None:
            self._rename(new, old)
        elif flags & kernel.EXCHANGE and at_old == theirs and at_new is None:  # ours was made since, and is gone
            self._rename(old, new)
        elif at_old != ours and not number:
            self._problem(new, "is another file now")
        if number and self._identity(hidden) == theirs:
            self._rename(hidden, new)

    # -- rights and times --------------------------------------------------------------------------------

    def _undo_p(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if self._is_same_file(record):
            with self._journal.places.open_parent(record[3], own=True) as place:
                self._chmod(place, (record[4], record[5]), record[6])

    def _undo_o(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if self._is_same_file(record):
            with self._journal.places.open_parent(record[3], own=True) as place:
                os.chown(place.name, record[6], record[7], dir_fd=place.directory, follow_symlinks=False)
                self._chmod(place, (record[4], record[5]), record[8])

    def _chmod(self, place: NameInDirectory, identity: Identity, rights: int) -> None:
        """Set the rights of this file, unless it is a link: by its name whatever that led to would get them."""
        with PathDescriptor(place) as fd:
            status = os.fstat(fd)
            if identity in (identity_of(status), self._recorded_identity(status)) and not modes.S_ISLNK(status.st_mode):
                os.chmod(kernel.path_of(fd), rights)

    def _undo_t(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if self._is_same_file(record):
            with self._journal.places.open_parent(record[3], own=True) as place:
                kernel.utimensat(place.directory, place.name, record[6], record[7])

    def _undo_X(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        if self._is_same_file(record):
            name, value = record[6:8]
            with self._journal.places.open_parent(record[3], own=True) as place:
                if value is not None:
                    os.setxattr(beneath(place), name, value, follow_symlinks=False)
                    return
                try:
                    os.removexattr(beneath(place), name, follow_symlinks=False)
                except OSError as error:
                    if error.errno != errno.ENODATA:
                        raise

    def _is_same_file(self, record: list[Any]) -> bool:
        if self._identity(record[3]) == (record[4], record[5]):
            return True
        self._problem(record[3], "is another file now")
        return False

    # -- content -----------------------------------------------------------------------------------------

    def _undo_l(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        fd = self._open(record)
        if fd is not None:
            os.ftruncate(fd, record[6])
            os.utime(fd, ns=(record[7], record[8]))

    def _undo_x(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        fd = self._open(record)
        if fd is not None:
            segment.undo_write(fd, *record[6:10])

    def _undo_z(self, segment: Segment, record: list[Any], made: Identity | None) -> None:
        fd = self._open(record)
        if fd is not None:
            kernel.fallocate(fd, kernel.PUNCH_HOLE | kernel.KEEP_SIZE, record[6], record[7])

    def _open(self, record: list[Any]) -> int | None:
        """The file of a record, for writing; None, named, where it is another now."""
        path, identity = record[3], (record[4], record[5])
        if self._file is not None and self._file[:2] == (path, identity):
            return self._file[2]
        self._let_go()
        held = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(held)
            if identity_of(status) != identity:
                self._problem(path, "is another file now")
                return None
            fd = _writable(kernel.path_of(held), modes.S_IMODE(status.st_mode))
        finally:
            os.close(held)
        self._file = (path, identity, fd)
        return fd

    def _let_go(self) -> None:
        if self._file is not None:
            os.close(self._file[2])
            self._file = None


def _writable(path: bytes, rights: int) -> int:
    """A descriptor to write through, where the owner may give himself the right to."""
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except PermissionError:
        os.chmod(path, rights | modes.S_IWUSR)
        try:
            return os.open(path, flags)
        finally:
            os.chmod(path, rights)
