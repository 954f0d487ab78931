"""Carrying files between a job's submit side and its scratch directory: the execute side of B4.

The items on a staging stream are, in both directions, lists with a kind first and raw bytes in between:

    ["file", name, mode, size]   followed by its bytes in chunks
    ["hole", size]               instead of bytes: so many of the file were never written
    ["dir", name, mode]          a directory to make
    ["stdout", size], ["stderr", size]   followed by bytes; outward only
    ["stream", name, size]       the same of a job of several processes; see pool.jobs.pipes.directories
    ["signed", {url: url}]       by which URLs inputs in object stores are read; inward only
    ["done"]                     nothing more follows

Names are relative to the scratch directory. A name that would leave it is refused here whatever the other side says,
and files are opened and made through no link (`pool.safe_directory`). Blocking file work runs in the loop's thread
pool.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol

from pool.errors import PoolError
from pool.jobs.activation import STDERR, STDOUT, hidden
from pool.jobs.pipes.directories import PipeDirectories
from pool.safe_directory import NotRegular, NotTheOwners, SafeDirectory
from pool.sparse import leave_hole, next_piece
from pool.wire.parameter_checks import PATH, SIZE, Forms, check_item

CHUNK = 256 * 1024
#: The messages of a submit side, beside files' bytes; of a mode only the rights are taken.
SENT: Forms = {"file": (PATH, SIZE, SIZE), "dir": (PATH, SIZE), "hole": (int,), "signed": (dict,), "done": ()}


class StagingError(PoolError):
    """A file of the job could not be carried."""


class DiskRefused(StagingError):
    """This machine's disk did not take an input; another's may."""


class ItemStream(Protocol):
    """The part of a wire stream that staging uses."""

    async def send(self, item: Any) -> None: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...


def checked(name: Any) -> str:
    """A name in the scratch directory, as it came.

    Raises:
        StagingError: the name is absolute or climbs out.
    """
    pure = PurePosixPath(str(name))
    if pure.is_absolute() or not pure.parts or ".." in pure.parts or "\0" in str(name):
        raise StagingError(f"refused to write outside the job's scratch directory: {name!r}")
    return str(pure)


async def receive(
    stream: ItemStream, scratch: Path, owner: tuple[int, int] | None, signed: dict[str, str] | None = None
) -> int:
    """Write what a stream brings into the scratch directory; returns the bytes received.

    Args:
        owner: uid and gid the files get, None for the node's own.
        signed: gets the URLs by which inputs in object stores are read.

    Raises:
        StagingError: a name outside the scratch directory, or the disk refuses.
    """
    total = 0
    file: int | None = None
    left = 0
    try:
        with SafeDirectory(scratch, owner) as safe:
            try:
                async for item in stream:
                    if isinstance(item, bytes):
                        if file is None or len(item) > left:
                            raise StagingError("the submit side sent more of a file than it had announced")
                        await _in_thread(write_all, file, item)
                        left -= len(item)
                        total += len(item)
                    elif check_item(item, SENT)[0] == "hole":
                        if file is None or not 0 < item[1] <= left:
                            raise StagingError("the submit side sent a hole where there can be none")
                        await _in_thread(leave_hole, file, item[1])
                        left -= item[1]
                    elif item[0] == "dir":
                        await _in_thread(safe.make_directory, checked(item[1]), item[2])
                    elif item[0] == "file":
                        if left:
                            raise StagingError("the submit side sent less of a file than it had announced")
                        left = item[3]
                        file = await _in_thread(safe.create_file, checked(item[1]), item[2])
                    elif item[0] == "signed" and signed is not None:
                        signed |= {str(url): str(own) for url, own in item[1].items()}
                    elif item[0] == "done":
                        return total
                    if file is not None and not left:
                        os.close(file)
                        file = None
            finally:
                if file is not None:
                    os.close(file)
    except OSError as error:
        raise DiskRefused(
            f"cannot write the job's input on the execute machine: {error.strerror or error}", retry=True
        ) from error
    raise StagingError("the submit side ended the transfer in the middle", retry=True)


async def send_file(stream: ItemStream, head: list[Any], safe: SafeDirectory, name: str) -> int:
    """Send one file behind its head item, which gets its size; one that shrinks meanwhile is an error, growth is cut.

    Raises:
        StagingError: it is no regular file, is not the owner's, or cannot be read.
    """
    with await _in_thread(open_output, safe, name) as handle:
        file, at, sent = handle.fileno(), 0, 0
        size = os.fstat(file).st_size
        await stream.send([*head, size])
        while at < size:
            hole, length = await _in_thread(next_piece, file, at, size, CHUNK)
            if hole:
                await stream.send(["hole", length])
                at += length
                continue
            chunk = await _in_thread(os.pread, file, length, at)
            if not chunk:
                raise StagingError(f"{os.path.basename(name)} became shorter while it was sent", retry=True)
            at += len(chunk)
            sent += len(chunk)
            await stream.send(chunk)
        if os.fstat(file).st_size < size:
            raise StagingError(f"{os.path.basename(name)} became shorter while it was sent", retry=True)
    return sent


def top_level(scratch: SafeDirectory, folder: str = "") -> dict[str, tuple[int, int]]:
    """Each regular file directly in a directory, with its size and change time (ns), links left out."""
    return {
        os.fsdecode(name): (status.st_size, status.st_mtime_ns)
        for name, status, _ in scratch.entries(folder)
        if stat.S_ISREG(status.st_mode)
    }


@dataclass(frozen=True, slots=True)
class Output:
    """One thing that goes to the submit side: its name in the scratch directory, its name there, and whether it is a
    directory.
    """

    path: str
    name: str
    directory: bool = False


def outputs(
    scratch: SafeDirectory,
    before: dict[str, tuple[int, int]],
    asked: tuple[str, ...] | None,
    renamed: Collection[str] = (),
    kind: str = "output",
    keeps_paths: bool = False,
) -> list[Output]:
    """The files for the submit side: those that were requested, or every top-level file that is new or changed, and not
    hidden.

    Args:
        renamed: names that the submit side has another place for. Any other is put into the initial directory without
            the directories before it, as this command has always meant, unless `keeps_paths`.
        kind: what they are, in what is said of them: output, checkpoint.

    Raises:
        StagingError: an output that was asked for does not exist, or cannot be read.
    """
    try:
        if asked is None:
            now = top_level(scratch)
            names = sorted(name for name, mark in now.items() if before.get(name) != mark and not hidden(name))
            return [Output(name, name) for name in names]
        found: list[Output] = []
        for name in asked:
            path = resolved(scratch, checked(name))
            if path is None:
                raise StagingError(
                    f"the job did not leave its {kind} file {name}",
                    hint=f"correct transfer_{kind}_files, or let the job create it",
                )
            contents_only = name.endswith("/")
            name = name.rstrip("/")
            submit_name = name if name in renamed or keeps_paths else os.path.basename(name)
            if not path or stat.S_ISDIR(scratch.status(path).st_mode):
                found += _tree(scratch, path, "" if contents_only else submit_name)
            else:
                found.append(Output(path, submit_name))
        return found
    except OSError as error:
        raise StagingError(f"cannot read the job's output {error.filename}: {error.strerror}") from error


def outputs_of_several(
    scratch: SafeDirectory, before: dict[str, tuple[int, int]], asked: tuple[str, ...] | None, layout: PipeDirectories
) -> list[Output]:
    """The files for the submit side of a job of several processes: also from the directories that some of them have of
    their own.

    Requested files are looked for in the scratch directory first.

    Raises:
        StagingError: as `outputs`.
    """
    folders = [folder for folder in layout.folders.values() if folder]
    found = []
    wanted = asked
    for folder in folders:
        try:
            inside = top_level(scratch, folder)
        except OSError:  # the job has removed it, or put something else there
            continue
        for name, mark in sorted(inside.items()):
            place = f"{folder}/{name}"
            if asked is None and before.get(place) != mark and not hidden(name):
                found.append(Output(place, place))
            elif wanted is not None and name in wanted and not scratch.exists(name):
                found.append(Output(place, place))
                wanted = tuple(other for other in wanted if other != name)
    own = {STDOUT, STDERR}
    return [output for output in outputs(scratch, before, wanted) if output.name not in own] + found


def resolved(scratch: SafeDirectory, name: str) -> str | None:
    """The name without links of what a name in the scratch directory leads to, '' for the directory itself.

    None where nothing is, or where it leads out. The answer is a name only: it is opened through no link.
    """
    top = os.path.realpath(os.fsdecode(scratch.path))
    path = os.path.realpath(os.path.join(top, name))
    if path == top:
        return ""
    if not path.startswith(f"{top}/"):
        return None
    inner = path[len(top) + 1 :]
    return inner if scratch.exists(inner) else None


def _tree(scratch: SafeDirectory, path: str, name: str) -> Iterator[Output]:
    if name:
        yield Output(path, name, directory=True)
    pending = [path]
    while pending:
        directory = pending.pop()
        inner = []
        for entry, status, _ in scratch.entries(directory):
            one = os.path.join(directory, os.fsdecode(entry))
            submit_name = os.path.join(name, os.path.relpath(one, path or "."))
            if stat.S_ISDIR(status.st_mode):
                yield Output(one, submit_name, directory=True)
                inner.append(one)
            elif stat.S_ISREG(status.st_mode):
                yield Output(one, submit_name)
        pending += reversed(inner)


def open_output(safe: SafeDirectory, name: str) -> BinaryIO:
    """Open a file that a job has left for reading, unless it is a link, a pipe or another user's.

    Raises:
        StagingError: it is no regular file, or cannot be read.
    """
    base = os.path.basename(name)
    try:
        return os.fdopen(safe.open_file(name), "rb")
    except NotRegular as error:
        raise StagingError(f"{base} is not a regular file") from error
    except NotTheOwners as error:
        raise StagingError(f"{base} is not the job's own file") from error
    except OSError as error:
        raise StagingError(f"cannot read the job's output {base}: {error.strerror}") from error


def write_all(file: int, data: bytes) -> None:
    """Write all of it behind what was written."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
