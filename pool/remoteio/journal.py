"""What a job has changed at home since its checkpoints, so that it can be undone (lifts the limit of TS 3(4)).

A job that is put back to a checkpoint, or begins again, has to find its owner's files as they were then: or it appends
a line twice, and reads what it has not written yet. So each change is noted before it is made, with what undoes it:

- bytes that are overwritten or cut off are copied first, once for each mark; of a file that only grew its length
- a file that is removed or replaced gets a hidden name beside it instead (UNDO...), and goes when it is not needed
- what was created, renamed, linked, and rights, owners and times that were changed, are noted

A *mark* is a checkpoint's place in that order. `commit` gives up what is older than a mark, `rollback` undoes what is
younger. Undoing runs backwards, checks by inode that a name still is what it was, and can be cut short and done again.

What is kept is bounded: at the bound, or where it cannot be written, the job goes on and can no longer be put back
to the marks there are: `Unreachable` says so when it is tried, `why` before. From the next mark on it can again.
"""

from __future__ import annotations

import os
import stat as modes
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pool.remoteio import kernel, log
from pool.remoteio.extents import Extents
from pool.remoteio.places import UNDO, Place, Places

#: What is told of a file: device and inode.
Identity = tuple[int, int]


class Unreachable(Exception):
    """The changes since this mark are not known any more."""


@dataclass(slots=True)
class _Touched:
    length: int
    saved: Extents = field(default_factory=Extents)


@dataclass(slots=True)
class _Away:
    """A removed file under its hidden name."""

    path: bytes
    identity: Identity
    segment: int


