"""One stored copy of an executable for all the clusters that use it (A12, EV 2.8).

Copies lie under the SHA-256 of their content, so that the same program submitted a thousand times is kept once and
sent to an execute machine once. A copy is made at submit, so what runs later is what was submitted, whatever has
happened to the file since. A file that has not changed (same inode, size and times) is not read again.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.policy.queue import QueuedCluster, QueuedJob
from pool.shadow.files import FilesOf

#: Larger executables are not stored; they are read from their own place when a job starts.
LARGEST = 4 * 2**30
CHUNK = 2**20


class ExecutableStore:
    """The store of executables of one schedd.

    Args:
        directory: where copies lie; None keeps none (simulation).
        files: access to users' files.
        remember: keeps a cluster's digest over a restart; None forgets it.
        locate: where on this machine a file of a cluster's lies.
    """

    def __init__(
        self,
        directory: Path | None,
        files: FilesOf,
        remember: Callable[[int, str | None], None] | None = None,
        locate: Callable[[int, str], str] = lambda cluster, path: path,
    ) -> None:
        self._directory = directory
        self._files = files
        self._locate = locate
        self._remember = remember or (lambda cluster, digest: None)
        self._known: dict[tuple[Any, ...], str] = {}
        self._of_cluster: dict[int, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        #: Clusters whose executable is stored in the next turn of the loop, by owner and path.
        self._waiting: dict[tuple[str, str], list[int]] = {}
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path | None:
        """Where a stored copy lies, None if there is none."""
        if self._directory is None:
            return None
        path = self._directory / digest
        return path if path.exists() else None

    def digest_of(self, job: QueuedJob) -> str | None:
        """The digest of a job's stored executable, None where none is stored (yet): one for each cluster is."""
        if job.delta and "Cmd" in job.delta and job.delta["Cmd"] != job.cluster.wire.get("Cmd"):
            return None
        return self._of_cluster.get(job.cluster.id)

    def store_soon(self, cluster: QueuedCluster) -> None:
        """Store a cluster's executable in the background, unless the cluster never copies files."""
        wire = cluster.wire
        wish = wire.get("ShouldTransferFiles", "IF_NEEDED")
        if self._directory is None or wish == "NO" or wire.get("TransferExecutable") is False:
            return
        path = wire.get("Cmd")
        if not isinstance(path, str) or not os.path.isabs(path):
            return
        where = self._locate(cluster.id, path)
        waiting = self._waiting.get((cluster.owner, where))
        if waiting is not None:  # came in this turn of the loop, too: one look at the file is for all of them
            waiting.append(cluster.id)
            return
        self._waiting[cluster.owner, where] = [cluster.id]
        task = asyncio.get_running_loop().create_task(self._store_in_background(cluster.owner, where))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def restore(self, cluster: int, digest: str) -> None:
        """After a restart: the arguments of `remember`."""
        self._of_cluster[cluster] = digest

    def tidy(self, queued: Container[int], before: float) -> None:
        """Forget the clusters that have left the queue, and the copies none has used since `before` (wall time)."""
        for cluster in [number for number in self._of_cluster if number not in queued]:
            del self._of_cluster[cluster]
            self._remember(cluster, None)
        if self._directory is None:
            return
        used = set(self._of_cluster.values())
        for path in self._directory.iterdir():
            if path.name not in used and path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
        self._known = {mark: name for mark, name in self._known.items() if (self._directory / name).exists()}

    async def _store_in_background(self, owner: str, path: str) -> None:
        clusters = self._waiting.pop((owner, path))
        try:
            digest = await self.store(owner, path)
        except (PoolError, OSError):
            # Said, with its reason, when the job is started and the file is really needed.
            return
        if digest is not None:
            for cluster in clusters:
                self._of_cluster[cluster] = digest
                self._remember(cluster, digest)

    async def stored_digest(self, owner: str, path: str) -> str | None:
        """The digest of a file that is stored, or is now; None where it cannot be, or this schedd stores none."""
        if self._directory is None:
            return None
        try:
            return await self.store(owner, path)
        except (PoolError, OSError):
            return None  # said, with its reason, when the file is sent

    async def store(self, owner: str, path: str) -> str | None:
        """Store a file and return its digest; None for one that is too large."""
        assert self._directory is not None
        files = self._files(owner)
        status = await files.stat(path)
        mark = (owner, path, status.size, status.mtime_ns, status.inode)
        known = self._known.get(mark)
        if known is not None and (self._directory / known).exists():
            os.utime(self._directory / known)
            return known
        if status.size > LARGEST or not status.is_file:
            return None
        descriptor, aside = tempfile.mkstemp(prefix=".", dir=self._directory)
        digest = hashlib.sha256()
        try:
            with os.fdopen(descriptor, "wb") as handle:
                async for chunk in files.read(path, length=LARGEST):
                    digest.update(chunk)
                    handle.write(chunk)
                os.fchmod(descriptor, 0o755)
            name = digest.hexdigest()
            os.replace(aside, self._directory / name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
        self._known[mark] = name
        return name
