"""Executables on the execute side: kept once by what they are, and sent only where they are lacking (A12).

A job of one process says with its start which executable it has. For a job of several the submit side begins with the
digests of all, and is answered which of them are wanted. Blocking file work runs in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

from pool.jobs.layout import Layout
from pool.starter.staging import StagingError

#: The name of a stored executable: the SHA-256 of its content.
DIGEST = re.compile(r"[0-9a-f]{64}")
#: What the submit side begins with, and what it is answered: {process: digest}, [process].
OFFER, WANT = "programs", "want"


class Stream(Protocol):
    """The part of a wire stream that is used here."""

    async def send(self, item: Any) -> None: ...
    async def receive(self) -> Any: ...


async def ask(stream: Stream, executables: Path) -> dict[str, str]:
    """Take the submit side's offer and say what is wanted of it; returns the digests by process.

    Raises:
        StagingError: it is no offer.
    """
    try:
        kind, offered = await stream.receive()
    except (EOFError, TypeError, ValueError) as error:
        raise StagingError("the submit side ended the transfer before it began", retry=True) from error
    if kind != OFFER or not all(DIGEST.fullmatch(str(digest)) for digest in offered.values()):
        raise StagingError("the submit side's executables have names that are no digests")
    await stream.send([WANT, [name for name, digest in offered.items() if not (executables / digest).exists()]])
    return {str(name): str(digest) for name, digest in offered.items()}


async def settle(
    offered: dict[str, str], layout: Layout, scratch: Path, executables: Path, owner: tuple[int, int] | None
) -> None:
    """When the files have come: keep each executable that came, and put those in place that were kept."""
    loop = asyncio.get_running_loop()
    for process in layout.processes:
        name, digest = layout.program(process), offered.get(process.name)
        if name is None or digest is None:
            continue
        if (scratch / name).exists():
            await loop.run_in_executor(None, keep, scratch / name, executables / digest)
        else:
            await loop.run_in_executor(None, place, executables / digest, scratch / name, owner)


def keep(program: Path, stored: Path) -> None:
    """Keep an executable for the next job that names it; not under the name of another one."""
    stored.parent.mkdir(parents=True, exist_ok=True)
    aside = stored.with_name(f"{stored.name}.{os.getpid()}.{program.parent.name}")
    shutil.copyfile(program, aside)
    with aside.open("rb") as handle:
        genuine = hashlib.file_digest(handle, "sha256").hexdigest() == stored.name
    if genuine:
        os.replace(aside, stored)
    else:
        aside.unlink()


def place(stored: Path, program: Path, owner: tuple[int, int] | None) -> None:
    """Put a kept executable where the job finds it."""
    shutil.copyfile(stored, program)
    program.chmod(0o755)
    if owner is not None:
        os.chown(program, *owner)
