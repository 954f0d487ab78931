"""A checkpoint in the making: files put down chunk by chunk, until a commit makes them a checkpoint of their job.

Large files are read, named and compressed by several threads; the chunks of one file are reported in order all the
same. The store (`store.py`) decides the fate of written chunks, and which are kept.
"""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from pool.images.chunks import compress, digest_of, expand
from pool.images.errors import ImageError, failed
from pool.images.manifest import CHUNK, HOLE, ImageFile, Manifest
from pool.images.priority import packers

if TYPE_CHECKING:
    from pool.images.store import ImageStore

#: Bytes of a file, as if it had no holes.
LARGEST_FILE = 2**39
#: Chunks of one file that are packed at a time, where the machine has processors for it.
PACKERS = min(4, os.cpu_count() or 1)
_ZEROS = bytes(CHUNK)


class Draft:
    """A checkpoint in the making; a context manager that leaves nothing behind unless it was committed.

    Attributes:
        pinned: chunks that must stay for it.
        on_piece: called with the name of a file, the index and the digest of each chunk of it that was put down, in
            whatever thread did it.
    """

    def __init__(self, store: ImageStore, job: str) -> None:
        self._store = store
        self.job = job
        self.pinned: set[bytes] = set()
        self.on_piece: Callable[[str, int, bytes], None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of what only this draft needs."""
        self._store._end(self)

    def missing(self, manifest: Manifest) -> list[bytes]:
        """The chunks of somebody's manifest that have to come; those that are here stay here from now on."""
        return self.lacks(manifest.digests())

    def has(self, part: ImageFile) -> bool:
        """Whether all chunks of a file are here; they stay here from now on."""
        with self._store._lock:
            wanted = {chunk for chunk in part.chunks if chunk != HOLE}
            if any(digest not in self._store._chunks for digest in wanted):
                return False
            self.pinned |= wanted
            return True

    def lacks(self, digests: Iterable[bytes]) -> list[bytes]:
        """Those chunks that have to come; those that are here stay here from now on."""
        with self._store._lock:
            found = list(dict.fromkeys(digests))
            self.pinned.update(digest for digest in found if digest in self._store._chunks)
            return [digest for digest in found if digest not in self._store._chunks]

    def add_chunk(self, digest: bytes, packed: bytes) -> None:
        """A chunk as it travels, looked at before it is kept.

        Raises:
            ImageDamaged: it is not the chunk of that name.
            NoRoom, ImageError
        """
        expand(digest, packed)
        self._store._add_chunk(self, digest, packed)

    def add_chunks(self, pieces: list[tuple[bytes, bytes]]) -> None:
        """Several of these, at a time where the place is far away and takes them so; as `add_chunk`."""
        at_once = min(self._store.at_once, len(pieces))
        if at_once <= 1:
            for piece in pieces:
                self.add_chunk(*piece)
            return
        helpers = packers(at_once)
        putting = [helpers.submit(self.add_chunk, *piece) for piece in pieces]
        try:
            for one in putting:
                one.result()
        finally:
            for left in putting:  # one has failed: the others are not begun, or waited for
                left.cancel() or left.exception()

    def add_file(
        self,
        directory: Path,
        *,
        without: tuple[str, ...] = (),
        known: Callable[[os.stat_result], ImageFile | None] = lambda status: None,
    ) -> tuple[ImageFile, ...]:
        """Put down what a directory holds.

        Args:
            without: beginnings of names that are left out.
            known: what a file was put down as before, under whatever name; it is not read where all of that is here.

        Raises:
            NoRoom, ImageError
        """
        parts: list[ImageFile] = []
        try:
            for path in sorted(_files(directory)):
                name = str(path.relative_to(directory))
                if name.startswith(without):
                    continue
                part = known(path.stat())
                if part is not None and self.has(part):
                    parts.append(self._report_chunks(replace(part, name=name)))
                else:
                    with path.open("rb") as handle:
                        parts.append(self.add(name, handle))
        except OSError as error:
            raise failed("read the checkpoint in", directory, error) from error
        return tuple(parts)

    def _report_chunks(self, part: ImageFile) -> ImageFile:
        """A file whose chunks were put down before: they are a piece of this checkpoint, too."""
        for index, digest in enumerate(part.chunks):
            if digest != HOLE and self.on_piece is not None:
                self.on_piece(part.name, index, digest)
        return part

    def add(self, name: str, file: BinaryIO) -> ImageFile:
        """Put down one open file. Raises NoRoom, ImageError, OSError."""
        fd = file.fileno()
        status = os.fstat(fd)
        if status.st_size > LARGEST_FILE:
            raise ImageError(f"a file of {status.st_size} bytes is larger than a checkpoint can hold")
        places = range(0, status.st_size, CHUNK)
        chunks: list[bytes] = []
        for digest in self._pieces(fd, [(place, min(CHUNK, status.st_size - place)) for place in places]):
            if digest != HOLE and self.on_piece is not None:
                self.on_piece(name, len(chunks), digest)
            chunks.append(digest)
        return ImageFile(name, status.st_size, status.st_mode & 0o777, tuple(chunks))

    def report_chunks(self, part: ImageFile) -> None:
        """Speak of the chunks of a file that lie here already as of those that are put down."""
        for index, digest in enumerate(part.chunks):
            if digest != HOLE and self.on_piece is not None:
                self.on_piece(part.name, index, digest)

    def _pieces(self, fd: int, places: list[tuple[int, int]]) -> Iterator[bytes]:
        """Put down so much of a file at each place, several of a large one at a time; gives the digests in order."""
        if len(places) <= PACKERS:
            yield from (self._piece(fd, *place) for place in places)
            return
        under_way: deque[Future[bytes]] = deque()
        try:
            for place in places:
                if len(under_way) == 2 * PACKERS:
                    yield under_way.popleft().result()
                under_way.append(packers(PACKERS).submit(self._piece, fd, *place))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for left in under_way:  # one has failed: nobody reads from the file when it is closed
                left.cancel() or left.exception()

    def _piece(self, fd: int, place: int, length: int) -> bytes:
        if _hole(fd, place, length):
            return HOLE
        data = os.pread(fd, length, place)
        if len(data) != length:
            raise ImageError("the checkpoint changed while it was stored", retry=True)
        if data == _ZEROS[:length]:
            return HOLE
        digest = digest_of(data)
        self._store._add_chunk(self, digest, b"" if digest in self._store._chunks else compress(data))
        return digest

    def commit(
        self,
        parts: tuple[ImageFile, ...],
        created: float,
        *,
        generation: int | None = None,
        needs: tuple[int, ...] = (),
        facts: tuple[tuple[str, Any], ...] = (),
    ) -> Manifest:
        """Make it a checkpoint of the job: it is on disk, whole, when this returns.

        Args:
            generation: its number where it has one already; by default the next of the job.

        Raises:
            ImageError: a chunk is missing, the number was used, or the disk fails.
        """
        known = self._store.generations(self.job)
        number = (known[-1] + 1 if known else 1) if generation is None else generation
        if number in known:
            raise ImageError(f"job {self.job} has a checkpoint {number} already")
        return self._store._commit(self, Manifest(self.job, number, created, parts, needs, facts))


def _hole(fd: int, place: int, length: int) -> bool:
    """Whether nothing was ever written there."""
    try:
        return os.lseek(fd, place, os.SEEK_DATA) >= place + length
    except OSError as error:
        return error.errno == errno.ENXIO  # nothing from there on; elsewhere it may not be known


def _files(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path
