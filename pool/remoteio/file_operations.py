"""The file operations for a job, a method for each of `frames.Op`, with this process's rights: its owner's.

Errors are OSError with the kernel's number, and become the job's own. Changes go through the journal. The methods are
called from several threads. The caller must not run two requests on one handle at the same time, unless both are
reads.
"""

from __future__ import annotations

import errno
import os
import stat as modes
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pool.remoteio import kernel
from pool.remoteio.changes import Changes
from pool.remoteio.frames import APPEND, OMIT, UNCHANGED, Attr, Op
from pool.remoteio.journal import ChangeJournal, Identity
from pool.remoteio.journal.settings import USERS, beneath
from pool.remoteio.leases import FileLeases
from pool.remoteio.locks import Locks
from pool.remoteio.path_lookup import PROBE, UNDO, NameInDirectory, PathDescriptor, Places

#: Entries of a directory in one answer.
LISTED = 1000
#: Bytes of one READ at most.
MOST = 1024 * 1024
#: The mark of a file that is opened to be written where the disk has less room than this: each write then waits for the
#: submit side's own answer.
FULL, SCARCE = b"full", 64 * 1024
#: SQLite's name for the file by which users of a database in WAL mode share memory.
SHARED_MEMORY = b"-shm"
#: Files whose written bytes could not be kept; this is reported with them.
MOST_REPORTED = 20
#: Names in one UNLINK_NAMES at most.
UNLINKED = 64
#: Listings that are kept to be gone on with.
LISTINGS = 64


@dataclass(slots=True)
class Open:
    """An open file of the job."""

    fd: int
    identity: Identity
    writes: bool


