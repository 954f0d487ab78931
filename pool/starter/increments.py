"""The image before of a running job: it stays on its machine until the next is there, so that only what has changed
between the two is read, summed, packed and sent.

    keep(image) -> parent() for the next one, whose files are in part those of the image before -> keep -> ... -> forget

The keeper takes over pages and carried files by links (pool/checkpoint/dump/parent_image.c), under other names; a file
is known again by its inode, and what the store has of it by then is held there. Where there is no room for either,
nothing is kept and the next image is a whole one, as it is where the keeper finds that the image before does not count.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

from pool.images import Draft, ImageFile, ImageStore, Manifest
from pool.starter.checkpointing import CARRIED, META, PAGES

#: The identity of an unchanged file: device, inode, size, time of the last change (ns).
Mark = tuple[int, int, int, int]


def _mark_of(status: os.stat_result) -> Mark:
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class PreviousImage:
    """The last image of one running job on this machine. Methods block on the disk, except those to be awaited.

    Attributes:
        directory: the image's; None where there is none.
    """

    def __init__(self) -> None:
        self.directory: Path | None = None
        self._parts: dict[Mark, ImageFile] = {}
        self._draft: Draft | None = None

    def set_image(self, images: ImageStore, directory: Path, manifest: Manifest) -> None:
        """An image that was taken in as `manifest`, in place of the one before."""
        self.forget()
        if not _has_room(images, directory):
            return
        known = {part.name: part for part in manifest.parts}
        for path in list(directory.iterdir()):
            if path.name == CARRIED or path.name.startswith(PAGES):
                self._parts[_mark_of(path.stat())] = known[path.name]
            elif path.name != META:
                path.unlink()
        self._draft = images.begin(manifest.job)
        for part in self._parts.values():
            self._draft.has(part)
        self.directory = directory

    def find_part(self, status: os.stat_result) -> ImageFile | None:
        """The part of the image before whose contents a file has, under whatever name."""
        return self._parts.get(_mark_of(status))

    def parent(self, images: ImageStore) -> Path | None:
        """The image to take over from; none where the store needs the room."""
        if self.directory is not None and not _has_room(images, self.directory):
            self.forget()
        return self.directory

    def finish(self, directory: Path, over: bool) -> None:
        """A checkpoint was made in `directory`, or not: the keeper takes over from it or from none, and from none where
        the job is over.
        """
        if over or self.directory != directory:
            self.forget()
            shutil.rmtree(directory, ignore_errors=True)

    async def drop(self) -> None:
        """As `forget`, when the job is over."""
        if self.directory is not None:
            await asyncio.to_thread(self.forget)

    def forget(self) -> None:
        """Nothing is to be taken over from it any more."""
        if self.directory is not None:
            shutil.rmtree(self.directory, ignore_errors=True)
        if self._draft is not None:
            self._draft.close()
        self.directory, self._draft, self._parts = None, None, {}


def _has_room(images: ImageStore, directory: Path) -> bool:
    """Whether an image may stay beside the next one: half of the quota is for what comes, and as much of the disk as
    the image takes.
    """
    size = sum(path.stat().st_size for path in directory.iterdir())
    within = images.quota is None or (images.used + size) * 2 <= images.quota
    return within and shutil.disk_usage(directory).free > size
