"""File work inside of a directory that somebody else may change at any moment, such as a running job's.

Root's node works in directories of ordinary users. A path is not safe there: between a look at it and its use its owner
can replace any part of it by a link, and root writes or reads somewhere else. So the kernel resolves every name from an
open directory on, with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS). Files and directories are made with the file
rights of the user they are for, so that root gives nothing away afterwards.

Nothing here waits for the other end of a named pipe. All methods block on the disk and raise OSError; a name that is
absolute or climbs raises ValueError.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Self

Owner = tuple[int, int] | None
Name = str | bytes

_OPENAT2 = 437
_NO_SYMLINKS, _BENEATH, _NO_MAGICLINKS = 0x04, 0x08, 0x02
_HERE = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


class OpenHow(ctypes.Structure):
    """struct open_how of the kernel."""

    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class NotTheOwners(OSError):
    """A file that belongs to somebody else: a hard link may lead to what only root can read."""

    def __init__(self, name: Name) -> None:
        super().__init__(errno.EPERM, "it belongs to another user", os.fsdecode(name))


class NotRegular(OSError):
    """A pipe, device or directory where a file is wanted."""

    def __init__(self, name: Name) -> None:
        super().__init__(errno.EINVAL, "not a regular file", os.fsdecode(name))


class _Acting(threading.local):
    depth = 0


_acting = _Acting()


@contextlib.contextmanager
def file_rights_of(owner: Owner) -> Iterator[None]:
    """Have this thread make and change files as the owner, without root's rights to others'; None changes nothing.

    The kernel keeps this identity for each thread. Nothing may be awaited inside.
    """
    if owner is None or _acting.depth:
        yield
        return
    own = (os.geteuid(), os.getegid())
    _acting.depth += 1
    try:
        _libc.setfsgid(owner[1])
        _libc.setfsuid(owner[0])
        if _libc.setfsuid(-1) != owner[0]:  # -1 changes nothing and answers what holds
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        yield
    finally:
        _libc.setfsuid(own[0])
        _libc.setfsgid(own[1])
        _acting.depth -= 1


def open_beneath(directory: int, name: Name, flags: int, mode: int = 0) -> int:
    """Open a name that lies below an open directory, through no link at all.

    Raises:
        OSError: ELOOP for a link, EXDEV for a name that leads out.
    """
    parts = plain_parts(name)
    how = OpenHow(flags | os.O_CLOEXEC, mode, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    path = os.sep.encode().join(parts) or b"."
    while True:
        fd = int(_libc.syscall(_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EPERM) and not _has_openat2():
            return _open_part_by_part(directory, parts, flags, mode)
        if number not in (errno.EAGAIN, errno.EINTR):
            raise OSError(number, os.strerror(number), os.fsdecode(name))


def plain_parts(name: Name) -> list[bytes]:
    """The parts of a relative name. Raises ValueError where it is absolute, climbs or holds a zero byte."""
    raw = os.fsencode(name)
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if raw.startswith(b"/") or b".." in parts or b"\0" in raw:
        raise ValueError(f"not a name below a directory: {os.fsdecode(raw)!r}")
    return parts


_known_openat2: list[bool] = []


def _has_openat2() -> bool:
    """Whether this kernel, and the container this runs in, know the call."""
    if not _known_openat2:
        how = OpenHow(_HERE, 0, 0)
        fd = int(_libc.syscall(_OPENAT2, -100, b"/", ctypes.byref(how), ctypes.sizeof(how)))
        if fd >= 0:
            os.close(fd)
        _known_openat2.append(fd >= 0)
    return _known_openat2[0]


def _open_part_by_part(directory: int, parts: list[bytes], flags: int, mode: int) -> int:
    """The same for an old kernel: one open for each part, none of which follows a link."""
    at = os.dup(directory)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _HERE | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        return os.open(parts[-1] if parts else b".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=at)
    finally:
        os.close(at)


class SafeDirectory:
    """A directory whose contents another user may change; a context manager that closes it.

    Args:
        path: the directory; its parents are this node's own.
        owner: user and group id for whom files are made, and who alone may own what is read; None where the node is
            the same user.
    """

    def __init__(self, path: Path | str | bytes, owner: Owner = None) -> None:
        self.path = os.fsencode(path)
        self.owner = owner
        self.fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    # -- reading -----------------------------------------------------------------------------------------

    def open_file(self, name: Name) -> int:
        """A descriptor of a regular file, for reading. Raises NotRegular, NotTheOwners."""
        fd = open_beneath(self.fd, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            self.check(name, os.fstat(fd))
        except OSError:
            os.close(fd)
            raise
        return fd

    def check(self, name: Name, status: os.stat_result) -> None:
        """Refuse what is no regular file of the owner's."""
        if not stat.S_ISREG(status.st_mode):
            raise NotRegular(name)
        if self.owner is not None and status.st_uid != self.owner[0]:
            raise NotTheOwners(name)

    def status(self, name: Name) -> os.stat_result:
        """The file that lies there, a link itself where it is one."""
        with self._parent(name) as (parent, last):
            return os.stat(last, dir_fd=parent, follow_symlinks=False)

    def exists(self, name: Name) -> bool:
        """Whether something lies there."""
        try:
            self.status(name)
        except OSError:
            return False
        return True

    def entries(self, name: Name = b"") -> Iterator[tuple[bytes, os.stat_result, bytes]]:
        """Each entry of a directory in it, sorted: its name there, its status, where it leads if it is a link."""
        fd = open_beneath(self.fd, name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for entry in sorted(map(os.fsencode, os.listdir(fd))):
                try:
                    status = os.stat(entry, dir_fd=fd, follow_symlinks=False)
                    target = os.readlink(entry, dir_fd=fd) if stat.S_ISLNK(status.st_mode) else b""
                except FileNotFoundError:  # gone meanwhile
                    continue
                yield entry, status, target
        finally:
            os.close(fd)

    # -- writing -----------------------------------------------------------------------------------------

    def create_file(self, name: Name, mode: int) -> int:
        """A descriptor of a new and empty file, for writing; what had the name before is gone, not written to."""
        with self._parent(name, make=True) as (parent, last), file_rights_of(self.owner):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(last, dir_fd=parent)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(last, flags, 0o600, dir_fd=parent)
            os.fchmod(fd, mode & 0o777)
            return fd

    def make_directory(self, name: Name, mode: int) -> None:
        """A directory of the owner's and those above it, where missing."""
        for fd in self._make_directories(plain_parts(name)):
            with file_rights_of(self.owner):
                os.chmod(f"/proc/self/fd/{fd}", (mode & 0o777) | 0o700)

    def move_in(self, source: Path | bytes, name: Name, mode: int) -> None:
        """Move a file of the node's own here. Raises FileExistsError where something has the name."""
        with self._parent(name, make=True) as (parent, last):
            fd = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if self.owner is not None:
                    os.fchown(fd, *self.owner)
                os.fchmod(fd, mode & 0o777)
                with contextlib.suppress(FileNotFoundError):
                    os.stat(last, dir_fd=parent, follow_symlinks=False)
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fsdecode(name))
                os.rename(source, last, dst_dir_fd=parent)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                self._copy_in(fd, parent, last, mode)
            finally:
                os.close(fd)

    def _copy_in(self, source: int, parent: int, last: bytes, mode: int) -> None:
        with file_rights_of(self.owner):
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(last, flags, 0o600, dir_fd=parent)
        try:
            copy_data(source, target)
            os.fchmod(target, mode & 0o777)
        finally:
            os.close(target)

    def make_link(self, target: bytes, name: Name) -> None:
        """A symbolic link. It is never followed here."""
        with self._parent(name) as (parent, last), file_rights_of(self.owner):
            os.symlink(target, last, dir_fd=parent)

    def make_pipe(self, name: Name) -> None:
        """A named pipe."""
        with self._parent(name) as (parent, last), file_rights_of(self.owner):
            os.mkfifo(last, 0o600, dir_fd=parent)

    def give_second_name(self, name: Name, second: Name) -> None:
        """One more name for a file."""
        with self._parent(name) as (one, first), self._parent(second) as (other, last), file_rights_of(self.owner):
            os.link(first, last, src_dir_fd=one, dst_dir_fd=other, follow_symlinks=False)

    def set_mode_and_time(self, name: Name, mode: int | None, modified: int) -> None:
        """Give what lies there its mode (None for a link) and its time (ns), as its owner."""
        with self._parent(name) as (parent, last), file_rights_of(self.owner):
            if mode is not None:
                os.chmod(last, mode, dir_fd=parent)
            os.utime(last, ns=(modified, modified), dir_fd=parent, follow_symlinks=False)

    def open_up(self, name: Name, mode: int) -> os.stat_result:
        """Give something a mode, as its owner; its status after that."""
        with self._parent(name) as (parent, last):
            with file_rights_of(self.owner):
                os.chmod(last, mode, dir_fd=parent)
            return os.stat(last, dir_fd=parent, follow_symlinks=False)

    def remove_file(self, name: Name) -> None:
        """Remove a file; that it is not there is no error."""
        rights = file_rights_of(self.owner)
        with contextlib.suppress(FileNotFoundError), self._parent(name) as (parent, last), rights:
            os.unlink(last, dir_fd=parent)

    # -- below -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _parent(self, name: Name, *, make: bool = False) -> Iterator[tuple[int, bytes]]:
        *above, last = plain_parts(name) or [b""]
        if not last:
            raise ValueError("no name at all")
        try:
            fd = open_beneath(self.fd, b"/".join(above), _HERE)
        except FileNotFoundError:
            if not make:
                raise
            for _ in self._make_directories(above):
                pass
            fd = open_beneath(self.fd, b"/".join(above), _HERE)
        try:
            yield fd, last
        finally:
            os.close(fd)

    def _make_directories(self, parts: list[bytes]) -> Iterator[int]:
        """Make directories, one below the other; gives a descriptor of the last one."""
        at = os.dup(self.fd)
        try:
            for part in parts:
                with file_rights_of(self.owner), contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
                inner = os.open(part, _HERE | os.O_NOFOLLOW, dir_fd=at)
                os.close(at)
                at = inner
            yield at
        finally:
            os.close(at)


def copy_data(source: int, target: int) -> int:
    """Copy the contents of an open file into an empty one; what was never written stays a hole. Returns the size."""
    size = os.fstat(source).st_size
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
            end = os.lseek(source, at, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing more but a hole
                break
            raise
        while at < end:
            copied = _copy_some(source, target, at, end - at)
            if not copied:
                break
            at += copied
        if at < end:
            break
    os.ftruncate(target, size)
    return size


def _copy_some(source: int, target: int, at: int, most: int) -> int:
    try:
        return os.copy_file_range(source, target, min(most, 1 << 30), at, at)
    except OSError as error:  # not between these file systems
        if error.errno not in (errno.EXDEV, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    return os.pwrite(target, os.pread(source, min(most, 1 << 20), at), at)
