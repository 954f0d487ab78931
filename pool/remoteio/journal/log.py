"""The files of an undo journal: numbered segments of records, each with the bytes it saved.

    N.log    records since mark N: u32 size, u32 CRC-32, msgpack; one that was cut short by a crash ends the reading
    N.data   what was overwritten; records say where, and the CRC-32 of it
    state    {"run", "first", "why", "boot"}, replaced by renaming

Written without waiting for the disk: writes of a killed process are not lost. They reach the disk soon after
(`sync_thread`), before data that the job wants to be there (`sync`), and before a checkpoint counts that needs them
(`secure`). After a power cut, the state of two files is in no order, so that a record may be there and the bytes it
speaks of not; `boot` tells that the end may be missing. All names are beneath one directory descriptor.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import msgpack

_HEAD = struct.Struct("<II")
#: Bytes that are kept under one record at most.
_PIECE = 1024 * 1024


class Segment:
    """The records since one mark."""

    def __init__(self, directory: int, number: int) -> None:
        self.number = number
        self._directory = directory
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._log = os.open(f"{number}.log", flags | os.O_APPEND, 0o600, dir_fd=directory)
        self._data = os.open(f"{number}.data", flags, 0o600, dir_fd=directory)
        self.size = os.fstat(self._data).st_size
        #: Whether the disk may not have what is in the files.
        self.is_unsynced = self.size > 0 or os.fstat(self._log).st_size > 0

    def add(self, *records: list[Any]) -> None:
        """Write records down: all of them, or none. Raises OSError."""
        self.is_unsynced = True
        bodies = map(msgpack.packb, records)
        data = b"".join([part for body in bodies for part in (_HEAD.pack(len(body), zlib.crc32(body)), body)])
        written = os.write(self._log, data)
        if written != len(data):
            os.ftruncate(self._log, os.fstat(self._log).st_size - written)
            raise OSError(28, os.strerror(28))

    def save(self, source: int, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
        """Keep bytes of a file, in pieces: (start there, bytes, where they are in the data, their CRC-32).

        Raises:
            OSError: they cannot be read or kept.
        """
        self.is_unsynced = True
        while start < end:
            piece = os.pread(source, min(_PIECE, end - start), start)
            if not piece:
                return  # it was shortened by somebody else meanwhile
            at = self.size
            view = memoryview(piece)
            while view:
                count = os.pwrite(self._data, view, self.size)
                self.size += count
                view = view[count:]
            yield start, len(piece), at, zlib.crc32(piece)
            start += len(piece)

    def undo_write(self, target: int, offset: int, length: int, at: int, checksum: int) -> None:
        """Write a piece of kept bytes where they were. Raises OSError, and nothing is written of what was not kept."""
        piece = os.pread(self._data, length, at)
        if len(piece) != length or zlib.crc32(piece) != checksum:
            raise OSError(errno.EIO, "what was overwritten there was not kept: the submit machine lost it")
        view = memoryview(piece)
        while view:
            count = os.pwrite(target, view, offset)
            offset, view = offset + count, view[count:]

    def unsynced(self) -> list[int]:
        """Descriptors, the caller's, of files that the disk may not have as they are; now they count as synced."""
        self.is_unsynced = False
        return [os.dup(self._data), os.dup(self._log)]

    def not_synced(self) -> None:
        """Those could not be."""
        self.is_unsynced = True

    def records(self) -> list[list[Any]]:
        """All records that are whole, in order; what a crash has cut short is cut off for good."""
        found = []
        good = 0
        with open(os.dup(self._log), "rb") as handle:
            handle.seek(0)
            while len(head := handle.read(_HEAD.size)) == _HEAD.size:
                size, checksum = _HEAD.unpack(head)
                body = handle.read(size)
                if len(body) != size or zlib.crc32(body) != checksum:
                    break
                found.append(msgpack.unpackb(body))
                good += _HEAD.size + size
        if os.fstat(self._log).st_size > good:
            os.ftruncate(self._log, good)
        return found

    def empty(self) -> None:
        """Begin again."""
        os.ftruncate(self._log, 0)
        self.empty_data()

    def empty_data(self) -> None:
        """Give back what was saved."""
        os.ftruncate(self._data, 0)
        self.size = 0

    def close(self) -> None:
        os.close(self._log)
        os.close(self._data)

    def remove(self) -> None:
        """Close it, and nothing of it is left."""
        self.close()
        for name in (f"{self.number}.log", f"{self.number}.data"):
            os.unlink(name, dir_fd=self._directory)


def boot() -> str:
    """Which start of this machine it is."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as handle:
        return handle.read().decode().strip()


def segments(directory: int) -> list[Segment]:
    """Those that are there, oldest first."""
    names = (name.partition(".") for name in os.listdir(directory))
    return [Segment(directory, number) for number in sorted(int(n) for n, _, kind in names if kind == "log")]


def read_state(directory: int) -> dict[str, Any]:
    """The state; empty where there is none yet."""
    try:
        fd = os.open("state", os.O_RDONLY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return {}
    with open(fd, "rb") as handle:
        found: dict[str, Any] = json.loads(handle.read())
    return found


def write_state(directory: int, state: dict[str, Any]) -> None:
    """Replace the state, so that there is one after a power cut: the one before, or this."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with open(os.open("state.new", flags, 0o600, dir_fd=directory), "wb") as handle:
        handle.write(json.dumps(state).encode())
        handle.flush()
        os.fdatasync(handle.fileno())
    os.rename("state.new", "state", src_dir_fd=directory, dst_dir_fd=directory)
