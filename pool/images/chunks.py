"""Chunks: pieces of images under the digest of their content, compressed, each kept once in its place.

A name stands for whole content or is not there; it is read against its name. This module does not know who still needs
which chunk.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import zstandard

from pool.images.blob_stores import BlobStore
from pool.images.errors import ImageDamaged, ImageGone, failed
from pool.images.manifest import CHUNK, DIGEST

#: zstd's own scale. Memory of programs is about half as large at 1, at a rate that keeps up with a disk.
LEVEL = 1
#: The place that they lie in.
FOLDER = "chunks"


_own = threading.local()


def digest_of(data: bytes | memoryview) -> bytes:
    """The name of a chunk: of SHA-256, which processors have instructions for, the first DIGEST bytes."""
    return hashlib.sha256(data).digest()[:DIGEST]


def _is_named(data: bytes, digest: bytes) -> bool:
    """Whether a chunk has that name, of now or of the stores before (BLAKE2b, a third as quick)."""
    return digest_of(data) == digest or hashlib.blake2b(data, digest_size=DIGEST).digest() == digest


def compress(data: bytes | memoryview) -> bytes:
    """A chunk as it lies on disk and travels."""
    if not hasattr(_own, "compressor"):
        _own.compressor = zstandard.ZstdCompressor(level=LEVEL, write_content_size=True)
    packed: bytes = _own.compressor.compress(data)
    return packed


def expand(digest: bytes, packed: bytes) -> bytes:
    """The chunk of that name, from what lies on disk or came over the wire.

    Raises:
        ImageDamaged: it is not the chunk of that name.
    """
    try:
        if not hasattr(_own, "decompressor"):
            _own.decompressor = zstandard.ZstdDecompressor()
        data: bytes = _own.decompressor.decompress(packed, max_output_size=CHUNK)
    except zstandard.ZstdError as error:
        raise ImageDamaged(f"chunk {digest.hex()} cannot be unpacked: {error}") from error
    if not _is_named(data, digest):
        raise ImageDamaged(f"chunk {digest.hex()} holds something else")
    return data


class Chunks:
    """The chunks in one place.

    Attributes:
        used: bytes they take, all together.
    """

    def __init__(self, place: BlobStore) -> None:
        self._place = place
        self._lock = threading.Lock()
        self._sizes: dict[bytes, int] = {}
        for name, size in place.names(FOLDER):
            digest = _digest_in(name)
            if digest is None:
                place.remove(f"{FOLDER}/{name}")
            else:
                self._sizes[digest] = size
        self.used = sum(self._sizes.values())

    def __contains__(self, digest: object) -> bool:
        return digest in self._sizes

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._sizes)

    def add_chunk(self, digest: bytes, packed: bytes) -> None:
        """Keep a compressed chunk, not yet known to be there for good; several may be put at a time. Raises OSError."""
        if digest in self._sizes:
            return
        self._place.write(_name_of(digest), packed)
        with self._lock:
            if digest not in self._sizes:
                self._sizes[digest] = len(packed)
                self.used += len(packed)

    def packed(self, digest: bytes) -> bytes:
        """A chunk as it lies there.

        Raises:
            ImageGone: it does not.
            ImageError: it cannot be read.
        """
        try:
            return self._place.read(_name_of(digest))
        except FileNotFoundError:
            raise ImageGone(f"chunk {digest.hex()} is missing") from None
        except OSError as error:
            raise failed("read a checkpoint in", self._place.where, error) from error

    def sync(self, digests: Iterator[bytes]) -> None:
        """Have these chunks there for good when this returns. Raises OSError."""
        self._place.sync(map(_name_of, digests))

    def drop(self, digest: bytes) -> None:
        """Remove a chunk. Raises OSError."""
        with self._lock:
            self.used -= self._sizes.pop(digest, 0)
        self._place.remove(_name_of(digest))


def _name_of(digest: bytes) -> str:
    name = digest.hex()
    return f"{FOLDER}/{name[:2]}/{name[2:]}"


def _digest_in(name: str) -> bytes | None:
    try:
        digest = bytes.fromhex(name.replace("/", ""))
    except ValueError:
        return None
    return digest if len(digest) == DIGEST else None