class FileOperations:
    """The files of one job.

    Args:
        most: files that the job may have open at a time; EMFILE beyond.
        changes: those of all jobs that may have the same files.
        not_kept: hears of the first write to each file that the disk has no room for, and of a database that the job
            cannot share.

    Attributes:
        journal: made when the places are known, before the first request.
        leases: None where none are given.
    """

    def __init__(
        self,
        places: Places,
        most: int = sys.maxsize,
        changes: Changes | None = None,
        not_kept: Callable[[str], None] = lambda why: None,
    ) -> None:
        self.places = places
        self._not_kept = not_kept
        self._reported: set[bytes] = set()
        self._changes = changes or Changes()
        self._most = most
        self.journal: ChangeJournal | None = None
        self.leases: FileLeases | None = None
        self.files: dict[int, Open] = {}
        #: How often each file is open.
        self._times_open: Counter[Identity] = Counter()
        self.locks = Locks()
        self._lock = threading.Lock()
        self._rooms = threading.local()
        self._listings: dict[int, list[bytes]] = {}
        self._cookie = 0

    def is_open(self, identity: Identity) -> bool:
        """Whether the job has this file open."""
        return self._times_open[identity] > 0

    def close_all(self) -> None:
        """Let go of every open file."""
        with self._lock:
            files, self.files = self.files, {}
            self._times_open.clear()
        for file in files.values():
            os.close(file.fd)
        self.locks.wake()

    # -- looking -----------------------------------------------------------------------------------------

    def stat(self, unique: int, path: bytes) -> tuple[Any, ...]:
        self._rearm_lease(path)
        with self.places.open_parent(path) as place:
            return (self._attr(_stat(place)),)

    def readlink(self, unique: int, path: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path) as place:
            return (os.readlink(place.name, dir_fd=place.directory),)

    def list(self, unique: int, path: bytes, cookie: int) -> tuple[Any, ...]:
        if not cookie:
            self._rearm_lease(path)
        with self.places.open_parent(path) as place:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(place.name, flags, dir_fd=place.directory)
        try:
            with self._lock:
                names = self._listings.pop(cookie, None) if cookie else None
            if names is None:
                if cookie:
                    raise _problem(errno.ESTALE)
                # With the descriptor itself Python would lose names that are not UTF-8.
                names = [os.fsencode(name) for name in os.listdir(fd)]
                names = [name for name in names if not name.startswith((UNDO, PROBE))]
            found = []
            for name in names[:LISTED]:
                try:
                    found.append((name, self._attr(os.stat(name, dir_fd=fd, follow_symlinks=False))))
                except FileNotFoundError:
                    continue
        finally:
            os.close(fd)
        if len(names) <= LISTED:
            return (0, found)
        with self._lock:
            self._cookie += 1
            self._listings[self._cookie] = names[LISTED:]
            while len(self._listings) > LISTINGS:
                del self._listings[next(iter(self._listings))]
            return (self._cookie, found)

    def statfs(self, unique: int, path: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path) as place:
            fd = os.open(place.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=place.directory)
        try:
            found = os.statvfs(fd)
        finally:
            os.close(fd)
        return (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree, found.f_frsize, 255)

    def access(self, unique: int, path: bytes, mask: int) -> tuple[Any, ...]:
        with self.places.open_parent(path) as place:
            if place.readonly and mask & os.W_OK:
                raise _problem(errno.EROFS)
            # AT_SYMLINK_NOFOLLOW: it is a link's own rights that are asked for; effective and real ids are the same.
            if not os.access(place.name, mask, dir_fd=place.directory, follow_symlinks=False):
                _stat(place)
                read_only = mask & os.W_OK and os.fstatvfs(place.directory).f_flag & os.ST_RDONLY
                raise _problem(errno.EROFS if read_only else errno.EACCES)
        return ()

    def lease(self, unique: int, number: int, path: bytes) -> tuple[Any, ...]:
        """Promise to tell of changes in a directory; without a path, do so no more."""
        if self.leases is None:
            raise _problem(errno.EOPNOTSUPP)
        if not path:
            self.leases.release(number)
        elif not self.leases.grant(number, path):
            raise _problem(errno.ENOLCK)
        return ()

    # -- open files --------------------------------------------------------------------------------------

    def open(self, unique: int, handle: int, path: bytes, flags: int, mode: int, want: int) -> tuple[Any, ...]:
        if handle in self.files:
            raise _problem(errno.EBADF)
        if len(self.files) >= self._most:
            raise _problem(errno.EMFILE)
        self._rearm_lease(path)
        wish = flags & os.O_ACCMODE
        writes = wish != os.O_RDONLY
        fd = self._opened(unique, path, wish, mode, flags)
        try:
            status = os.fstat(fd)
            if not modes.S_ISREG(status.st_mode):
                raise _problem(errno.EISDIR if modes.S_ISDIR(status.st_mode) else errno.EACCES)
            if flags & os.O_TRUNC and writes and status.st_size:
                self._required_journal().contents.before_truncate(fd, 0)
                os.ftruncate(fd, 0)
                status = self._changed(fd)
            data = b""
            if wish != os.O_WRONLY and 0 < status.st_size <= min(want, MOST):
                data = os.pread(fd, status.st_size, 0)
            if path.endswith(SHARED_MEMORY):
                self._refuse_shared_memory(path, fd, (status.st_dev, status.st_ino))
            if writes and not want and _is_full(fd):
                data = FULL
            self._store_open(handle, fd, status, writes)
        except BaseException:
            os.close(fd)
            raise
        return (self._attr(status), data)

    def _refuse_shared_memory(self, path: bytes, fd: int, identity: Identity) -> None:
        """No two machines can share memory: the job is let have the file that no other job or program on the submit
        side uses.
        """
        if self.is_open(identity) or not self.locks.is_database_in_use(fd):
            return
        self._report_lost(
            path,
            f"it could not open {os.fsdecode(path)}, which another job or program uses: a database of SQLite in WAL"
            " mode is for one machine at a time over remote files; have it use another journal"
            " (pragma journal_mode = delete), or one job after the other",
        )
        raise _problem(errno.EBUSY)

    def _opened(self, unique: int, path: bytes, wish: int, mode: int, flags: int) -> int:
        plain = wish | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with self.places.open_parent(path) as place:
            if place.readonly and (wish != os.O_RDONLY or flags & os.O_TRUNC):
                raise _problem(errno.EROFS)
            if not flags & os.O_CREAT:
                return _existing(place, plain)

            def create() -> int:
                return os.open(place.name, plain | os.O_CREAT | os.O_EXCL, mode & 0o7777, dir_fd=place.directory)

            while True:
                if not flags & os.O_EXCL:
                    try:
                        return _existing(place, plain)
                    except FileNotFoundError:
                        pass
                try:
                    if place.readonly:
                        raise _problem(errno.EROFS)
                    return self._required_journal().names.create(unique, path, create)
                except FileExistsError:
                    if flags & os.O_EXCL:
                        raise

    def reopen(
        self, unique: int, handle: int, path: bytes, flags: int, mode: int, want: int, dev: int, ino: int, unlinked: int
    ) -> tuple[Any, ...]:
        known = self.files.get(handle)
        if known is not None and known.identity == (dev, ino):
            return (self._attr(os.fstat(known.fd)),)
        wish = flags & os.O_ACCMODE
        plain = wish | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        where = self._required_journal().aside.find((dev, ino)) if unlinked else path
        if where is None:
            raise _problem(errno.ESTALE)
        with self.places.open_parent(where, own=bool(unlinked), write=wish != os.O_RDONLY) as place:
            fd = _existing(place, plain)
        try:
            status = os.fstat(fd)
            if (status.st_dev, status.st_ino) != (dev, ino):
                raise _problem(errno.ESTALE)
            self._store_open(handle, fd, status, wish != os.O_RDONLY)
        except BaseException:
            os.close(fd)
            raise
        return (self._attr(status),)

    def read(self, unique: int, handle: int, offset: int, size: int) -> tuple[Any, ...]:
        """Answers a view of the thread's own room, good until its next."""
        room: memoryview | None = getattr(self._rooms, "room", None)
        if room is None:
            room = self._rooms.room = memoryview(bytearray(MOST))
        return (room[: os.preadv(self._file(handle).fd, [room[: min(size, MOST)]], offset)],)

    def seek(self, unique: int, handle: int, offset: int, whence: int) -> tuple[Any, ...]:
        """Where data or a hole begins at or after an offset."""
        if whence not in (os.SEEK_DATA, os.SEEK_HOLE):
            raise _problem(errno.EINVAL)
        return (os.lseek(self._file(handle).fd, offset, whence),)

    def write(self, unique: int, handle: int, offset: int, data: bytes | memoryview) -> tuple[Any, ...]:
        file = self._file(handle)
        try:
            return self._write(unique, file, offset, data)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
                self._report_lost_write(file, error)
            raise

    def _report_lost_write(self, file: Open, error: OSError) -> None:
        path = os.readlink(kernel.path_of(file.fd))
        why = os.strerror(error.errno or errno.EIO).lower()
        self._report_lost(path, f"what it wrote to {os.fsdecode(path)} could not be kept: {why}")

    def _report_lost(self, path: bytes, why: str) -> None:
        if path not in self._reported and len(self._reported) < MOST_REPORTED:
            self._reported.add(path)
            self._not_kept(why)

    def _write(self, unique: int, file: Open, offset: int, data: bytes | memoryview) -> tuple[Any, ...]:
        if offset == APPEND:
            if not self._required_journal().contents.appending(unique, file.fd, data):
                _write_all(lambda rest: os.pwritev(file.fd, [rest], 0, os.RWF_APPEND), data)
        else:
            self._required_journal().contents.before_write(file.fd, offset, len(data))
            written = 0

            def at_its_place(rest: memoryview) -> int:
                nonlocal written
                count = os.pwrite(file.fd, rest, offset + written)
                written += count
                return count

            _write_all(at_its_place, data)
        return (len(data), self._attr(self._changed(file.fd)))

    def sync(self, unique: int, handle: int, datasync: int) -> tuple[Any, ...]:
        self._required_journal().sync()  # or a power cut could leave what is changed without what undoes it
        (os.fdatasync if datasync else os.fsync)(self._file(handle).fd)
        return ()

    def close(self, unique: int, handle: int) -> tuple[Any, ...]:
        with self._lock:
            file = self._pop_open(handle)
        if file is None:
            raise _problem(errno.EBADF)
        os.close(file.fd)
        self.locks.wake()
        return ()

    def truncate(self, unique: int, path: bytes, handle: int, size: int) -> tuple[Any, ...]:
        if handle:
            file = self._file(handle)
            self._required_journal().contents.before_truncate(file.fd, size)
            os.ftruncate(file.fd, size)
            return (self._attr(self._changed(file.fd)),)
        with self.places.open_parent(path, write=True) as place:
            fd = _existing(place, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not modes.S_ISREG(os.fstat(fd).st_mode):
                raise _problem(errno.EINVAL)
            self._required_journal().contents.before_truncate(fd, size)
            os.ftruncate(fd, size)
            return (self._attr(self._changed(fd)),)
        finally:
            os.close(fd)

    def fallocate(self, unique: int, handle: int, mode: int, offset: int, length: int) -> tuple[Any, ...]:
        file = self._file(handle)
        if mode & ~(kernel.KEEP_SIZE | kernel.PUNCH_HOLE | kernel.ZERO_RANGE):
            raise _problem(errno.EOPNOTSUPP)
        if mode & (kernel.PUNCH_HOLE | kernel.ZERO_RANGE):
            self._required_journal().contents.before_write(file.fd, offset, length)
        else:  # it only grows
            self._required_journal().contents.before_truncate(file.fd, os.fstat(file.fd).st_size)
        kernel.fallocate(file.fd, mode, offset, length)
        return (self._attr(self._changed(file.fd)),)

    def lock(
        self, unique: int, handle: int, owner: int, kind: int, wait: int, start: int, length: int
    ) -> tuple[Any, ...]:
        """With a lock that was taken comes what the file is by then; with one that was only looked for, who has it."""
        file = self._file(handle)
        found = self.locks.set_lock(file.fd, start, length, kind, wait)
        return found if found is not None else (self._attr(os.fstat(file.fd)),)

    # -- names -------------------------------------------------------------------------------------------

    def mkdir(self, unique: int, path: bytes, mode: int) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().names.create_special(
                "d", unique, path, place, lambda: os.mkdir(place.name, mode & 0o7777, dir_fd=place.directory)
            )
            return (self._attr(_stat(place)),)

    def mknod(self, unique: int, path: bytes, mode: int) -> tuple[Any, ...]:
        """A named pipe or socket: its bytes stay on the job's machine, the submit side has the name."""
        if modes.S_IFMT(mode) not in (modes.S_IFIFO, modes.S_IFSOCK):
            raise _problem(errno.EPERM)
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().names.create_special(
                "n", unique, path, place, lambda: os.mknod(place.name, mode, dir_fd=place.directory)
            )
            return (self._attr(_stat(place)),)

    def rmdir(self, unique: int, path: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().names.rmdir(unique, path, place)
        return ()

    def unlink(self, unique: int, path: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().names.unlink(unique, path, place)
        return ()

    def unlink_names(self, unique: int, above: bytes, names: Sequence[Sequence[bytes]]) -> tuple[Any, ...]:
        """Remove several names of a directory, which the job's side takes for removed already: who removed them does
        not wait. Each name is a request of its own, the last one that with the number of the whole.

        Returns:
            What could not be removed: (its place in the list, errno) of each.
        """
        if len(names) > UNLINKED or unique < len(names):
            raise _problem(errno.EINVAL)
        first = unique - len(names) + 1
        if self.leases is not None:
            self.leases.leave_out(above, [name for (name,) in names])
        above = b"" if above == b"/" else above
        refused: list[tuple[int, int]] = []
        removals = []
        try:
            with self.places.open_directory(above) as directory:
                for place, (name,) in enumerate(names):
                    try:
                        at = self.places.name_in(directory, above, name)
                        removals.append((first + place, above + b"/" + name, at))
                    except OSError as error:
                        refused.append((place, error.errno or errno.EIO))
                done = self._required_journal().names.unlink_all(removals)
        except OSError as error:
            self._report_not_removed(above, error)
            raise
        for (number, path, _), failed in zip(removals, done, strict=True):
            if failed is not None:
                refused.append((number - first, failed.errno or errno.EIO))
                if not isinstance(failed, FileNotFoundError):
                    self._report_not_removed(path, failed)
        return (sorted(refused),)

    def _report_not_removed(self, path: bytes, error: OSError) -> None:
        why = os.strerror(error.errno or errno.EIO).lower()
        self._report_lost(path, f"what it removed, {os.fsdecode(path)}, is still there: {why}")

    def rename(self, unique: int, old: bytes, new: bytes, flags: int) -> tuple[Any, ...]:
        if flags & ~(kernel.NOREPLACE | kernel.EXCHANGE):
            raise _problem(errno.EINVAL)
        with self.places.open_parent(old, write=True) as at_old, self.places.open_parent(new, write=True) as at_new:
            self._required_journal().names.rename(unique, old, at_old, new, at_new, flags)
        return ()

    def link(self, unique: int, old: bytes, new: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(old) as at_old, self.places.open_parent(new, write=True) as at_new:

            def act() -> None:
                os.link(
                    at_old.name,
                    at_new.name,
                    src_dir_fd=at_old.directory,
                    dst_dir_fd=at_new.directory,
                    follow_symlinks=False,
                )

            self._required_journal().names.create_special("k", unique, new, at_new, act)
            return (self._attr(_stat(at_new)),)

    def symlink(self, unique: int, target: bytes, path: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            names = self._required_journal().names
            names.create_special(
                "y", unique, path, place, lambda: os.symlink(target, place.name, dir_fd=place.directory)
            )
            return (self._attr(_stat(place)),)

    # -- rights and times --------------------------------------------------------------------------------

    def chmod(self, unique: int, path: bytes, mode: int) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place, PathDescriptor(place) as fd:
            if modes.S_ISLNK(os.fstat(fd).st_mode):
                raise _problem(errno.EOPNOTSUPP)
            self._required_journal().settings.before("p", path, place)
            os.chmod(kernel.path_of(fd), mode & 0o7777)  # by its name it would follow what has become a link
            return (self._attr(os.fstat(fd)),)

    def chown(self, unique: int, path: bytes, uid: int, gid: int) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().settings.before("o", path, place)
            ids = (-1 if one == UNCHANGED else one for one in (uid, gid))
            os.chown(place.name, *ids, dir_fd=place.directory, follow_symlinks=False)
            return (self._attr(_stat(place)),)

    def utimes(self, unique: int, path: bytes, accessed: int, modified: int) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().settings.before("t", path, place)
            kernel.utimensat(place.directory, place.name, accessed, modified)
            return (self._attr(_stat(place)),)

    def setattr(
        self, unique: int, handle: int, mode: int, uid: int, gid: int, accessed: int, modified: int
    ) -> tuple[Any, ...]:
        """Change several settings of a file that the job has open for writing, which has shown that it may."""
        file = self._file(handle)
        if not file.writes:
            raise _problem(errno.EBADF)
        settings = self._required_journal().settings
        if uid != UNCHANGED or gid != UNCHANGED:
            settings.before_open("o", file.fd)
            os.fchown(file.fd, *(-1 if one == UNCHANGED else one for one in (uid, gid)))
        if mode != UNCHANGED:
            settings.before_open("p", file.fd)
            os.fchmod(file.fd, mode & 0o7777)
        if accessed != OMIT or modified != OMIT:
            settings.before_open("t", file.fd)
            kernel.futimens(file.fd, accessed, modified)
        return (self._attr(os.fstat(file.fd)),)

    # -- extended attributes -----------------------------------------------------------------------------

    def xattr(self, unique: int, path: bytes, name: bytes) -> tuple[Any, ...]:
        """A value; the names that are a user's own, each with a zero behind it, where there is no name."""
        with self.places.open_parent(path) as place:
            if name:
                return (os.getxattr(beneath(place), _users(name), follow_symlinks=False),)
            names = [os.fsencode(one) for one in os.listxattr(beneath(place), follow_symlinks=False)]
            return (b"".join(one + b"\0" for one in names if one.startswith(USERS)),)

    def setxattr(self, unique: int, path: bytes, name: bytes, value: bytes, flags: int) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().settings.before_attribute(path, place, _users(name))
            os.setxattr(beneath(place), name, value, flags, follow_symlinks=False)
            return (self._attr(_stat(place)),)

    def removexattr(self, unique: int, path: bytes, name: bytes) -> tuple[Any, ...]:
        with self.places.open_parent(path, write=True) as place:
            self._required_journal().settings.before_attribute(path, place, _users(name))
            os.removexattr(beneath(place), name, follow_symlinks=False)
            return (self._attr(_stat(place)),)

    # -- small things ------------------------------------------------------------------------------------

    def _rearm_lease(self, path: bytes) -> None:
        if self.leases is not None:
            self.leases.rearm(path)

    def _changed(self, fd: int) -> os.stat_result:
        """The content of a file has been changed: what it is now."""
        status = os.fstat(fd)
        self._changes.mark_changed((status.st_dev, status.st_ino))
        return status

    def _required_journal(self) -> ChangeJournal:
        assert self.journal is not None
        return self.journal

    def _attr(self, status: os.stat_result) -> Attr:
        """The attributes of a file; names that are only kept for undoing do not count."""
        identity = (status.st_dev, status.st_ino)
        hidden = self._required_journal().aside.links(identity)
        return attr(status, self._changes.number(identity), hidden)

    def _file(self, handle: int) -> Open:
        file = self.files.get(handle)
        if file is None:
            raise _problem(errno.EBADF)
        return file

    def _store_open(self, handle: int, fd: int, status: os.stat_result, writes: bool) -> None:
        with self._lock:
            before = self._pop_open(handle)
            file = self.files[handle] = Open(fd, (status.st_dev, status.st_ino), writes)
            self._times_open[file.identity] += 1
        if before is not None:
            os.close(before.fd)

    def _pop_open(self, handle: int) -> Open | None:
        """Under the lock."""
        file = self.files.pop(handle, None)
        if file is not None:
            self._times_open[file.identity] -= 1
            if not self._times_open[file.identity]:
                del self._times_open[file.identity]
        return file


def attr(status: os.stat_result, changes: int = 0, hidden: int = 0) -> Attr:
    """The attributes of a file, so many of whose names do not count."""
    return Attr(
        status.st_dev,
        status.st_ino,
        status.st_size,
        status.st_blocks,
        status.st_atime_ns,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_mode,
        status.st_nlink - hidden,
        status.st_uid,
        status.st_gid,
        status.st_rdev,
        changes,
    )


def methods(work: FileOperations) -> dict[Op, Callable[..., tuple[Any, ...]]]:
    """The operations by their numbers; those about the connection and the marks are the session's."""
    return {op: getattr(work, op.name.lower()) for op in Op if hasattr(work, op.name.lower())}


def _users(name: bytes) -> bytes:
    if not name.startswith(USERS):
        raise _problem(errno.EOPNOTSUPP)
    return name


def _is_full(fd: int) -> bool:
    room = os.fstatvfs(fd)
    return room.f_bavail * room.f_frsize < SCARCE and room.f_blocks > 0


def _existing(place: NameInDirectory, flags: int) -> int:
    """Open what is there, if it is a regular file or a directory: nothing waits for a pipe, nothing wakes a device."""
    kind = _stat(place).st_mode
    if modes.S_ISLNK(kind):
        raise _problem(errno.ESTALE)
    if not modes.S_ISREG(kind) and not modes.S_ISDIR(kind):
        raise _problem(errno.EACCES)
    try:
        return os.open(place.name, flags, dir_fd=place.directory)
    except OSError as error:
        if error.errno == errno.ELOOP:  # it has become a link meanwhile
            raise _problem(errno.ESTALE) from None
        raise


def _stat(place: NameInDirectory) -> os.stat_result:
    return os.stat(place.name, dir_fd=place.directory, follow_symlinks=False)


def _write_all(write: Callable[[memoryview], int], data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[write(view) :]


def _problem(number: int) -> OSError:
    return OSError(number, os.strerror(number))
