"""Scratch directories at the end of a job: emptied or removed, whatever is in them, without holding up the node.

Small directories are removed at once. A directory with more in it is renamed, so that its name is free for the next
job, and removed in a thread; a node that dies before that finds it at its next start (`leftovers`). Jobs may leave
directories without rights, nested deeper than a program can recurse, or links to anywhere: none is followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

#: The prefix of the name of a directory that is to be removed.
GONE = ".gone."
#: Entries, and bytes of all of them, up to which a directory is emptied at once: a few hundred microseconds.
FEW, SMALL = 16, 16 << 20
BATCH = 1024
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def empty(path: Path) -> None:
    """Leave a scratch directory empty, as it was made, or not at all."""
    if not _emptied_at_once(path):
        discard(path)


def discard(path: Path) -> None:
    """Remove a scratch directory with whatever is in it; when this returns its name is free."""
    try:
        os.rmdir(path)
        return
    except FileNotFoundError:
        return
    except OSError:
        pass
    aside = path
    if not path.name.startswith(GONE):
        aside = path.with_name(f"{GONE}{os.lstat(path).st_ino}")  # no two that are there have one number
        os.rename(path, aside)
    asyncio.get_running_loop().run_in_executor(None, remove, aside)


def leftovers(execute: Path, wanted: Iterable[str]) -> list[Path]:
    """The entries of the directory of scratch directories that belong to none of the wanted names."""
    keep = set(wanted)
    return [path for path in execute.iterdir() if path.name not in keep]


def remove(path: Path) -> None:
    """Remove a tree of any depth, as far as the rights of this process go. Blocks; never raises."""
    with contextlib.suppress(OSError):
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
            return
        top = _open(path)
        try:
            os.fchmod(top, 0o700)
            _remove_all(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _emptied_at_once(path: Path) -> bool:
    """Whether it was little, and the directory itself is as the starter makes it."""
    try:
        fd = os.open(path, _DIRECTORY)
    except OSError:
        return False
    try:
        with os.scandir(fd) as entries:
            found = list(itertools.islice(entries, FEW + 1))
            if len(found) > FEW or any(entry.is_dir(follow_symlinks=False) for entry in found):
                return False
            size = sum(entry.stat(follow_symlinks=False).st_blocks * 512 for entry in found)
        if size > SMALL or stat.S_IMODE(os.fstat(fd).st_mode) != 0o700 or os.listxattr(fd):
            return False
        for entry in found:
            os.unlink(entry.name, dir_fd=fd)
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _open(name: Path | str, directory: int | None = None) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=directory)
    except PermissionError:  # a job may take away everybody's rights to its directories, its own too
        _allow(name, directory)
        return os.open(name, _DIRECTORY, dir_fd=directory)


def _allow(name: Path | str, directory: int | None = None) -> None:
    """Give a directory back its rights; a link that has taken its name is not followed."""
    fd = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        os.chmod(f"/proc/self/fd/{fd}", 0o700)
    finally:
        os.close(fd)


def _remove_all(top: int) -> None:
    """Empty a directory without going down: what a directory in it holds is moved up, until none holds any."""
    numbers = itertools.count()
    for name in _names(top):
        pending = [name]
        while pending:
            one = pending.pop()
            if _unlinked(one, top):
                continue
            inner = _open(one, top)
            try:
                os.fchmod(inner, 0o700)
                for below in _names(inner):
                    if not _unlinked(below, inner):
                        pending.append(_move_up(below, inner, top, numbers))
            finally:
                os.close(inner)
            os.rmdir(one, dir_fd=top)


def _names(fd: int) -> Iterator[str]:
    """Every entry, some at a time, until none is left: who asks removes each."""
    while True:
        with os.scandir(fd) as entries:
            some = [entry.name for entry in itertools.islice(entries, BATCH)]
        if not some:
            return
        yield from some


def _unlinked(name: str, directory: int) -> bool:
    """Remove what is not a directory; False when it is one."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        return True
    except (IsADirectoryError, PermissionError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
            raise
        return False
    return True


def _move_up(name: str, directory: int, top: int, numbers: Iterator[int]) -> str:
    opened = False
    while True:
        new = f".{next(numbers)}"
        try:
            os.rename(name, new, src_dir_fd=directory, dst_dir_fd=top)
            return new
        except PermissionError:
            if opened:
                raise
            _allow(name, directory)  # moving a directory changes it
            opened = True
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