class Journal:
    """The changes of one job.

    Args:
        directory: descriptor of the journal's own directory.
        name: of the job, for hidden names.
        places: what the job sees.
        limit: bytes that are kept at most.
        opened: whether a file is open in the job.
        gave_up: called with the reason when changes can be undone no longer.
    """

    def __init__(
        self,
        directory: int,
        name: str,
        places: Places,
        limit: int,
        opened: Callable[[Identity], bool],
        gave_up: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.lock = threading.RLock()
        self.directory = directory
        self.places = places
        self._name = os.fsencode(name)
        self._limit = limit
        self._opened = opened
        self._gave_up = gave_up
        self.away: dict[int, _Away] = {}
        self._touched: dict[Identity, _Touched] = {}
        self._fresh: set[Identity] = set()
        self._before: dict[int, list[Any]] = {}
        self._sequence = 0
        self._held_bytes = 0
        state = log.read_state(directory)
        self.run: int = state.get("run", 0)
        self.first: int = state.get("first", 0)
        self.why: str = state.get("why", "")
        self._boot: str = state.get("boot", log.boot())
        self.segments = log.segments(directory) or [log.Segment(directory, 0)]
        for segment in self.segments:
            self._learn(segment)

    @property
    def current(self) -> log.Segment:
        return self.segments[-1]

    @property
    def older(self) -> bool:
        """Whether the machine was started anew since the run began that this is about."""
        return self._boot != log.boot()

    def begin_run(self, run: int) -> None:
        """Another start of the job: what an earlier one asked for is not asked again."""
        with self.lock:
            self._before.clear()
            self.run = run
            self._boot = log.boot()
            self.write_state()
            self._note(["R", self._next(), 0, run])

    def write_state(self) -> None:
        state = {"run": self.run, "first": self.first, "why": self.why, "boot": self._boot}
        log.write_state(self.directory, state)

    def sync(self) -> None:
        """Have on the disk what undoes all that was changed until now. Raises OSError."""
        with self.lock:
            fds = [fd for segment in self.segments for fd in segment.unsynced()]
        try:
            for fd in fds:
                os.fdatasync(fd)
        finally:
            for fd in fds:
                os.close(fd)

    def close(self) -> None:
        """Let go of the files; everything stays as it is."""
        for segment in self.segments:
            segment.close()
        self.segments = []

    # -- changes of content ------------------------------------------------------------------------------

    def before_write(self, fd: int, offset: int, size: int) -> None:
        """Bytes of an open file are going to be overwritten, or the file to grow."""
        with self.lock:
            self._before_change(fd, offset, offset + size)

    def before_truncate(self, fd: int, size: int) -> None:
        """An open file is going to get this length."""
        with self.lock:
            self._before_change(fd, size, os.fstat(fd).st_size)

    def _before_change(self, fd: int, start: int, end: int) -> None:
        status = os.fstat(fd)
        identity = (status.st_dev, status.st_ino)
        if self.why or identity in self._fresh:
            return
        touched = self._touched.get(identity)
        path = os.fsencode(os.readlink(f"/proc/self/fd/{fd}"))
        if touched is None:
            touched = self._touched[identity] = _Touched(status.st_size)
            times = (status.st_atime_ns, status.st_mtime_ns)
            self._note(["l", self._next(), 0, path, *identity, status.st_size, *times])
        for gap_start, gap_end in touched.saved.missing(start, min(end, touched.length)):
            self._save(fd, path, identity, gap_start, gap_end)
            touched.saved.add(gap_start, gap_end)

    def _save(self, fd: int, path: bytes, identity: Identity, start: int, end: int) -> None:
        if self._full(end - start):
            return
        try:
            source = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._give_up(f"what it overwrites in {os.fsdecode(path)} may not be read: {error.strerror}")
            return
        try:
            for offset, length, at in self.current.save(source, start, end):
                self._note(["x", self._next(), 0, path, *identity, offset, length, at])
        except OSError as error:
            self._give_up(f"its undo journal cannot be written: {error.strerror}")
        finally:
            os.close(source)

    def appending(self, unique: int, fd: int, data: bytes | memoryview) -> bool:
        """Bytes are going to be appended; whether they have been already, for this request."""
        with self.lock:
            status = os.fstat(fd)
            self._before_change(fd, status.st_size, status.st_size + len(data))
            known = self._before.pop(unique, None)
            if known is not None and known[0] == "a":
                if os.pread(fd, len(data), known[5]) == data:
                    return True
            else:
                self._note(["a", self._next(), unique, status.st_dev, status.st_ino, status.st_size])
            return False

    # -- changes of names --------------------------------------------------------------------------------

    def create(self, unique: int, path: bytes, make: Callable[[], int]) -> int:
        """Create a file with `make`, which answers its descriptor and fails where there is one."""
        with self.lock:
            known = self._before.get(unique)
            sequence = self._intend("c", unique, path)
            try:
                fd = make()
            except FileExistsError:
                if known is None or known[0] != "c":
                    self._cancel(sequence)
                    raise
                with self.places.at(path) as place:  # made, and then we were killed
                    fd = os.open(place.name, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
            except OSError:
                self._cancel(sequence)
                raise
            status = os.fstat(fd)
            self._confirm(sequence, (status.st_dev, status.st_ino), fresh=True)
            return fd

    def make(self, kind: str, unique: int, path: bytes, place: Place, act: Callable[[], None]) -> None:
        """Make a directory ('d'), a symbolic link ('y'), another name ('k') or a pipe or socket ('n') with `act`."""
        with self.lock:
            known = self._before.get(unique)
            sequence = self._intend(kind, unique, path)
            try:
                act()
            except OSError as error:
                if not (isinstance(error, FileExistsError) and known is not None and known[0] == kind):
                    self._cancel(sequence)
                    raise
            status = _status(place)
            self._confirm(sequence, (status.st_dev, status.st_ino), fresh=kind == "n")

    def unlink(self, unique: int, path: bytes, place: Place) -> None:
        """Remove a name."""
        with self.lock:
            known = self._before.pop(unique, None)
            try:
                status = _status(place)
            except FileNotFoundError:
                if known is not None and known[0] == "u":
                    return
                raise
            if modes.S_ISDIR(status.st_mode):
                raise IsADirectoryError(21, os.strerror(21))
            identity = (status.st_dev, status.st_ino)
            if known is not None and known[0] == "u" and tuple(known[6:8]) != identity:
                return  # that one is removed, and this another
            if self._may_go(identity, status):
                sequence = self._next()
                self._note(["u", sequence, unique, path, 0, b"", *identity])
                try:
                    os.unlink(place.name, dir_fd=place.directory)
                except OSError:
                    self._cancel(sequence)
                    raise
                return
            number, hidden = self._hidden(path)
            sequence = self._next()
            self._note(["u", sequence, unique, path, number, hidden, *identity])
            try:
                name = hidden.rpartition(b"/")[2]
                kernel.renameat2(place.directory, place.name, place.directory, name, kernel.NOREPLACE)
            except OSError:
                self._cancel(sequence)
                raise
            self._set_aside(number, hidden, identity, status)

    def rmdir(self, unique: int, path: bytes, place: Place) -> None:
        """Remove a directory that is empty but for hidden names, which move up."""
        with self.lock:
            known = self._before.pop(unique, None)
            try:
                status = _status(place)
            except FileNotFoundError:
                if known is not None and known[0] == "r":
                    return
                raise
            self._evacuate(path, place)
            sequence = self._next()
            rights = (modes.S_IMODE(status.st_mode), status.st_uid, status.st_gid)
            self._note(["r", sequence, unique, path, *rights, status.st_atime_ns, status.st_mtime_ns])
            try:
                os.rmdir(place.name, dir_fd=place.directory)
            except OSError:
                self._cancel(sequence)
                raise

    def _evacuate(self, path: bytes, place: Place) -> None:
        """Move the hidden names in a directory up, if they are all that is in it."""
        fd = os.open(place.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
        try:
            names = [os.fsencode(name) for name in os.listdir(fd)]
            if not names:
                return
            if any(not name.startswith(UNDO) for name in names):
                raise OSError(39, os.strerror(39))
            by_path = {away.path: (number, away) for number, away in self.away.items()}
            for name in names:
                old, new = path + b"/" + name, path.rpartition(b"/")[0] + b"/" + name
                if old not in by_path:
                    raise OSError(39, os.strerror(39))
                number, away = by_path[old]
                self._note(["v", self._next(), 0, number, old, new])
                kernel.renameat2(fd, name, place.directory, name, kernel.NOREPLACE)
                away.path = new
        finally:
            os.close(fd)

    def rename(self, unique: int, old: bytes, at_old: Place, new: bytes, at_new: Place, flags: int) -> None:
        """Rename, as renameat2 with these flags."""
        with self.lock:
            known = self._before.pop(unique, None)
            theirs = _status_or_none(at_new)
            try:
                ours = _status(at_old)
            except FileNotFoundError:
                if known is not None and known[0] == "m" and theirs and tuple(known[8:10]) == _identity(theirs):
                    return
                raise
            if known is not None and known[0] == "m" and theirs and tuple(known[8:10]) == _identity(theirs):
                if known[6]:  # exchanged, and what was replaced not put aside yet
                    self._put_aside(known[6], known[7], at_old)
                return
            if flags or theirs is None or _identity(theirs) == _identity(ours):
                self._rename(unique, old, at_old, new, at_new, flags, ours, theirs)
            elif modes.S_ISDIR(theirs.st_mode):
                if modes.S_ISDIR(ours.st_mode):
                    self._evacuate(new, at_new)
                    rights = (modes.S_IMODE(theirs.st_mode), theirs.st_uid, theirs.st_gid)
                    sequence = self._next()
                    self._note(["r", sequence, 0, new, *rights, theirs.st_atime_ns, theirs.st_mtime_ns])
                    try:
                        self._rename(unique, old, at_old, new, at_new, 0, ours, None)
                    except OSError:
                        self._cancel(sequence)
                        raise
                else:
                    raise IsADirectoryError(21, os.strerror(21))
            elif modes.S_ISDIR(ours.st_mode):
                raise NotADirectoryError(20, os.strerror(20))
            elif self._may_go(_identity(theirs), theirs):
                self._rename(unique, old, at_old, new, at_new, 0, ours, None)
            else:
                self._replace(unique, old, at_old, new, at_new, ours, theirs)

    def _rename(
        self,
        unique: int,
        old: bytes,
        at_old: Place,
        new: bytes,
        at_new: Place,
        flags: int,
        ours: os.stat_result,
        theirs: os.stat_result | None,
    ) -> None:
        sequence = self._next()
        identities = (*_identity(ours), *(_identity(theirs) if theirs is not None else (0, 0)))
        self._note(["m", sequence, unique, old, new, flags, 0, b"", *identities])
        try:
            kernel.renameat2(at_old.directory, at_old.name, at_new.directory, at_new.name, flags)
        except OSError:
            self._cancel(sequence)
            raise
        self._moved(old, new, exchanged=bool(flags & kernel.EXCHANGE))

    def _replace(
        self,
        unique: int,
        old: bytes,
        at_old: Place,
        new: bytes,
        at_new: Place,
        ours: os.stat_result,
        theirs: os.stat_result,
    ) -> None:
        """Rename over a file that is still needed: exchanged first, so that there always is one of the new name."""
        number, hidden = self._hidden(old)
        sequence = self._next()
        self._note(["m", sequence, unique, old, new, 0, number, hidden, *_identity(ours), *_identity(theirs)])
        try:
            kernel.renameat2(at_old.directory, at_old.name, at_new.directory, at_new.name, kernel.EXCHANGE)
        except OSError:
            self._cancel(sequence)
            raise
        self._put_aside(number, hidden, at_old)
        self._set_aside(number, hidden, _identity(theirs), theirs)

    @staticmethod
    def _put_aside(number: int, hidden: bytes, place: Place) -> None:
        name = hidden.rpartition(b"/")[2]
        kernel.renameat2(place.directory, place.name, place.directory, name, kernel.NOREPLACE)

    # -- changes of rights and times ---------------------------------------------------------------------

    def before_setting(self, kind: str, path: bytes, place: Place) -> None:
        """Rights ('p'), owner ('o') or times ('t') are going to be changed."""
        with self.lock:
            status = _status(place)
            if _identity(status) in self._fresh:
                return
            values = {
                "p": (modes.S_IMODE(status.st_mode),),
                "o": (status.st_uid, status.st_gid, modes.S_IMODE(status.st_mode)),
                "t": (status.st_atime_ns, status.st_mtime_ns),
            }[kind]
            self._note([kind, self._next(), 0, path, *_identity(status), *values])

    # -- marks -------------------------------------------------------------------------------------------

    def mark(self, number: int) -> None:
        """What comes from here on is younger than this mark. A mark that is there is there."""
        with self.lock:
            if number <= self.current.number:
                return
            if self.why:
                self.why, self.first = "", number
            self.segments.append(log.Segment(self.directory, number))
            held = [[n, away.path, *away.identity] for n, away in self.away.items() if self._opened(away.identity)]
            self._touched.clear()
            self._fresh.clear()
            self._note(["H", self._next(), 0, held])
            self.write_state()

    def commit(self, number: int) -> None:
        """Nobody goes back beyond this mark any more."""
        with self.lock:
            old = [segment for segment in self.segments if segment.number < number]
            if not old or old[-1] is self.current:
                return  # such a mark never came
            self.first = max(self.first, number)
            self.write_state()
            held: set[int] = set()
            for segment in self.segments[len(old) :]:
                held |= {int(item[0]) for record in segment.records() if record[0] == "H" for item in record[3]}
            for key, away in list(self.away.items()):
                if away.segment < number and key not in held:
                    self._drop(key)
            for segment in old:
                segment.remove()
            del self.segments[: len(old)]

    def settle(self, number: int) -> None:
        """What was done until now is there to stay: commits a new mark, this one where it is younger than all."""
        with self.lock:
            number = max(number, self.current.number + 1)
            self.mark(number)
            self.commit(number)

    def finish(self) -> None:
        """The job is over: everything stays as it is, and nothing of the journal."""
        with self.lock:
            for key in list(self.away):
                self._drop(key)
            for segment in self.segments:
                segment.remove()
            self.segments = []
            for name in os.listdir(self.directory):
                os.unlink(name, dir_fd=self.directory)

    def forget(self) -> None:
        """Begin anew: everything stays as it is, and what comes is all that can be undone."""
        with self.lock:
            self.finish()
            self.segments = [log.Segment(self.directory, 0)]
            self.first, self.why = 0, ""
            self.reread()
            self.write_state()

    def hidden_links(self, identity: Identity) -> int:
        """How many of a file's names are hidden ones."""
        if not self.away:
            return 0
        with self.lock:
            return sum(away.identity == identity for away in self.away.values())

    def find_away(self, identity: Identity) -> bytes | None:
        """The hidden name of a file that was removed."""
        with self.lock:
            return next((away.path for away in self.away.values() if away.identity == identity), None)

    def _drop(self, key: int) -> None:
        away = self.away.pop(key)
        try:
            with self.places.at(away.path, own=True) as place:
                if _identity(_status(place)) == away.identity:
                    os.unlink(place.name, dir_fd=place.directory)
        except OSError:
            return  # whoever took it away has saved us the trouble

    # -- the log -----------------------------------------------------------------------------------------

    def reread(self) -> None:
        """Know again what is in the files, after undoing."""
        self.away.clear()
        self._touched.clear()
        self._fresh.clear()
        self._before.clear()
        self._held_bytes = 0
        for segment in self.segments:
            self._learn(segment)

    def _learn(self, segment: log.Segment) -> None:
        self._touched.clear()
        self._fresh.clear()
        records = segment.records()
        cancelled = {record[3] for record in records if record[0] == "-"}
        for record in records:
            kind, sequence, unique = record[:3]
            self._sequence = max(self._sequence, sequence)
            if sequence in cancelled:
                continue
            if unique:
                self._before[unique] = record
            if kind == "R":
                self._before.clear()
            elif kind == "H":
                for number, path, dev, ino in record[3]:
                    self.away[number] = _Away(path, (dev, ino), segment.number)
            elif kind == "C" and record[6]:
                self._fresh.add((record[4], record[5]))
            elif kind == "l":
                self._touched[record[4], record[5]] = _Touched(record[6])
            elif kind == "x":
                self._touched[record[4], record[5]].saved.add(record[6], record[6] + record[7])
            elif kind == "u" and record[4]:
                self.away[record[4]] = _Away(record[5], (record[6], record[7]), segment.number)
            elif kind == "m":
                self._moved(record[3], record[4], exchanged=bool(record[5] & kernel.EXCHANGE))
                if record[6]:
                    self.away[record[6]] = _Away(record[7], (record[10], record[11]), segment.number)
            elif kind == "v" and record[3] in self.away:
                self.away[record[3]].path = record[5]

    def _intend(self, kind: str, unique: int, path: bytes) -> int:
        known = self._before.pop(unique, None)
        if known is not None and known[0] == kind:
            return int(known[1])
        sequence = self._next()
        self._note([kind, sequence, unique, path])
        return sequence

    def _confirm(self, sequence: int, identity: Identity, *, fresh: bool) -> None:
        self._note(["C", self._next(), 0, sequence, *identity, fresh])
        if fresh and not self.why:
            self._fresh.add(identity)

    def _cancel(self, sequence: int) -> None:
        self._note(["-", self._next(), 0, sequence])

    def _next(self) -> int:
        self._sequence += 1
        return self._sequence

    def _note(self, record: list[Any]) -> None:
        if self.why and record[0] not in ("u", "m", "v", "H", "R", "-", "r"):
            return
        try:
            self.current.add(record)
        except OSError as error:
            self._give_up(f"its undo journal cannot be written: {error.strerror}")

    def _full(self, more: int) -> bool:
        used = sum(segment.size for segment in self.segments) + self._held_bytes
        if used + more > self._limit:
            self._give_up(f"it has changed more than {self._limit} bytes (REMOTE_IO_UNDO)")
        return bool(self.why)

    def _give_up(self, why: str) -> None:
        """The job goes on without: free what was kept for going back."""
        if self.why:
            return
        self.why = why
        for segment in self.segments:
            segment.empty_data()
        for key, away in list(self.away.items()):
            if not self._opened(away.identity):
                self._drop(key)
        self.write_state()
        self._gave_up(why)

    def _may_go(self, identity: Identity, status: os.stat_result) -> bool:
        """Whether a file that is removed is needed by nobody: nothing of it is older than the last mark."""
        return status.st_nlink == 1 and not self._opened(identity) and (bool(self.why) or identity in self._fresh)

    def _hidden(self, path: bytes) -> tuple[int, bytes]:
        number = self._next()
        return number, path.rpartition(b"/")[0] + b"/" + UNDO + self._name + b".%d" % number

    def _set_aside(self, number: int, hidden: bytes, identity: Identity, status: os.stat_result) -> None:
        self.away[number] = _Away(hidden, identity, self.current.number)
        if status.st_nlink == 1 and not self.why:
            size = status.st_blocks * 512
            if not self._full(size):
                self._held_bytes += size

    def _moved(self, old: bytes, new: bytes, *, exchanged: bool) -> None:
        """A directory has another name: so have the hidden files in it."""
        for away in self.away.values():
            if away.path.startswith(old + b"/"):
                away.path = new + away.path[len(old) :]
            elif exchanged and away.path.startswith(new + b"/"):
                away.path = old + away.path[len(new) :]


def _status(place: Place) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)


def _status_or_none(place: Place) -> os.stat_result | None:
    try:
        return _status(place)
    except FileNotFoundError:
        return None


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino
