"""Reads the end of a file that a job writes, for its owner. A name that leads out of the job's directory is empty."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

from pool.jobs.tail import start_of
from pool.safe_directory import SafeDirectory
from pool.starter.staging import StagingError, open_output

CHUNK = 64 * 1024


async def last(path: Path, owner: tuple[int, int] | None, lines: int) -> int:
    """The offset at which its last lines begin."""
    loop = asyncio.get_running_loop()
    try:
        handle = await loop.run_in_executor(None, _open, path, owner)
    except StagingError:
        return 0
    with handle:

        async def read(offset: int, size: int) -> bytes:
            handle.seek(offset)
            block: bytes = await loop.run_in_executor(None, handle.read, size)
            return block

        return await start_of(lines, os.fstat(handle.fileno()).st_size, read)


async def since(path: Path, owner: tuple[int, int] | None, offset: int) -> AsyncIterator[bytes]:
    """All of it from an offset, a chunk at a time."""
    loop = asyncio.get_running_loop()
    try:
        handle = await loop.run_in_executor(None, _open, path, owner)
    except StagingError:
        return
    with handle:
        handle.seek(offset)
        while chunk := await loop.run_in_executor(None, handle.read, CHUNK):
            yield chunk


def _open(path: Path, owner: tuple[int, int] | None) -> BinaryIO:
    try:
        with SafeDirectory(path.parent, owner) as directory:
            return open_output(directory, path.name)
    except OSError as error:
        raise StagingError(f"cannot look at {path.name}: {error.strerror}") from error
