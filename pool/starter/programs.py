"""Executables on the execute side: kept once by what they are, and sent only where they are lacking (A12).

A job of one process says with its start which executable it has. For a job of several the submit side begins with the
digests of all, and is answered which of them are wanted. Blocking file work runs in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import tempfile
from pathlib import Path
from typing import Any, Protocol

from pool.jobs.pipes.directories import PipeDirectories
from pool.safe_directory import SafeDirectory, copy_data
from pool.starter.staging import StagingError, open_output
from pool.wire.parameter_checks import check_item

#: The name of a stored executable: the SHA-256 of its content.
DIGEST = re.compile(r"[0-9a-f]{64}")
#: The first message of the submit side, and its answer: {process: digest}, [process].
OFFER, WANT = "programs", "want"


class ProgramStream(Protocol):
    """The part of a wire stream that is used here."""

    async def send(self, item: Any) -> None: ...
    async def receive(self) -> Any: ...


async def request_executables(stream: ProgramStream, executables: Path) -> dict[str, str]:
    """Take the submit side's offer and say what is wanted of it; returns the digests by process.

    Raises:
        StagingError: it is no offer.
    """
    try:
        _, offered = check_item(await stream.receive(), {OFFER: (dict,)})
    except EOFError as error:
        raise StagingError("the submit side ended the transfer before it began", retry=True) from error
    if not all(DIGEST.fullmatch(str(digest)) for digest in offered.values()):
        raise StagingError("the submit side's executables have names that are no digests")
    await stream.send([WANT, [name for name, digest in offered.items() if not (executables / digest).exists()]])
    return {str(name): str(digest) for name, digest in offered.items()}


async def store_received(
    offered: dict[str, str], layout: PipeDirectories, scratch: SafeDirectory, executables: Path
) -> None:
    """When the files have come: keep each executable that came, and put those in place that were kept."""
    loop = asyncio.get_running_loop()
    for process in layout.processes:
        name, digest = layout.program(process), offered.get(process.name)
        if name is None or digest is None:
            continue
        if scratch.exists(name):
            await loop.run_in_executor(None, store_executable, scratch, name, executables / digest)
        else:
            await loop.run_in_executor(None, install, executables / digest, scratch, name)


def store_executable(scratch: SafeDirectory, name: str, stored: Path) -> None:
    """Keep an executable for the next job that names it; not under the name of another one.

    Only this node reads what is kept: a job gets a copy of its own.
    """
    stored.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open_output(scratch, name) as handle:
        descriptor, aside = tempfile.mkstemp(prefix=f"{stored.name}.", dir=stored.parent)
        try:
            copy_data(handle.fileno(), descriptor)
            with os.fdopen(descriptor, "rb", closefd=False) as copied:
                copied.seek(0)
                genuine = hashlib.file_digest(copied, "sha256").hexdigest() == stored.name
            if genuine:
                os.replace(aside, stored)
        finally:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)


def install(stored: Path, scratch: SafeDirectory, name: str) -> None:
    """Put a kept executable where the job finds it."""
    with stored.open("rb") as handle:
        descriptor = scratch.create_file(name, 0o755)
        try:
            copy_data(handle.fileno(), descriptor)
        finally:
            os.close(descriptor)
