"""An image put together as its chunks come, from wherever they come: what was fetched is written once, in its place.

    missing = assembly.begin(manifest, store) -> put(digest, packed) for each of them -> the files are whole

Every chunk is looked at against its name before it is written. Who sends them, and in which order, is not known here.
Methods block on the disk.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Self

from pool.images.chunks import expand
from pool.images.errors import ImageDamaged, failed
from pool.images.manifest import CHUNK, HOLE, Manifest
from pool.images.store import ImageStore

#: Files that are kept open for the next chunk.
OPEN = 8


class Assembly:
    """The files of one image in a directory of their own, which must not exist; a context manager that closes them.

    Modes are not set: what is put together here is moved to its place by somebody who knows it.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._places: dict[bytes, list[tuple[str, int, int]]] = {}
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

    def begin(self, manifest: Manifest, local: ImageStore) -> list[bytes]:
        """Make the files; the chunks that have to come: those that `local` has are in place already.

        Raises:
            ImageError: the directory cannot be written.
        """
        try:
            self.directory.mkdir(mode=0o700, parents=True)
            for part in manifest.parts:
                path = self.directory / part.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as handle:
                    handle.truncate(part.size)
                for index, digest in enumerate(part.chunks):
                    if digest != HOLE:
                        place = (part.name, index, part.length(index))
                        self._places.setdefault(digest, []).append(place)
        except OSError as error:
            raise failed("write a checkpoint to", self.directory, error) from error
        with local.begin(manifest.job) as draft:
            lacks = set(draft.missing(manifest))
            for digest in [digest for digest in self._places if digest not in lacks]:
                self._put(digest, local.packed(digest))
        return self.missing

    def put(self, pieces: list[tuple[bytes, bytes]]) -> None:
        """Write chunks, each wherever the image has it; from several threads, if they like.

        Raises:
            ImageDamaged: one is not what was asked for. ImageError: the disk fails.
        """
        for digest, packed in pieces:
            if digest not in self._places:
                raise ImageDamaged("a chunk came that was not asked for")
            self._put(digest, packed)
            with self._lock:
                self.received += len(packed)

    def _put(self, digest: bytes, packed: bytes) -> None:
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
            fd = self._files[name] = os.open(self.directory / name, os.O_WRONLY | os.O_CLOEXEC)
        return fd
