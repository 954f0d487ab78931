"""The image store of one node: checkpoints by job and generation, with a quota.

A checkpoint begins as a `Draft`: its chunks are written in any order, and it counts for nothing until `commit` has
synchronised them and renamed the manifest into place (VS 5.3's tentative and permanent checkpoint). The remains of a
draft after a crash are found when the store is opened, and dropped. The newest checkpoint of a job is never dropped to
make room, and neither is what it needs.

Every method blocks on the disk: callers on an event loop use a thread. Methods may be called from several threads.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from pool.images.blob_stores import BlobStore
from pool.images.chunks import Chunks, expand
from pool.images.drafts import Draft
from pool.images.errors import FULL, ImageDamaged, ImageError, ImageGone, NoRoom, failed
from pool.images.manifest import HOLE, ImageFile, Manifest
from pool.images.packs import Packs
from pool.images.priority import packers

#: Generations kept of each job while there is room: one to restore, and one to fall back to.
KEEP = 2
#: Bytes of chunks that are kept in memory, of an image that is sent while it is taken in.
RECENT = 16 * 2**20
#: Folders of a place.
MANIFESTS, INCOMING = "jobs", "incoming"
_SUFFIX, _DAMAGED = ".manifest", ".damaged"


class ImageStore:
    """The checkpoints in one place.

    Args:
        place: a directory, made where it is missing, or another place; nobody else writes there.
        quota: bytes on disk; None for no bound but the disk's.
        keep: generations of a job that are kept while there is room.
        durable: a checkpoint outlives the machine once it is committed, and not only the node.
        beside: the bytes of other stores that count for the same quota.
    """

    def __init__(
        self,
        place: Path | BlobStore,
        *,
        quota: int | None = None,
        keep: int = KEEP,
        durable: bool = True,
        beside: Callable[[], int] = lambda: 0,
    ) -> None:
        self._place = Packs(place, lasting=durable) if isinstance(place, Path) else place
        self._incoming = place / INCOMING if isinstance(place, Path) else None
        self._keep = max(keep, 1)
        self._durable = durable
        self._lock = threading.RLock()
        self._jobs: dict[str, dict[int, Manifest]] = {}
        self._uses: Counter[bytes] = Counter()
        self._drafts: set[Draft] = set()
        self._coming = 0
        self._recent: dict[bytes, bytes] = {}
        self._recent_size = 0
        self._rooms = 0
        self.quota = quota or None
        self._beside = beside
        self.damaged: list[str] = []
        try:
            if self._incoming is not None:
                shutil.rmtree(self._incoming, ignore_errors=True)  # what was being written when the writer died
                self._incoming.mkdir(mode=0o700)
            self._chunks = Chunks(self._place)
            self._read()
            for digest in [digest for digest in self._chunks if not self._uses[digest]]:
                self._chunks.drop(digest)
        except OSError as error:
            raise failed("open", self._place.where, error) from error

    # -- what there is -----------------------------------------------------------------------------------

    @property
    def at_once(self) -> int:
        """Chunks that are put down at a time where several are there."""
        return self._place.at_once

    @property
    def used(self) -> int:
        """Bytes on disk."""
        return self._chunks.used

    @property
    def quota_used(self) -> int:
        """Bytes of the quota that are used."""
        return self.used + self._beside()

    def jobs(self) -> list[str]:
        """The jobs that have a checkpoint here."""
        with self._lock:
            return sorted(self._jobs)

    def generations(self, job: str) -> list[int]:
        """A job's checkpoints, oldest first."""
        with self._lock:
            return sorted(self._jobs.get(job, ()))

    def manifest(self, job: str, generation: int | None = None) -> Manifest:
        """A checkpoint, by default the newest.

        Raises:
            ImageGone: there is none.
        """
        with self._lock:
            found = self._jobs.get(job, {})
            number = max(found, default=None) if generation is None else generation
            if number is None or number not in found:
                which = f"checkpoint {generation} of" if generation is not None else "checkpoint of"
                raise ImageGone(f"there is no {which} job {job} here")
            return found[number]

    def packed(self, digest: bytes) -> bytes:
        """A chunk as it travels. Raises ImageGone."""
        recent = self._recent.get(digest)
        return recent if recent is not None else self._chunks.packed(digest)

    def packed_all(self, digests: list[bytes]) -> list[bytes]:
        """Several of these, at a time where the place is far away and takes them so."""
        at_once = min(self.at_once, len(digests))
        return list(packers(at_once).map(self.packed, digests) if at_once > 1 else map(self.packed, digests))

    def new_directory(self) -> Path:
        """A name for a directory beside the store that nobody else has: for an image on its way in or out."""
        with self._lock:
            assert self._incoming is not None  # a store that is not a directory has nobody beside it
            self._rooms += 1
            return self._incoming / str(self._rooms)

    # -- taking in ---------------------------------------------------------------------------------------

    def begin(self, job: str) -> Draft:
        """Begin a checkpoint of a job; several may be under way."""
        with self._lock:
            draft = Draft(self, job)
            self._drafts.add(draft)
            return draft

    def store_image(self, job: str, directory: Path, created: float, **facts: Any) -> Manifest:
        """Take in an image that a keeper has written into a directory, as the job's next generation.

        Raises:
            NoRoom: quota or disk are used up. Nothing of it stays.
            ImageError: the directory cannot be read, or the disk fails.
        """
        with self.begin(job) as draft:
            return draft.commit(draft.add_file(directory), created, facts=tuple(sorted(facts.items())))

    def copy(self, job: str, generation: int, to: str, created: float, **facts: Any) -> Manifest:
        """Give a checkpoint, with those that it needs, to another job too; its bytes are there once.

        Args:
            created, facts: of the copy; what the checkpoint says of itself stays where it is not said anew.

        Raises:
            ImageGone: there is no such checkpoint.
            ImageError: the disk fails.
        """
        whole = self.manifest(job, generation)
        for number in sorted({*whole.needs, generation} - set(self.generations(to))):
            one = self.manifest(job, number)
            with self.begin(to) as draft:
                if draft.missing(one):
                    raise ImageGone(f"chunks of checkpoint {number} of job {job} are missing")
                said = tuple(sorted((dict(one.facts) | facts).items()))
                draft.commit(one.parts, created, generation=number, needs=one.needs, facts=said)
        return self.manifest(to, generation)

    def _add_chunk(self, draft: Draft, digest: bytes, packed: bytes) -> None:
        with self._lock:
            draft.pinned.add(digest)
            if digest in self._chunks:
                return
            self._make_room(len(packed) + self._coming)
            self._coming += len(packed)
        try:
            self._add_or_make_room(digest, packed)
        except OSError as error:
            raise failed("keep a checkpoint in", self._place.where, error) from error
        finally:
            with self._lock:
                self._coming -= len(packed)
        if draft.on_piece is not None:
            self._remember(digest, packed)

    def _remember(self, digest: bytes, packed: bytes) -> None:
        """Somebody is about to ask for a chunk; for each of those that came just before others have by now."""
        with self._lock:
            self._recent[digest] = packed
            self._recent_size += len(packed)
            while self._recent_size > RECENT:
                self._recent_size -= len(self._recent.pop(next(iter(self._recent))))

    def _add_or_make_room(self, digest: bytes, packed: bytes) -> None:
        try:
            self._chunks.add_chunk(digest, packed)
        except OSError as error:
            if error.errno not in FULL:
                raise
            with self._lock:
                for job in list(self._jobs):
                    self._drop_superseded(job, 1)
            self._chunks.add_chunk(digest, packed)

    def _commit(self, draft: Draft, manifest: Manifest) -> Manifest:
        missing = [digest for digest in manifest.digests() if digest not in self._chunks]
        if missing:
            raise ImageError(f"{len(missing)} chunks of the checkpoint of job {manifest.job} are missing", retry=True)
        try:
            if self._durable:
                self._chunks.sync(manifest.digests())
            self._place.write(_name_of(manifest.job, manifest.generation), manifest.pack(), durable=self._durable)
        except OSError as error:
            raise failed("commit a checkpoint in", self._place.where, error) from error
        with self._lock:
            self._jobs.setdefault(manifest.job, {})[manifest.generation] = manifest
            self._uses.update(manifest.digests())
            self._drop_superseded(manifest.job, self._keep)
        return manifest

    def _end(self, draft: Draft) -> None:
        """A draft was committed or given up: what only it needed goes."""
        with self._lock:
            self._drafts.discard(draft)
            if draft.on_piece is not None:
                self._recent.clear()
                self._recent_size = 0
            for digest in draft.pinned:
                self._drop_unused(digest)

    # -- giving out --------------------------------------------------------------------------------------

    def restore(self, manifest: Manifest, directory: Path, *, without: tuple[str, ...] = ()) -> None:
        """Write an image's files into an empty directory, holes left as holes.

        Args:
            without: beginnings of names that are left out.

        Raises:
            ImageDamaged, ImageGone: a chunk is not what it was or not there; the store itself stays as it is.
            ImageError: the directory cannot be written.
        """
        try:
            for part in manifest.parts:
                if part.name.startswith(without):
                    continue
                path = directory / part.name
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("xb") as handle:
                    os.fchmod(handle.fileno(), part.mode)
                    self.write(part, handle)
        except OSError as error:
            raise failed("write a checkpoint to", directory, error) from error

    def write(self, part: ImageFile, handle: BinaryIO) -> None:
        """Write one file of an image into an empty one, holes left as holes.

        Raises:
            ImageDamaged, ImageGone: a chunk is not what it was or not there.
            OSError: the file cannot be written.
        """
        for index, digest in enumerate(part.chunks):
            if digest == HOLE:
                handle.seek(part.length(index), os.SEEK_CUR)
            else:
                handle.write(self._piece(part, index, digest))
        handle.truncate(part.size)

    def read(self, part: ImageFile) -> bytes:
        """A small file of an image. Raises ImageDamaged, ImageGone."""
        return b"".join(
            bytes(part.length(index)) if digest == HOLE else self._piece(part, index, digest)
            for index, digest in enumerate(part.chunks)
        )

    def _piece(self, part: ImageFile, index: int, digest: bytes) -> bytes:
        data = expand(digest, self.packed(digest))
        if len(data) != part.length(index):
            raise ImageDamaged(f"chunk {digest.hex()} is of another length than {part.name} says")
        return data

    # -- letting go --------------------------------------------------------------------------------------

    def drop(self, job: str, generation: int | None = None) -> None:
        """Forget one checkpoint of a job, or all of them; what is not there is no error."""
        with self._lock:
            for number in [generation] if generation is not None else self.generations(job):
                self._forget(job, number)

    def _make_room(self, wanted: int) -> None:
        if self.quota is None or self.quota_used + wanted <= self.quota:
            return
        for job in sorted(self._jobs, key=lambda job: min(m.created for m in self._jobs[job].values())):
            self._drop_superseded(job, 1)
            if self.quota_used + wanted <= self.quota:
                return
        raise NoRoom(
            f"no room for a checkpoint: the last checkpoints of jobs use {self.quota_used} of {self.quota} bytes",
            hint="raise CHECKPOINT_QUOTA, or let jobs end",
            retry=True,
        )

    def _drop_superseded(self, job: str, keep: int) -> None:
        found = self._jobs.get(job, {})
        newest = sorted(found)[-keep:]
        needed = set(newest).union(*(found[number].needs for number in newest)) if newest else set()
        for number in sorted(set(found) - needed):
            self._forget(job, number)

    def _forget(self, job: str, generation: int) -> None:
        manifest = self._jobs.get(job, {}).pop(generation, None)
        if manifest is None:
            return
        # The manifest goes first: a crash in between leaves chunks that the next opening drops.
        with contextlib.suppress(OSError):  # what cannot be removed now is found at the next opening
            self._place.remove(_name_of(job, generation), last=True)
        for digest in manifest.digests():
            self._uses[digest] -= 1
            self._drop_unused(digest)
        if not self._jobs[job]:
            del self._jobs[job]

    def _drop_unused(self, digest: bytes) -> None:
        if self._uses[digest] <= 0 and not any(digest in draft.pinned for draft in self._drafts):
            del self._uses[digest]
            with contextlib.suppress(OSError):
                self._chunks.drop(digest)

    # -- opening -----------------------------------------------------------------------------------------

    def _read(self) -> None:
        for name, _ in list(self._place.names(MANIFESTS)):
            name = f"{MANIFESTS}/{name}"
            if name.endswith(_SUFFIX):
                self._read_manifest(name)
            elif not name.endswith(_DAMAGED):
                self._place.remove(name)

    def _read_manifest(self, name: str) -> None:
        data = self._place.read(name)
        try:
            manifest = Manifest.unpack(data)
            if any(digest not in self._chunks for digest in manifest.digests()):
                raise ImageDamaged("chunks of it are missing")
            if _name_of(manifest.job, manifest.generation) != name:
                raise ImageDamaged("it is another one")
        except ImageDamaged as error:
            self.damaged.append(f"{self._place.where}/{name}: {error.message}")
            self._place.write(name.removesuffix(_SUFFIX) + _DAMAGED, data)
            self._place.remove(name)
            return
        self._jobs.setdefault(manifest.job, {})[manifest.generation] = manifest
        self._uses.update(manifest.digests())


def _name_of(job: str, generation: int) -> str:
    """The name of a manifest: the job's id, whatever is in it, as one plain name of a folder."""
    plain = "".join(char if char.isalnum() or char in "._-@" else f"%{ord(char):02x}" for char in job)
    return f"{MANIFESTS}/{plain.replace('..', '%2e.')}/{generation:09d}{_SUFFIX}"
