"""The checkpoint that a start goes on from, from wherever its chunks are into a directory of this machine.

    stream of the submit side: manifest -> chunks that lie here, then those of its last machine, the rest by the stream

The manifest comes from the submit side. The previous machine is asked for the chunks it names and nothing else, so that
a machine that is gone, slow or lies costs time at most. The starter decides what is then done with the directory.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pool.errors import PoolError
from pool.images import Assembly, ImageStore, Manifest, ask_chunks, fetch_image
from pool.images.priority import run_normal
from pool.jobs.activation import FileMode
from pool.starter import freezing, saving

#: The machine before is asked for so long without an answer, seconds.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Resumed:
    """A checkpoint, put together on this machine.

    Attributes:
        received: bytes that travelled. nearer: of these, from the machine before.
    """

    directory: Path
    manifest: Manifest
    received: int
    nearer: int

    @property
    def self_written(self) -> bool:
        """The job wrote it itself."""
        return saving.is_own(self.manifest)

    @property
    def has_files(self) -> bool:
        """The job's files on its machine are in it."""
        return freezing.has_files(self.manifest)

    @property
    def mode(self) -> FileMode:
        """How the job reached its files where it was made."""
        where = dict(self.manifest.facts).get("files")
        return {"own": FileMode.TRANSFER, "remote": FileMode.REMOTE}.get(str(where), FileMode.SHARED)

    def drop(self) -> None:
        """It is needed no more. Blocks on the disk."""
        shutil.rmtree(self.directory, ignore_errors=True)


async def fetch(
    images: ImageStore,
    job: str,
    from_submit_side: Any,
    before: Callable[[], Awaitable[Any]] | None,
    came: Assembly | None = None,
) -> Resumed:
    """Bring a checkpoint here.

    Args:
        home: the stream on which the submit side sends it.
        before: opens a stream to the machine that made it, where that may have its chunks yet.
        came: what has come of it already.

    Raises:
        ImageError: it cannot be had.
    """
    directory = came.directory if came is not None else await asyncio.to_thread(images.new_directory)
    nearer = 0

    async def fetch_from_peer(assembly: Assembly) -> None:
        nonlocal nearer
        assert before is not None
        try:
            async with asyncio.timeout(PATIENCE):
                stream = await before()
            async with stream:
                await ask_chunks(stream, assembly, PATIENCE)
        except (PoolError, OSError, TimeoutError):
            pass  # the submit side has them all
        nearer = assembly.received

    try:
        with came or Assembly(directory) as assembly, run_normal():
            nearer = assembly.received
            async with from_submit_side:
                manifest = await fetch_image(
                    images, job, from_submit_side, assembly, fetch_from_peer if before is not None else None
                )
        return Resumed(directory, manifest, assembly.received, nearer)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, directory, True)
        raise
