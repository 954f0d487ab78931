"""Where an image store puts its bytes: a directory, or whatever fsspec reaches (an object store). Named blobs, no more.

    write(name, data)     whole or not at all; `sync` or `durable` has it there for good
    names(folder)         every name below a folder, with its size; nothing of writes that did not end

The image store (`store.py`) knows which names are an image, which belong together and which may go. Every method
blocks, and raises OSError where the place cannot do it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from pool.errors import PoolError

#: Files that are synchronised at a time.
SYNCS = 8
#: SYNC_FILE_RANGE_WRITE
_BEGIN_WRITING = 2
#: The prefix of files that are being written.
_ASIDE = "."
#: Files that were removed and are written again under other names, at most; each holds a block of the disk meanwhile.
SPARES = 1024
#: Where they lie.
_SPARE = "spare"


class BlobStore(Protocol):
    """Named blobs."""

    #: For people.
    where: str
    #: Blobs that are written at a time where several are there to be written.
    at_once: int

    def names(self, folder: str) -> Iterable[tuple[str, int]]: ...
    def read(self, name: str) -> bytes: ...
    def write(self, name: str, data: bytes, *, durable: bool = False) -> None: ...
    def sync(self, names: Iterable[str]) -> None: ...
    def remove(self, name: str, *, last: bool = False) -> None: ...


def _state(found: os.stat_result) -> tuple[int, int, int, int]:
    """The file, and when it was last written or named."""
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_size


class Folder:
    """A directory of this machine; nobody else writes there.

    A removed blob is kept as an empty file, which is the next to be written, under another name. An image is hundreds
    of files that come while those of others go, and a file system that does not reuse an inode for a minute after it
    was freed (ext4) searches longer for each than it writes.

    Args:
        lasting: what is written will be synchronised, and may be on its way to the disk before that.
    """

    at_once = 1

    def __init__(self, directory: Path, *, lasting: bool = True) -> None:
        self.where = str(directory)
        self._lasting = lasting
        self._directory = directory
        self._spare = directory / _SPARE
        for made in (directory, self._spare):
            made.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._spares = deque(self._spare.iterdir())

    def names(self, folder: str) -> Iterator[tuple[str, int]]:
        """Every file below a folder; what was being written when the writer died is removed."""
        top = self._directory / folder
        for below, _, files in sorted(os.walk(top)):
            for name in sorted(files):
                path = Path(below, name)
                if name.startswith(_ASIDE):
                    path.unlink(missing_ok=True)
                    continue
                with contextlib.suppress(FileNotFoundError):  # removed by another thread
                    yield str(path.relative_to(top)), path.stat().st_size

    def read(self, name: str) -> bytes:
        path = self._directory / name
        with path.open("rb") as handle:
            before = _state(os.fstat(handle.fileno()))
            data = handle.read()
            now = path.stat()
            # The file may have had another name meanwhile, with other content, and this one again.
            if _state(now) != before or now.st_size != len(data):
                raise FileNotFoundError(errno.ENOENT, "removed while it was read", str(path))
            return data

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Written aside and renamed, so that a name stands for whole content or is not there."""
        path = self._directory / name
        aside = path.with_name(f"{_ASIDE}{threading.get_ident():x}.{path.name}")
        if not durable:
            with contextlib.suppress(IndexError):
                aside = self._spares.pop()
        try:
            try:
                _write(aside, data, durable, self._lasting)
                aside.replace(path)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                _write(aside, data, durable, self._lasting)
                aside.replace(path)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        if durable:
            for above in (path.parent, path.parent.parent):
                synchronise(above)

    def sync(self, names: Iterable[str]) -> None:
        paths = [self._directory / name for name in names]
        above = {path.parent for path in paths}
        # Several at a time: a file system with a journal then writes it once for all of them.
        with ThreadPoolExecutor(SYNCS, thread_name_prefix="sync") as pool:
            for group in (paths, above, {path.parent for path in above}):
                for _ in pool.map(synchronise, group):
                    pass

    def remove(self, name: str, *, last: bool = False) -> None:
        """Remove a file; with `last` its directory too when nothing else is in it."""
        path = self._directory / name
        if last or not self._spared(path):
            path.unlink(missing_ok=True)
        if last:
            with contextlib.suppress(OSError):
                path.parent.rmdir()

    def _spared(self, path: Path) -> bool:
        """Keep a file that nobody needs for what is written next, where there are not enough of them."""
        if len(self._spares) >= SPARES:
            return False
        try:
            spare = self._spare / str(path.stat().st_ino)
            path.rename(spare)
            # Not to nothing: ext4 takes what is then written for a file that is replaced, and writes it out at once.
            os.truncate(spare, 1)
        except OSError:
            return False
        self._spares.append(spare)
        return True


class Objects:
    """A part of an object store, by fsspec: `s3://bucket/checkpoints` with its plug-in s3fs, and so on. A written blob
    is whole and durable there, or is not there.

    Raises:
        PoolError: fsspec, or its plug-in for this kind, is not installed.
    """

    at_once = 8

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ImportError:
            hint = "install poolnode[objects]"
            raise PoolError(f"cannot keep checkpoints in {url}: fsspec is not installed", hint=hint) from None
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise PoolError(f"cannot keep checkpoints in {url}: {error}") from error
        self.where = url

    def names(self, folder: str) -> Iterator[tuple[str, int]]:
        top = f"{self._root}/{folder}"
        self._files.invalidate_cache()
        found: dict[str, Any] = _plainly(lambda: self._found(top))
        for path, info in sorted(found.items()):
            yield path.removeprefix("/").removeprefix(top.removeprefix("/")).removeprefix("/"), int(info["size"] or 0)

    def _found(self, top: str) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._files.find(top, detail=True)
        except FileNotFoundError:
            return {}
        return found

    def read(self, name: str) -> bytes:
        data: bytes = _plainly(lambda: self._files.cat_file(f"{self._root}/{name}"))
        return data

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        _plainly(lambda: self._files.pipe_file(f"{self._root}/{name}", data))

    def sync(self, names: Iterable[str]) -> None:
        """Nothing is left to do."""

    def remove(self, name: str, *, last: bool = False) -> None:
        with contextlib.suppress(FileNotFoundError):
            _plainly(lambda: self._files.rm_file(f"{self._root}/{name}"))


class Bounded:
    """A place that is written to no quicker than it may be.

    Args:
        take: waits until so many bytes may be sent.
    """

    def __init__(self, place: BlobStore, take: Callable[[int], None]) -> None:
        self.where, self.at_once = place.where, place.at_once
        self._take = take
        self._inner = place
        self.names, self.read, self.sync, self.remove = place.names, place.read, place.sync, place.remove

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """When that may be sent."""
        self._take(len(data))
        self._inner.write(name, data, durable=durable)


def _plainly(call: Any) -> Any:
    """A plug-in's own exceptions as an OSError."""
    try:
        return call()
    except OSError:
        raise
    except Exception as error:
        raise OSError(errno.EIO, f"{type(error).__name__}: {error}") from error


def _write(path: Path, data: bytes, durable: bool, lasting: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with open(fd, "wb") as handle:
        handle.write(data)
        handle.truncate()
        if durable:
            os.fsync(fd)
        elif lasting:
            set_out(fd)


def set_out(fd: int, begin: int = 0, length: int = 0) -> None:
    """Have what was written begin its way to the disk, all of it by default: who synchronises it later finds most of it
    done."""
    _libc().sync_file_range(fd, ctypes.c_int64(begin), ctypes.c_int64(length), _BEGIN_WRITING)


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def synchronise(path: Path) -> None:
    """Have a file, or a directory's names, on disk for good. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
