"""Chunks on disk: pieces of images under the digest of their content, compressed, each kept once.

A chunk's file is written aside and renamed, so a name stands for whole content or is not there; it is read against
its name. Who still needs which chunk is not known here.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import zstandard

from pool.images.errors import ImageDamaged, ImageGone
from pool.images.manifest import CHUNK, DIGEST

#: zstd's own scale. Memory of programs is about half as large at 1, at a rate that keeps up with a disk.
LEVEL = 1
#: Files that are synchronised at a time.
SYNCS = 8


def digest_of(data: bytes | memoryview) -> bytes:
    """The name of a chunk."""
    return hashlib.blake2b(data, digest_size=DIGEST).digest()


def compress(data: bytes | memoryview) -> bytes:
    """A chunk as it lies on disk and travels."""
    return zstandard.ZstdCompressor(level=LEVEL, write_content_size=True).compress(data)


def expand(digest: bytes, packed: bytes) -> bytes:
    """The chunk of that name, from what lies on disk or came over the wire.

    Raises:
        ImageDamaged: it is not the chunk of that name.
    """
    try:
        data = zstandard.ZstdDecompressor().decompress(packed, max_output_size=CHUNK)
    except zstandard.ZstdError as error:
        raise ImageDamaged(f"chunk {digest.hex()} cannot be unpacked: {error}") from error
    if digest_of(data) != digest:
        raise ImageDamaged(f"chunk {digest.hex()} holds something else")
    return data


class Chunks:
    """The chunks in one directory.

    Attributes:
        used: bytes on disk, all chunks together.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes: dict[bytes, int] = {}
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name, path, size in _listed(directory):
            if name is None:
                path.unlink(missing_ok=True)  # one that was being written when the writer died
            else:
                self._sizes[name] = size
        self.used = sum(self._sizes.values())

    def __contains__(self, digest: object) -> bool:
        return digest in self._sizes

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._sizes)

    def put(self, digest: bytes, packed: bytes) -> None:
        """Keep a compressed chunk, not yet known to be on the disk for good. Raises OSError."""
        if digest in self._sizes:
            return
        path = self._path(digest)
        aside = path.with_name(f".{path.name}")
        try:
            aside.write_bytes(packed)
        except FileNotFoundError:
            path.parent.mkdir(exist_ok=True, mode=0o700)
            aside.write_bytes(packed)
        except OSError:
            aside.unlink(missing_ok=True)
            raise
        aside.replace(path)
        self._sizes[digest] = len(packed)
        self.used += len(packed)

    def packed(self, digest: bytes) -> bytes:
        """A chunk as it lies there.

        Raises:
            ImageGone: it does not.
        """
        try:
            return self._path(digest).read_bytes()
        except FileNotFoundError:
            raise ImageGone(f"chunk {digest.hex()} is missing") from None

    def sync(self, digests: Iterator[bytes]) -> None:
        """Have these chunks on the disk for good when this returns. Raises OSError."""
        paths = [self._path(digest) for digest in digests]
        # Several at a time: a file system with a journal then writes it once for all of them.
        with ThreadPoolExecutor(SYNCS, thread_name_prefix="sync") as pool:
            for group in (paths, {path.parent for path in paths}):
                for _ in pool.map(_sync, group):
                    pass
        _sync(self._directory)

    def drop(self, digest: bytes) -> None:
        """Remove a chunk."""
        self.used -= self._sizes.pop(digest, 0)
        self._path(digest).unlink(missing_ok=True)

    def _path(self, digest: bytes) -> Path:
        name = digest.hex()
        return self._directory / name[:2] / name[2:]


def _listed(directory: Path) -> Iterator[tuple[bytes | None, Path, int]]:
    for folder in sorted(directory.iterdir()):
        if not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            try:
                name = bytes.fromhex(folder.name + path.name)
            except ValueError:
                name = b""
            yield (name if len(name) == DIGEST else None), path, path.stat().st_size


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
