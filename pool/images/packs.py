"""A directory of this machine in which chunks lie one behind the other in a few large files, and all else in its own.

    packs/00000001          chunks, each from a whole block on; what was removed is a hole
    packs/00000001.index    digest, place, length of each, in the order in which they came to be whole

An image is hundreds of chunks that come and go together. As a file each they cost more than all else that is done with
them: an inode, a directory, names, and a synchronisation of their own. A pack goes when nothing in it is left.

A chunk is there when its row is and its bytes are: rows are written after the bytes and synchronised with them, and are
not touched again. So what was removed is known by its hole alone, and a crash leaves of a removal what it left of the
name of a file: file systems make holes and remove names in order. Where none can be made a chunk is a file as before;
such files are read wherever they lie.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import os
import re
import struct
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pool.decimals import has_digits_only
from pool.images.blob_stores import SYNCS, BlobStore, Folder, Objects, set_out, synchronise

#: The pack files of a directory.
CHUNK_NAME = re.compile(r"chunks/([0-9a-f]{2})/([0-9a-f]{38})", re.ASCII)
_PACKS, _INDEX = "packs", ".index"
_ROW = struct.Struct(">20sQI")
#: Bytes after which the next pack is begun, and after which what was written begins its way to the disk.
PACK, OUT = 64 * 2**20, 4 * 2**20
#: A hole is made of whole blocks of this size; larger ones are multiples of it.
BLOCK = 4096
#: FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
_PUNCH = 3


@dataclass(slots=True, eq=False)
class Pack:
    """One of the files.

    Attributes:
        live: chunks that lie in it. end: where the next one goes. out: up to where it is on its way to the disk.
        rows: that were written to its index; synced: of these, on disk for good with their bytes.
        busy: threads that write to it; files: itself and its index, open while somebody may.
    """

    path: Path
    live: int = 0
    end: int = 0
    out: int = 0
    rows: int = 0
    busy: int = 0
    synced: int = 0
    files: tuple[int, int] | None = None

    @property
    def index(self) -> Path:
        """Where its rows lie."""
        return self.path.with_name(self.path.name + _INDEX)

    def open(self) -> None:
        """It is to be written. Raises OSError."""
        how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        data = os.open(self.path, how, 0o666)
        try:
            self.files = data, os.open(self.index, how, 0o666)
        except OSError:
            os.close(data)
            raise

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """It is written no more."""
        files, self.files = self.files or (), None
        for fd in files:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class ChunkLocation:
    """Where one chunk lies."""

    pack: Pack
    begin: int
    size: int


class Packs(Folder):
    """See above; nobody else writes there."""

    def __init__(self, directory: Path, *, lasting: bool = True) -> None:
        super().__init__(directory, lasting=lasting)
        while self._spares:  # of a directory of chunks that were files
            self._spares.pop().unlink(missing_ok=True)
        self._packs = directory / _PACKS
        self._packs.mkdir(exist_ok=True, mode=0o700)
        self._one = threading.Lock()
        self._spots: dict[str, ChunkLocation] = {}
        self._current: Pack | None = None
        self._number = 0
        self._able: bool | None = None
        self._read_packs()

    # -- what a place does -------------------------------------------------------------------------------

    def names(self, folder: str) -> Iterator[tuple[str, int]]:
        yield from super().names(folder)
        with self._one:
            found = sorted((name, spot.size) for name, spot in self._spots.items())
        for name, size in found:
            if name.startswith(f"{folder}/"):
                yield name.removeprefix(f"{folder}/"), size

    def read(self, name: str) -> bytes:
        spot = self._spots.get(name)
        if spot is None:
            return super().read(name)
        with _opened(spot.pack.path, os.O_RDONLY) as fd:
            data = os.pread(fd, spot.size, spot.begin)
        if self._spots.get(name) is not spot:
            raise FileNotFoundError(errno.ENOENT, "removed while it was read", name)
        return data

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        chunk = CHUNK_NAME.fullmatch(name)
        if chunk is None or durable or not self._can_make_holes():
            super().write(name, data, durable=durable)
            return
        pack, begin = self._begin(len(data))
        try:
            assert pack.files is not None
            _write_at(pack.files[0], data, begin)
            row = _ROW.pack(bytes.fromhex(chunk[1] + chunk[2]), begin, len(data))
            with self._one:
                _write_at(pack.files[1], row, pack.rows * _ROW.size)
                pack.rows += 1
                pack.live += 1
                before, self._spots[name] = self._spots.get(name), ChunkLocation(pack, begin, len(data))
            if before is not None:
                self._let_go(before)
            if self._lasting:
                self._set_out(pack)
        except OSError:
            with contextlib.suppress(OSError):
                _make_hole(pack.path, begin, len(data))
            raise
        finally:
            with self._one:
                pack.busy -= 1
                self._close_if_unused(pack)

    def sync(self, names: Iterable[str]) -> None:
        files: list[str] = []
        packs: dict[Pack, None] = {}
        with self._one:
            for name in names:
                spot = self._spots.get(name)
                if spot is None:
                    files.append(name)
                elif spot.pack.synced < spot.pack.rows:
                    packs[spot.pack] = None
        if files:
            super().sync(files)
        if packs:
            with ThreadPoolExecutor(SYNCS, thread_name_prefix="sync") as pool:
                for _ in pool.map(_sync_pack, packs):
                    pass
            for above in (self._packs, self._directory):
                synchronise(above)

    def remove(self, name: str, *, last: bool = False) -> None:
        with self._one:
            spot = self._spots.pop(name, None)
        if spot is None:
            super().remove(name, last=last)
        else:
            self._let_go(spot)

    # -- packs -------------------------------------------------------------------------------------------

    def _begin(self, size: int) -> tuple[Pack, int]:
        """A pack, which stays for now, and where in it there is room for so many bytes that only the caller writes."""
        with self._one:
            pack = self._current
            if pack is None or pack.end >= PACK:
                self._number += 1
                full, pack = pack, Pack(self._packs / f"{self._number:08d}")
                pack.open()
                self._current = pack
                if full is not None:
                    self._close_if_unused(full)
            begin = pack.end
            pack.end += -(-size // BLOCK) * BLOCK
            pack.busy += 1
            return pack, begin

    def _close_if_unused(self, pack: Pack) -> None:
        """A pack goes when nothing is in it, and nothing comes."""
        if pack.busy or (pack.live and pack is self._current):
            return
        pack.close()
        if pack.live:
            return
        if pack is self._current:
            self._current = None
        for path in (pack.path, pack.index):
            with contextlib.suppress(OSError):  # what cannot be removed now is found at the next opening
                path.unlink(missing_ok=True)

    def _let_go(self, spot: ChunkLocation) -> None:
        """Nobody needs what lies there."""
        pack = spot.pack
        with self._one:
            pack.live -= 1
            self._close_if_unused(pack)
            whole = pack.live > 0 or pack.busy > 0
        if whole:
            _make_hole(pack.path, spot.begin, spot.size)

    def _set_out(self, pack: Pack) -> None:
        """Have what was written begin its way to the disk, now and again."""
        with self._one:
            begin, length = pack.out, pack.end - pack.out
            if length < OUT:
                return
            pack.out = pack.end
        assert pack.files is not None
        set_out(pack.files[0], begin, length)

    def _can_make_holes(self) -> bool:
        """Whether the file system makes holes, and tells where they are."""
        if self._able is None:
            probe = self._packs / f".probe.{threading.get_ident():x}"
            try:
                probe.write_bytes(b"x" * 2 * BLOCK)
                _make_hole(probe, 0, BLOCK)
                with _opened(probe, os.O_RDONLY) as fd:
                    self._able = os.lseek(fd, 0, os.SEEK_DATA) == BLOCK
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise
                self._able = False
            finally:
                probe.unlink(missing_ok=True)
        return self._able

    def _read_packs(self) -> None:
        packs = []
        for path in sorted(self._packs.iterdir()):
            if has_digits_only(path.name):
                packs.append(Pack(path))
            elif not path.name.endswith(_INDEX) or not path.with_suffix("").exists():
                path.unlink(missing_ok=True)
        for pack in packs:
            with _opened(pack.path, os.O_RDONLY) as fd:
                for digest, begin, size in _rows_of(pack):
                    if _holds(fd, begin, size):
                        self._spots[f"chunks/{digest[:2]}/{digest[2:]}"] = ChunkLocation(pack, begin, size)
        for spot in self._spots.values():
            spot.pack.live += 1
        for pack in packs:
            self._number = max(self._number, int(pack.path.name))
            self._close_if_unused(pack)


def place_at(text: str) -> BlobStore:
    """The place that a setting names: a path, file:// or another URL of fsspec's.

    Raises:
        PoolError: it cannot be used from here.
    """
    kind, found, rest = text.partition("://")
    if not found:
        return Packs(Path(text))
    return Packs(Path(rest)) if kind == "file" else Objects(text.rstrip("/"))


def _rows_of(pack: Pack) -> Iterator[tuple[str, int, int]]:
    try:
        data = pack.index.read_bytes()
    except FileNotFoundError:
        return
    for digest, begin, size in _ROW.iter_unpack(data[: len(data) // _ROW.size * _ROW.size]):
        yield digest.hex(), begin, size


def _holds(fd: int, begin: int, size: int) -> bool:
    """Whether there are bytes of a chunk; the first of its blocks is never a hole while it is there."""
    try:
        return size > 0 and begin + size <= os.fstat(fd).st_size and os.lseek(fd, begin, os.SEEK_DATA) == begin
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        return False


@contextlib.contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    fd = os.open(path, how | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _write_at(fd: int, data: bytes, begin: int) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(data):
            done += os.pwrite(fd, view[done:], begin + done)


def _sync_pack(pack: Pack) -> None:
    rows = pack.rows  # what comes from now on may not be on disk when this returns
    for path in (pack.path, pack.index):
        synchronise(path)
    pack.synced = max(pack.synced, rows)


def _make_hole(path: Path, begin: int, size: int) -> None:
    """Give back what a chunk took; nothing where its pack has gone. Raises OSError."""
    place, length = ctypes.c_int64(begin), ctypes.c_int64(-(-size // BLOCK) * BLOCK)
    with contextlib.suppress(FileNotFoundError), _opened(path, os.O_RDWR) as fd:
        if _libc().fallocate(fd, _PUNCH, place, length):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
