"""The manifest of one checkpoint: its files, and the chunks that their bytes are in.

A manifest is a few kilobytes for a gigabyte of image, can be sent ahead of the bytes, and carries its own checksum.
Two checkpoints of a job, or of two jobs of one cluster, name the same chunk wherever their bytes are the same.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgpack

from pool.images.errors import ImageDamaged

VERSION = 1
#: Bytes of a file that make one chunk: small enough that a changed page costs little, large enough for few names.
CHUNK = 256 * 1024
#: Bytes of a digest.
DIGEST = 20
#: Stands in for the digest of a chunk that is nothing but zeros: a hole.
HOLE = b""
_MAGIC = b"poolimg\n"
_SUM = 16


@dataclass(frozen=True, slots=True)
class ImageFile:
    """One file of an image.

    Attributes:
        name: relative path in the image's directory.
        size: bytes.
        mode: permission bits.
        chunks: digests in order, one for each CHUNK bytes begun; HOLE for zeros.
    """

    name: str
    size: int
    mode: int
    chunks: tuple[bytes, ...]

    def length(self, index: int) -> int:
        """Bytes in the chunk at this place."""
        return min(CHUNK, self.size - index * CHUNK)


@dataclass(frozen=True, slots=True)
class Manifest:
    """One committed checkpoint.

    Attributes:
        job: what it is a checkpoint of: "CLUSTER.PROC" and where needed the process.
        generation: counts up with each checkpoint of the job; never used twice.
        created: wall time in seconds.
        needs: earlier generations that must stay for this one to be restored (an incremental image's parents).
        facts: what restoring must know beforehand: processor features, kernel, sizes; plain values.
    """

    job: str
    generation: int
    created: float
    parts: tuple[ImageFile, ...]
    needs: tuple[int, ...] = ()
    facts: tuple[tuple[str, Any], ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all files, as if nothing were shared or compressed."""
        return sum(part.size for part in self.parts)

    def digests(self) -> Iterator[bytes]:
        """Every chunk it needs, once each, in order."""
        return iter(dict.fromkeys(chunk for part in self.parts for chunk in part.chunks if chunk != HOLE))

    def pack(self) -> bytes:
        """As it lies on disk and goes over the wire."""
        parts = [[part.name, part.size, part.mode, b"".join(_written(part))] for part in self.parts]
        body: bytes = msgpack.packb(
            [VERSION, self.job, self.generation, self.created, parts, list(self.needs), [list(f) for f in self.facts]]
        )
        return _MAGIC + hashlib.blake2b(body, digest_size=_SUM).digest() + body

    @classmethod
    def unpack(cls, data: bytes) -> Manifest:
        """The reverse of `pack`, from bytes that nobody vouches for.

        Raises:
            ImageDamaged: it is no manifest, not whole, of a later version, or says what cannot be.
        """
        begin = len(_MAGIC) + _SUM
        head, body = data[:begin], data[begin:]
        if head != _MAGIC + hashlib.blake2b(body, digest_size=_SUM).digest():
            raise ImageDamaged("this checkpoint's manifest is damaged or none")
        try:
            version, *rest = msgpack.unpackb(body)
            if version != VERSION:
                raise ImageDamaged(
                    f"this checkpoint was written by another version ({version})", hint="use the program that wrote it"
                )
            job, generation, created, parts, needs, facts = rest
            return cls(
                str(job),
                int(generation),
                float(created),
                tuple(_part(*part) for part in parts),
                tuple(int(number) for number in needs),
                tuple((str(name), value) for name, value in facts),
            )
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise ImageDamaged(f"this checkpoint's manifest makes no sense: {error}") from error


def _written(part: ImageFile) -> Iterator[bytes]:
    for chunk in part.chunks:
        yield chunk or bytes(DIGEST)


def is_plain(name: Any) -> bool:
    """Whether something is the name of a file of an image: below its directory, and spelt in one way."""
    if not isinstance(name, str) or name != posixpath.normpath(name):
        return False
    return name.split("/")[0] not in ("", ".", "..") and "\0" not in name


def _part(name: Any, size: Any, mode: Any, chunks: Any) -> ImageFile:
    if not is_plain(name):
        raise ValueError(f"a file named {name!r}")
    if not isinstance(chunks, bytes) or not isinstance(size, int) or size < 0:
        raise ValueError(f"the size of {name!r}")
    if len(chunks) != -(-size // CHUNK) * DIGEST:
        raise ValueError(f"{len(chunks) // DIGEST} chunks for {size} bytes in {name!r}")
    zero = bytes(DIGEST)
    found = [chunks[place : place + DIGEST] for place in range(0, len(chunks), DIGEST)]
    return ImageFile(name, size, int(mode) & 0o777, tuple(HOLE if chunk == zero else chunk for chunk in found))
