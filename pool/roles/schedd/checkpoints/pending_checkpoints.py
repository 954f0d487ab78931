"""Checkpoints of jobs whose checkpoint server is away: they wait on the submit side, and go there when it is back.

    the server does not answer -> checkpoints are kept in the spool -> it is back -> each goes there -> its job goes on

The newest one of each job is kept, within the same quota as the checkpoints there. A job whose newest checkpoint waits
goes on when that is in its place: it would begin with an older one. Every method blocks on the disk.
"""

from __future__ import annotations

from pathlib import Path

from pool.images import ImageStore
from pool.images.manifest import Manifest

#: Chunks on their way to the server at a time.
TOGETHER = 16


class PendingCheckpoints:
    """The checkpoints that wait for the checkpoint server of one schedd.

    Args:
        directory: made when it is needed.
        quota: bytes; None for no bound but the disk's.
    """

    def __init__(self, directory: Path, quota: int | None) -> None:
        self._directory = directory
        self._quota = quota
        self._store = self._opened() if directory.exists() else None

    @property
    def store(self) -> ImageStore:
        """Where they lie. Raises ImageError."""
        if self._store is None:
            self._store = self._opened()
        return self._store

    @property
    def is_open(self) -> bool:
        """Whether any have waited since this schedd began, or waited then."""
        return self._store is not None

    def __contains__(self, job: str) -> bool:
        return self._store is not None and bool(self._store.generations(job))

    def jobs(self) -> list[str]:
        """The jobs that have one here."""
        return self._store.jobs() if self._store is not None else []

    def deliver(self, to: ImageStore) -> None:
        """Have all of them where they belong. Asked again it goes on where it was.

        Raises:
            NoRoom, ImageError: those that are not there stay here.
        """
        for job in self.jobs():
            for generation in self.store.generations(job):
                self._deliver(self.store.manifest(job, generation), to)

    def drop(self, job: str) -> None:
        """Delete a checkpoint that nobody needs."""
        if job in self:
            self.store.drop(job)

    def _deliver(self, image: Manifest, to: ImageStore) -> None:
        job = image.job
        there = [to.manifest(job, generation).created for generation in to.generations(job)]
        if image.created > max(there, default=float("-inf")):
            with to.begin(job) as draft:
                missing = draft.missing(image)
                for place in range(0, len(missing), TOGETHER):
                    some = missing[place : place + TOGETHER]
                    draft.add_chunks(list(zip(some, self.store.packed_all(some), strict=True)))
                draft.commit(image.parts, image.created, facts=image.facts)
        self.store.drop(job, image.generation)

    def _opened(self) -> ImageStore:
        return ImageStore(self._directory, quota=self._quota, keep=1)
