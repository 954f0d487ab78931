"""System calls that the standard library has no function for: openat2, renameat2, partial utimensat, inotify."""

from __future__ import annotations

import ctypes
import os
from typing import Any

from pool.safe_directory import OpenHow

_libc = ctypes.CDLL(None, use_errno=True)
_OPENAT2, _RENAMEAT2 = 437, {"x86_64": 316, "aarch64": 276, "riscv64": 276}.get(os.uname().machine, 276)
AT_FDCWD, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x100
NOREPLACE, EXCHANGE = 1, 2
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
NO_MAGICLINKS, NO_SYMLINKS, BENEATH = 2, 4, 8
UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


#: Those that were asked for, which are few; the kernel only reads them.
_HOWS: dict[tuple[int, int], Any] = {}
_HOW_SIZE = ctypes.sizeof(OpenHow)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def openat2(directory: int, path: bytes, flags: int, resolve: int) -> int:
    """Open a path below a directory under the kernel's own rules of resolution. Raises OSError."""
    how = _HOWS.get((flags, resolve))
    if how is None:
        how = _HOWS[flags, resolve] = ctypes.pointer(OpenHow(flags | os.O_CLOEXEC, 0, resolve))
    return _checked(_libc.syscall(_OPENAT2, directory, path, how, _HOW_SIZE))


def renameat2(old_at: int, old: bytes, new_at: int, new: bytes, flags: int = 0) -> None:
    """Rename with NOREPLACE or EXCHANGE. Raises OSError."""
    _checked(_libc.syscall(_RENAMEAT2, old_at, old, new_at, new, flags))


def path_of(fd: int) -> bytes:
    """A path of what a descriptor names, for calls that take none; not for a link itself, which they would follow."""
    return b"/proc/self/fd/%d" % fd


def fallocate(fd: int, mode: int, offset: int, length: int) -> None:
    """Reserve, free or zero bytes of a file, as fallocate(2). Raises OSError."""
    _checked(_libc.fallocate(fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length)))


def magic(fd: int) -> int:
    """The kind of file system that a file lies on, as statfs(2) has it; 0 where that cannot be told."""
    buffer = (ctypes.c_long * 32)()
    return buffer[0] & 0xFFFFFFFF if _libc.fstatfs(fd, buffer) >= 0 else 0


def inotify() -> int:
    """A queue of what changes in watched directories. Raises OSError."""
    return _checked(_libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK))


def inotify_add_watch(queue: int, path: bytes, mask: int) -> int:
    """Watch a file: the watch's number, the same for the same file. Raises OSError."""
    return _checked(_libc.inotify_add_watch(queue, path, mask))


def inotify_rm_watch(queue: int, number: int) -> None:
    """Watch it no more. Raises OSError."""
    _checked(_libc.inotify_rm_watch(queue, number))


def syncfs(fd: int) -> None:
    """Have all of a descriptor's file system on its disk. Raises OSError."""
    _checked(_libc.syncfs(fd))


def utimensat(directory: int, name: bytes, accessed: int, modified: int) -> None:
    """Set times in ns, without following a link; -1 leaves one as it is, -2 is now. Raises OSError."""
    times = (_Time * 2)(_time(accessed), _time(modified))
    _checked(_libc.utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW))


def futimens(fd: int, accessed: int, modified: int) -> None:
    """Set times of an open file, as `utimensat`. Raises OSError."""
    _checked(_libc.futimens(fd, (_Time * 2)(_time(accessed), _time(modified))))


def _time(value: int) -> _Time:
    if value == -1:
        return _Time(0, UTIME_OMIT)
    if value == -2:
        return _Time(0, UTIME_NOW)
    return _Time(value // 10**9, value % 10**9)
