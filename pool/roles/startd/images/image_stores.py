"""The checkpoints on their way through one machine: a store for each schedd, for each counts its jobs from 1.

All stores together keep to the machine's quota. The submit side does not have an image there yet, or it is no longer
needed.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Collection
from pathlib import Path

from pool.images import ImageStore

#: How the directory of a schedd's store ends; earlier versions had one store for all.
ENDING = ".schedd"


class ImageStores:
    """The stores below one directory.

    Args:
        quota: bytes on disk of all stores; 0 for no bound but the disk's.
    """

    def __init__(self, directory: Path, quota: int) -> None:
        self._directory = directory
        self._quota = quota
        self._stores: dict[str, ImageStore] = {}
        self._lock = threading.Lock()

    def store_of(self, schedd: str) -> ImageStore:
        """The store of a schedd's node, opened when the first checkpoint comes. Blocks on the disk then."""
        return self._open(_folder_of(schedd))

    def drop_all_but(self, jobs: Collection[tuple[str, str]]) -> None:
        """Drop what an earlier run of the node has left of jobs that are not here. Blocks on the disk.

        Args:
            jobs: those that are here, as (node of the schedd, job).
        """
        here = {_folder_of(schedd): schedd for schedd, _ in jobs}
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            schedd = here.get(path.name)
            if schedd is None:
                with self._lock:
                    if path.name not in self._stores:
                        shutil.rmtree(path, ignore_errors=True)
                continue
            store = self._open(path.name)
            for job in store.jobs():
                if (schedd, job) not in jobs:
                    store.drop(job)

    def _open(self, folder: str) -> ImageStore:
        with self._lock:
            store = self._stores.get(folder)
            if store is None:
                store = ImageStore(
                    self._directory / folder,
                    quota=self._quota,
                    durable=False,
                    beside=lambda: sum(one.used for name, one in list(self._stores.items()) if name != folder),
                )
                self._stores[folder] = store
            return store


def _folder_of(schedd: str) -> str:
    """A plain name of a directory, another one for each node."""
    plain = (char if char.isascii() and (char.isalnum() or char in "_-") else f"%{ord(char):02x}" for char in schedd)
    return "".join(plain) + ENDING
