"""Carrying files between a job's home and its scratch directory: the execute side of B4.

The items on a staging stream are, in both directions, lists with a kind first and raw bytes in between:

    ["file", name, mode, size]   followed by its bytes in chunks
    ["dir", name, mode]          a directory to make
    ["stdout", size], ["stderr", size]   followed by bytes; outward only
    ["stream", name, size]       the same of a job of several processes; see pool.jobs.layout
    ["done"]                     nothing more follows

Names are relative to the scratch directory. What would leave it is refused here whatever the other side says, and
links are never followed out of it. Blocking file work runs in the loop's thread pool.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from pool.errors import PoolError
from pool.jobs.activation import STDERR, STDOUT, hidden
from pool.jobs.layout import Layout

CHUNK = 256 * 1024


class StagingError(PoolError):
    """A file of the job could not be carried."""


class ItemStream(Protocol):
    """The part of a wire stream that staging uses."""

    async def send(self, item: Any) -> None: ...
    def __aiter__(self) -> AsyncIterator[Any]: ...


def inside(scratch: Path, name: str) -> Path:
    """The path of a name in the scratch directory.

    Raises:
        StagingError: the name is absolute or climbs out.
    """
    pure = PurePosixPath(name)
    if pure.is_absolute() or not pure.parts or ".." in pure.parts:
        raise StagingError(f"refused to write outside the job's scratch directory: {name!r}")
    return scratch.joinpath(*pure.parts)


async def receive(stream: ItemStream, scratch: Path, owner: tuple[int, int] | None) -> int:
    """Write what a stream brings into the scratch directory; returns the bytes received.

    Args:
        owner: uid and gid the files get, None for the node's own.

    Raises:
        StagingError: a name outside the scratch directory, or the disk refuses.
    """
    total = 0
    open_file: Any = None
    left = 0
    try:
        async for item in stream:
            if isinstance(item, bytes):
                if open_file is None or len(item) > left:
                    raise StagingError("the submit side sent more of a file than it had announced")
                await _in_thread(open_file.write, item)
                left -= len(item)
                total += len(item)
                if not left:
                    open_file.close()
                    open_file = None
            elif item[0] == "dir":
                await _in_thread(_make_directory, inside(scratch, item[1]), int(item[2]), owner)
            elif item[0] == "file":
                path = inside(scratch, item[1])
                left = int(item[3])
                open_file = await _in_thread(_create, path, int(item[2]), owner)
                if not left:
                    open_file.close()
                    open_file = None
            elif item[0] == "done":
                return total
    except OSError as error:
        raise StagingError(
            f"cannot write the job's input on the execute machine: {error.strerror or error}", retry=True
        ) from error
    finally:
        if open_file is not None:
            open_file.close()
    raise StagingError("the submit side ended the transfer in the middle", retry=True)


async def send_file(stream: ItemStream, head: list[Any], path: Path, size: int, owner: int | None = None) -> int:
    """Send one file behind its head item; a file that shrank meanwhile is an error, growth is cut."""
    await stream.send(head)
    left = size
    with await _in_thread(open_regular, path, owner) as handle:
        while left:
            chunk = await _in_thread(handle.read, min(CHUNK, left))
            if not chunk:
                raise StagingError(f"{path.name} became shorter while it was sent home", retry=True)
            left -= len(chunk)
            await stream.send(chunk)
    return size


def top_level(scratch: Path) -> dict[str, tuple[int, int]]:
    """Each regular file directly in the scratch directory with its size and change time (ns), links left out."""
    found: dict[str, tuple[int, int]] = {}
    with os.scandir(scratch) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found[entry.name] = (status.st_size, status.st_mtime_ns)
    return found


@dataclass(frozen=True, slots=True)
class Output:
    """One thing that goes home: where it lies here, its name there, and whether it is a directory to make."""

    path: Path
    name: str
    directory: bool = False


def outputs(
    scratch: Path,
    before: dict[str, tuple[int, int]],
    asked: tuple[str, ...] | None,
    renamed: Collection[str] = (),
    kind: str = "output",
) -> list[Output]:
    """What goes home: what was asked for, or every top-level file that is new or changed, and not hidden.

    Args:
        renamed: names that home has another place for. Any other is put into the initial directory without the
            directories before it, as this command has always meant.
        kind: what they are, in what is said of them: output, checkpoint.

    Raises:
        StagingError: an output that was asked for does not exist, or cannot be read.
    """
    try:
        if asked is None:
            now = top_level(scratch)
            names = sorted(name for name, mark in now.items() if before.get(name) != mark and not hidden(name))
            return [Output(scratch / name, name) for name in names]
        found: list[Output] = []
        top = os.path.realpath(scratch)
        for name in asked:
            path = Path(os.path.realpath(inside(scratch, name)))
            if not path.is_relative_to(top) or not path.exists():
                raise StagingError(
                    f"the job did not leave its {kind} file {name}",
                    hint=f"correct transfer_{kind}_files, or let the job create it",
                )
            contents_only = name.endswith("/")
            name = name.rstrip("/")
            at_home = name if name in renamed else os.path.basename(name)
            if path.is_dir():
                found += _tree(path, "" if contents_only else at_home)
            else:
                found.append(Output(path, at_home))
        return found
    except OSError as error:
        raise StagingError(f"cannot read the job's output {error.filename}: {error.strerror}") from error


def outputs_of_several(
    scratch: Path, before: dict[str, tuple[int, int]], asked: tuple[str, ...] | None, layout: Layout
) -> list[Output]:
    """What goes home of a job of several processes: also from the directories that some of them have of their own.

    What was asked for is looked for in the scratch directory first.

    Raises:
        StagingError: as `outputs`.
    """
    folders = [folder for folder in layout.folders.values() if folder]
    found = []
    wanted = asked
    top = os.path.realpath(scratch)
    for folder in folders:
        inside_top = os.path.realpath(scratch / folder).startswith(f"{top}/")
        if not inside_top or not (scratch / folder).is_dir():
            continue
        for name, mark in sorted(top_level(scratch / folder).items()):
            place = f"{folder}/{name}"
            if asked is None and before.get(place) != mark and not hidden(name):
                found.append(Output(scratch / place, place))
            elif wanted is not None and name in wanted and not (scratch / name).exists():
                found.append(Output(scratch / place, place))
                wanted = tuple(other for other in wanted if other != name)
    own = {STDOUT, STDERR}
    return [output for output in outputs(scratch, before, wanted) if output.name not in own] + found


def _tree(path: Path, name: str) -> Iterator[Output]:
    if name:
        yield Output(path, name, directory=True)
    inner = sorted(_walk(path), key=lambda found: found[0])
    for one, status in inner:
        at_home = os.path.join(name, one.relative_to(path))
        if stat.S_ISDIR(status.st_mode):
            yield Output(one, at_home, directory=True)
        elif stat.S_ISREG(status.st_mode):
            yield Output(one, at_home)


def _walk(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    with os.scandir(top) as entries:
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            path = Path(entry.path)
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(path)


def open_regular(path: Path, owner: int | None = None) -> Any:
    """Open a file that a job has left for reading, unless it is a link or a pipe by which the job means another.

    Args:
        owner: the user id it must belong to, where the node is another user: a hard link may lead to what only the
            node can read.

    Raises:
        StagingError: it is no regular file, or cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise StagingError(f"cannot read the job's output {path.name}: {error.strerror}") from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or owner not in (None, status.st_uid):
        os.close(descriptor)
        what = "a regular file" if not stat.S_ISREG(status.st_mode) else "the job's own file"
        raise StagingError(f"{path.name} is not {what}")
    return os.fdopen(descriptor, "rb")


def _create(path: Path, mode: int, owner: tuple[int, int] | None) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    if owner is not None:
        os.fchown(descriptor, *owner)
    os.fchmod(descriptor, mode & 0o777)
    return os.fdopen(descriptor, "wb")


def _make_directory(path: Path, mode: int, owner: tuple[int, int] | None) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod((mode & 0o777) | 0o700)
    if owner is not None:
        os.chown(path, *owner)


async def _in_thread(function: Any, *arguments: Any) -> Any:
    return await asyncio.get_running_loop().run_in_executor(None, function, *arguments)
