"""Plain, blocking access to files: the part that runs wherever the right user is.

`pool.shadow.files` calls it in the node itself where the node is that user, `pool.shadow.served` in a process
that became that user. An `Access` keeps open files under small numbers. Errors are OSError; `problem` turns
one into the line that people read.

Results are written aside and appear under their name only when they are whole, by one rename. Where the file
system can hold a file without a name (O_TMPFILE) nothing is left behind even by a crash.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import stat as modes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pool.errors import PoolError
from pool.shadow.placing import OutputJournal, sync_directory, sync_files, sync_volume, write_all
from pool.sparse import leave_hole, next_piece

CHUNK = 256 * 1024
#: A longer hole cannot be expressed to a pipe or device, where it has to be written.
LARGEST_FILLED = 1 << 24
#: The attribute of a file that reached the submit side from a job: its size and time of change then.
OUTPUT_MARK = "user.poolnode.came_home"
#: Files that are put in their places in one turn.
MANY = 1000

_HINTS = {
    errno.ENOENT: "check the name; relative names begin at the job's initial directory",
    errno.ENOTDIR: "a part of the path is a file, not a directory",
    errno.EISDIR: "it is a directory",
    errno.EEXIST: "what is there is no job's output: name it in transfer_output_files if it is one",
    errno.EACCES: "check the rights of the file and of the directories above it",
    errno.EPERM: "check the rights of the file and of the directories above it",
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "remove some files: the quota is used up",
    errno.EROFS: "choose a place that may be written",
    errno.ENXIO: "a named pipe needs a reader first",
    errno.EAGAIN: "it is a named pipe or a terminal: give a file",
    errno.EINVAL: "the name holds a character no file name can have",
    errno.EFBIG: "make it smaller",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ELOOP: "its symbolic links lead in a circle",
}
_HEALS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.ESTALE,
    errno.ETIMEDOUT,
    errno.EMFILE,
    errno.ENFILE,
    errno.EHOSTDOWN,
}


class FileProblem(PoolError):
    """A file could not be used. `errno` is the system's number, for a hold's subcode."""

    def __init__(self, operation: str, path: str, number: int) -> None:
        reason = os.strerror(number)
        super().__init__(
            f"cannot {operation} {path}: {reason[:1].lower()}{reason[1:]}",
            hint=_HINTS.get(number, ""),
            retry=number in _HEALS,
        )
        self.operation = operation
        self.path = path
        self.errno = number


class FileStatus(NamedTuple):
    """The result of `stat`. Sizes in bytes, times in nanoseconds."""

    size: int
    mode: int
    mtime_ns: int
    inode: int
    device: int
    is_dir: bool
    is_file: bool


@dataclass(slots=True)
class _Open:
    fd: int
    path: str
    aside: str | None = None  # the name it has until it is renamed into place
    nameless: bool = False


class Access:
    """The operations. Paths are absolute; what a symbolic link leads to is what is used."""

    def __init__(self) -> None:
        self._files: dict[int, _Open] = {}
        self._journals: dict[int, OutputJournal] = {}
        self._numbers = itertools.count(1)

    def stat(self, path: str) -> tuple[Any, ...]:
        """The fields of a FileStatus."""
        found = os.stat(path)
        mode = found.st_mode
        return (
            found.st_size,
            modes.S_IMODE(mode),
            found.st_mtime_ns,
            found.st_ino,
            found.st_dev,
            modes.S_ISDIR(mode),
            modes.S_ISREG(mode),
        )

    def listdir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        return sorted(os.listdir(path))

    def open(self, path: str, offset: int) -> tuple[bytes, int]:
        """The first chunk from `offset` on, and a number to read on with; 0 when that was all."""
        # Never to wait for whoever is at the other end of a named pipe or terminal: that is an error instead.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
        try:
            if modes.S_ISDIR(os.fstat(fd).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
            if offset:
                os.lseek(fd, offset, os.SEEK_SET)
            data = os.read(fd, CHUNK)
        except BaseException:
            os.close(fd)
            raise
        if len(data) < CHUNK:
            os.close(fd)
            return data, 0
        return data, self._add_open(_Open(fd, path))

    def read(self, number: int) -> bytes:
        """The next chunk; empty at the end."""
        return os.read(self._files[number].fd, CHUNK)

    def close(self, number: int) -> None:
        """Let go of a file; what was not committed is dropped."""
        file = self._files.pop(number, None)
        if file is None:
            return
        os.close(file.fd)
        if file.aside is not None and not file.nameless:
            try:
                os.unlink(file.aside)
            except OSError:
                pass

    def place_unnamed(self, path: str, job: str) -> str:
        """Where an output goes that its job's description does not name: to its place, or beside what is there.

        A file there that reached the submit side from a job, and is as it came, may be replaced; so may be nothing
        else. Of a user's own file of data nobody can know that the job was meant to write it: the output goes beside
        it, under its name and the job's. Programs, links and what is no file are no place for it at all, nor is what is
        beside already.
        """
        there = os.lstat(path) if os.path.lexists(path) else None
        if there is None or is_marked(path, there):
            return path
        beside = f"{path}.{job}"
        is_data = modes.S_ISREG(there.st_mode) and not there.st_mode & 0o111
        if is_data and (not os.path.lexists(beside) or is_marked(beside, os.lstat(beside))):
            return beside
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    def create(self, path: str, mode: int) -> int:
        """Begin a file that will be at `path` once committed. A file that is there keeps its own mode.

        Devices and named pipes are written directly, and so is a file that may be written in a directory that
        may not: for these there is no 'aside'.
        """
        mode &= 0o777
        target = os.path.realpath(path) if os.path.islink(path) else path
        try:
            there = os.stat(target)
        except FileNotFoundError:
            there = None
        if there is not None and not modes.S_ISREG(there.st_mode):
            fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK)
            return self._add_open(_Open(fd, target))
        try:
            file = self._temporary_name(target, mode)
        except PermissionError:
            if there is None:
                raise
            fd = os.open(target, os.O_WRONLY | os.O_CLOEXEC | os.O_NOCTTY | os.O_TRUNC | os.O_NONBLOCK)
            return self._add_open(_Open(fd, target))
        if there is not None:
            os.fchmod(file.fd, modes.S_IMODE(there.st_mode) & 0o777)
        return self._add_open(file)

    def write(self, number: int, data: bytes) -> None:
        """Append to a file begun with `create`."""
        write_all(self._files[number].fd, data)

    def skip(self, number: int, length: int) -> None:
        """Leave so many bytes of a file begun with `create` unwritten: a hole."""
        fd = self._files[number].fd
        if modes.S_ISREG(os.fstat(fd).st_mode):
            leave_hole(fd, length)
        elif length > LARGEST_FILLED:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        else:
            write_all(fd, bytes(length))

    def piece(self, number: int, end: int) -> bytes | int:
        """The next piece of an open file, before `end`: bytes, empty at its end, or how long a hole is."""
        fd = self._files[number].fd
        at = os.lseek(fd, 0, os.SEEK_CUR)
        hole, length = next_piece(fd, at, end, CHUNK) if at < end else (False, 0)
        os.lseek(fd, at + length if hole else at, os.SEEK_SET)
        return length if hole else os.read(fd, length)

    def commit(self, number: int, sync: bool) -> None:
        """Put the file in its place; with `sync` it is on disk there when this returns."""
        file = self._files[number]
        try:
            if sync:
                os.fsync(file.fd)
            if file.aside is not None:
                if file.nameless:
                    # Only with a directory descriptor does Python follow the link, as this needs.
                    os.link(f"/proc/self/fd/{file.fd}", file.aside, src_dir_fd=file.fd, follow_symlinks=True)
                    file.nameless = False
                os.replace(file.aside, file.path)
                file.aside = None
                if sync:
                    sync_directory(os.path.dirname(file.path))
        finally:
            self.close(number)

    def sync(self, number: int) -> list[str]:
        """See a file's content on disk; [the name it will have aside, its place], empty where it is in its place."""
        file = self._files[number]
        if os.path.isdir(file.path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        mark_fd(file.fd)
        os.fsync(file.fd)
        return [] if file.aside is None else [file.aside, file.path]

    def rename_into_place(self, numbers: list[int]) -> None:
        """Put files in their places, one right after the other, once all of them have a name aside.

        Where this is cut short, `finish` tells from what is there how far it came. On an error nothing is left aside.
        """
        files = [self._files[number] for number in numbers]
        try:
            for file in files:
                if file.nameless and file.aside is not None:
                    os.link(f"/proc/self/fd/{file.fd}", file.aside, src_dir_fd=file.fd, follow_symlinks=True)
                    file.nameless = False
                if os.path.isdir(file.path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file.path)
            waiting = [file for file in files if file.aside is not None]
            directories = dict.fromkeys(os.path.dirname(file.path) for file in waiting)
            if len(waiting) > 1:
                for directory in directories:
                    sync_directory(directory)
            for file in waiting:
                assert file.aside is not None
                os.replace(file.aside, file.path)
                file.aside = None
            for directory in directories:
                sync_directory(directory)
        finally:
            for number in numbers:
                self.close(number)

    def finish(self, pairs: list[list[str]]) -> bool:
        """Finish or undo a `rename_into_place` that was cut short; whether it was finished.

        Args:
            pairs: what `sync` answered, in the order of the files.
        """
        # Names are given in this order before any is renamed, and renamed in this order: the last one's tells.
        named = os.path.lexists(pairs[-1][0])
        for aside, path in pairs:
            if not os.path.lexists(aside):
                continue
            if named:
                os.replace(aside, path)
            else:
                os.unlink(aside)
        for directory in dict.fromkeys(os.path.dirname(path) for _, path in pairs):
            if os.path.isdir(directory):
                sync_directory(directory)
        return named

    def rename(self, path: str, to: str) -> bool:
        """Give a file another name in its directory, in the place of what has it; False where there is no such file."""
        there = os.lstat(path) if os.path.lexists(path) else None
        if there is None or not modes.S_ISREG(there.st_mode):
            return False
        os.replace(path, to)
        return True

    def begin_journal(self, path: str) -> int:
        """Begin the journal of outputs that are too many to be kept open; see `pool.shadow.placing`."""
        number = next(self._numbers)
        self._journals[number] = OutputJournal(path, new=True)
        return number

    def set_aside(self, journal: int, numbers: list[int]) -> None:
        """See files on disk under their names aside, noted in a journal, and close them."""
        files = [self._files[number] for number in numbers]
        try:
            for file in files:
                if os.path.isdir(file.path):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), file.path)
            waiting = [(file, file.aside) for file in files if file.aside is not None]
            self._journals[journal].record_pairs((aside, file.path) for file, aside in waiting)
            for file in files:
                mark_fd(file.fd)
            sync_files([file.fd for file in files])
            for file, aside in waiting:
                if file.nameless:
                    os.link(f"/proc/self/fd/{file.fd}", aside, src_dir_fd=file.fd, follow_symlinks=True)
            for directory in dict.fromkeys(os.path.dirname(file.path) for file, _ in waiting):
                sync_directory(directory)
            for file, _ in waiting:
                file.aside = None
        finally:
            for number in numbers:
                self.close(number)

    def commit_journal(self, journal: int) -> None:
        """All of a journal's files go to their places from here on."""
        self._journals[journal].commit()

    def place_some(self, journal: int, most: int) -> bool:
        """Put some of a journal's files in their places; True when all are."""
        done = self._journals[journal].rename_into_place(most)
        if done:
            self._journals.pop(journal).close()
        return done

    def finish_journal(self, path: str, journal: int) -> bool:
        """Finish or undo what a journal tells of; whether it was finished. That there is none is no error."""
        known = self._journals.pop(journal, None)
        if known is not None:
            known.close()
        try:
            found = OutputJournal(path, new=False)
        except FileNotFoundError:
            return False
        try:
            if not found.committed:
                found.undo()
                return False
            while not found.rename_into_place(MANY):
                pass
            return True
        finally:
            found.close()

    def append(self, path: str, data: bytes, sync: bool) -> None:
        """Add to the end of a file, making it where it is missing: all of the data or, on an error, none."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
        fd = os.open(path, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            written = 0
            try:
                while written < len(data):
                    written += os.write(fd, data[written:] if written else data)
            except OSError:
                # A reader must not meet half an event; but only if nobody else has written since.
                if written and os.fstat(fd).st_size == size + written:
                    os.ftruncate(fd, size)
                raise
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def makedirs(self, path: str, mode: int) -> None:
        """Make a directory and those above it, where missing."""
        os.makedirs(path, mode & 0o777, exist_ok=True)

    def remove(self, path: str) -> None:
        """Remove a file; that it is not there is no error."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_some(self, path: str, most: int) -> bool:
        """Remove up to so many files in a directory and below; whether nothing is left there. No link is followed."""
        removed = 0
        for directory, names, files, fd in os.fwalk(path, topdown=False, follow_symlinks=False):
            for name in files:
                os.unlink(name, dir_fd=fd)
            for name in names:
                if modes.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                    os.unlink(name, dir_fd=fd)
                else:
                    os.rmdir(name, dir_fd=fd)
            removed += len(files) + len(names)
            if removed >= most and directory != path:
                return False
        return True

    def tree_size(self, path: str) -> int:
        """Bytes on disk of all that is in a directory and below."""
        size = 0
        for _, names, files, fd in os.fwalk(path, follow_symlinks=False):
            for name in (*names, *files):
                with contextlib.suppress(FileNotFoundError):
                    size += os.stat(name, dir_fd=fd, follow_symlinks=False).st_blocks * 512
        return size

    def sync_volume(self, path: str) -> None:
        """See all on disk that was written in the file system of a directory."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync_volume(fd)
        finally:
            os.close(fd)

    def check(self, path: str, want: str) -> None:
        """Raise what using the file would raise.

        `want` is 'read', 'execute', 'enter' (a directory), or 'write': an existing file that may be
        written, or a new one in a directory that may.
        """
        if want == "write" and not os.path.lexists(path):
            directory = os.path.dirname(path) or "/"
            self.check(directory, "enter")
            _allowed(directory, os.W_OK | os.X_OK)
            return
        mode = os.stat(path).st_mode
        if want == "enter":
            if not modes.S_ISDIR(mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            _allowed(path, os.X_OK)
            return
        if modes.S_ISDIR(mode) and want != "read":
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _allowed(path, {"read": os.R_OK, "write": os.W_OK, "execute": os.X_OK}[want])

    def _add_open(self, file: _Open) -> int:
        number = next(self._numbers)
        self._files[number] = file
        return number

    def _temporary_name(self, target: str, mode: int) -> _Open:
        directory, name = os.path.split(target)
        aside = f"{directory}/.{name[:100]}.{os.getpid()}.{next(self._numbers)}.part"
        try:
            fd = os.open(directory or "/", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, mode)
            return _Open(fd, target, aside, nameless=True)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
                raise
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        return _Open(fd, target, aside)


# The name of each operation in an error, and which argument is the path.
OPERATIONS: dict[str, str] = {
    "stat": "find",
    "listdir": "list",
    "open": "read",
    "read": "read",
    "close": "close",
    "create": "write",
    "place_unnamed": "write",
    "write": "write",
    "skip": "write",
    "piece": "read",
    "commit": "write",
    "sync": "write",
    "rename_into_place": "write",
    "finish": "write",
    "begin_journal": "write",
    "set_aside": "write",
    "commit_journal": "write",
    "place_some": "write",
    "finish_journal": "write",
    "rename": "rename",
    "append": "append to",
    "makedirs": "make directory",
    "remove": "remove",
    "remove_some": "remove",
    "tree_size": "read",
    "sync_volume": "write",
    "check": "use",
}


def operation_of(access: Access, name: str) -> Callable[..., Any]:
    """The operation by its name; KeyError for anything that is not one."""
    OPERATIONS[name]
    found: Callable[..., Any] = getattr(access, name)
    return found


def mark_fd(fd: int) -> None:
    """Note at a file that it reached the submit side from a job as it is now; some file systems cannot keep that."""
    with contextlib.suppress(OSError):
        os.setxattr(fd, OUTPUT_MARK, _as_it_is(os.fstat(fd)))


def is_marked(path: str, there: os.stat_result) -> bool:
    """Whether a file reached the submit side from a job, and was not changed since."""
    if not modes.S_ISREG(there.st_mode):
        return False
    try:
        return os.getxattr(path, OUTPUT_MARK, follow_symlinks=False) == _as_it_is(there)
    except OSError:
        return False


def _as_it_is(status: os.stat_result) -> bytes:
    return f"{status.st_size} {status.st_mtime_ns}".encode()


def _allowed(path: str, mode: int) -> None:
    if not os.access(path, mode, effective_ids=True):
        # Asked again through open-like calls the kernel would say why; access() only says that.
        number = errno.EACCES
        if mode & os.W_OK and os.statvfs(path).f_flag & os.ST_RDONLY:
            number = errno.EROFS
        raise OSError(number, os.strerror(number))
