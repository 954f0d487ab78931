"""An image put together as its chunks come, from wherever they come: what was fetched is written once, in its place.

    lay(pieces) ... -> missing = begin(manifest, store) -> put(digest, packed) for each of them -> the files are whole

Chunks that come before the manifest are written where their sender says that they belong; where the manifest says
otherwise, they are overwritten. Every chunk is checked against its name before it is written. This module knows neither
the sender of the chunks nor their order. Methods block on the disk.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

from pool.images.chunks import expand
from pool.images.drafts import LARGEST_FILE
from pool.images.errors import ImageDamaged, failed
from pool.images.manifest import CHUNK, HOLE, Manifest, is_plain
from pool.images.store import ImageStore

#: A chunk ahead of its manifest: the file it belongs to, its index there, its name, itself as it travels.
Piece = tuple[str, int, bytes, bytes]

#: Files that are kept open for the next chunk.
OPEN = 8


class Assembly:
    """The files of one image in a directory of their own, which must not exist; a context manager that closes them.

    Modes are not set: what is put together here is moved to its place by somebody who knows it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._places: dict[bytes, list[tuple[str, int, int]]] = {}
        self._laid: dict[tuple[str, int], tuple[bytes, int]] = {}
        self._files: dict[str, int] = {}
        self._lock = threading.Lock()
        self.received = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()

    @property
    def missing(self) -> list[bytes]:
        """The chunks that have not come, in the order of the files."""
        return list(self._places)

    def write_early(self, pieces: list[Piece]) -> None:
        """Write chunks ahead of the manifest; from several threads, if they like.

        Raises:
            ImageDamaged: one is not what it is called, or belongs nowhere. ImageError: the disk fails.
        """
        for name, index, digest, packed in pieces:
            if not is_plain(name) or not 0 <= index < LARGEST_FILE // CHUNK:
                raise ImageDamaged("a chunk came that belongs nowhere")
            data = expand(digest, packed)
            try:
                with self._lock:
                    os.pwrite(self._open(name), data, index * CHUNK)
                    self._laid[name, index] = (digest, len(data))
                    self.received += len(packed)
            except OSError as error:
                raise failed("write a checkpoint to", self.directory, error) from error

    def begin(self, manifest: Manifest, local: ImageStore) -> list[bytes]:
        """Make the files; the chunks that have to come: those that were laid or `local` has are in place already.

        Raises:
            ImageError: the directory cannot be written.
        """
        have: dict[bytes, tuple[str, int]] = {}
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for part in manifest.parts:
                os.ftruncate(self._open(part.name), part.size)
                for index, digest in enumerate(part.chunks):
                    place = (part.name, index, part.length(index))
                    laid = self._laid.pop(place[:2], None)
                    if laid == (digest, place[2]):
                        have[digest] = place[:2]
                    elif digest != HOLE:
                        self._places.setdefault(digest, []).append(place)
                    elif laid is not None:
                        os.pwrite(self._open(part.name), bytes(place[2]), index * CHUNK)
            for name in {name for name, _ in self._laid} - {part.name for part in manifest.parts}:
                os.unlink(self.directory / name)
            for digest in have.keys() & self._places.keys():
                name, index = have[digest]
                length = self._places[digest][0][2]
                with open(self.directory / name, "rb") as handle:
                    self._write(digest, os.pread(handle.fileno(), length, index * CHUNK))
        except OSError as error:
            raise failed("write a checkpoint to", self.directory, error) from error
        self._laid.clear()
        with local.begin(manifest.job) as draft:
            lacks = set(draft.missing(manifest))
            for digest in [digest for digest in self._places if digest not in lacks]:
                self._write_chunk(digest, local.packed(digest))
        return self.missing

    def write_chunks(self, pieces: list[tuple[bytes, bytes]]) -> None:
        """Write chunks, each wherever the image has it; from several threads, if they like.

        Raises:
            ImageDamaged: one is not what was asked for. ImageError: the disk fails.
        """
        for digest, packed in pieces:
            if digest not in self._places:
                raise ImageDamaged("a chunk came that was not asked for")
            self._write_chunk(digest, packed)
            with self._lock:
                self.received += len(packed)

    def _write_chunk(self, digest: bytes, packed: bytes) -> None:
        data = expand(digest, packed)
        with self._lock:
            self._write(digest, data)

    def _write(self, digest: bytes, data: bytes) -> None:
        try:
            for name, index, length in self._places[digest]:
                if len(data) != length:
                    raise ImageDamaged(f"chunk {digest.hex()} is of another length than {name} says")
                os.pwrite(self._open(name), data, index * CHUNK)
        except OSError as error:
            raise failed("write a checkpoint to", self.directory, error) from error
        del self._places[digest]

    def _open(self, name: str) -> int:
        fd = self._files.get(name)
        if fd is None:
            while len(self._files) >= OPEN:
                os.close(self._files.pop(next(iter(self._files))))
            path = self.directory / name
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fd = self._files[name] = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        return fd
