"""The files of a job that moves: its scratch directory in a checkpoint, as it was at the moment of the memory (C4).

    settled (job runs) -> the keeper holds the job, lists all, copies what has changed -> gather -> ... -> put_back

Files that can be read before the job is frozen are read then, and only if they have changed since the previous
checkpoint. The keeper (pool/checkpoint/state/scratch_directory.c) compares inode, size and both times, and copies files
that differ while nothing moves.

Guaranteed: an image holds exactly the directories, files, links and fifos of that moment, with modes and times of
change; two names of one file stay that. Not kept: sockets, extended attributes, the owner (all becomes the job's).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from pool.images import Draft, ImageDamaged, ImageError, ImageFile, Manifest
from pool.safe_directory import SafeDirectory

#: Parts of an image: what the scratch directory is made of, and its files by number.
TREE, FILES = "tree", "files/"
#: The files that the keeper writes beside its own: struct listed of checkpoint/state/scratch_directory.c, and numbered
#: copies.
LISTED, KEPT = "scratch", "kept."
#: A file is read early only when it was last changed so long ago (ns): a change after that has another time, however
#: coarse the kernel's clock for files is.
SETTLED = 100_000_000
_TAKEN = struct.Struct("=QQqq")
_ROW = struct.Struct("=QQqqIIII")

Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class ScratchEntry:
    """One thing in a scratch directory.

    Attributes:
        name: path below the directory.
        mark: inode, size, time of the last change of contents, of anything (ns).
        kept: the number of the keeper's copy; None where it is as it was when it was read.
    """

    name: bytes
    mark: Mark
    mode: int
    target: bytes = b""
    kept: int | None = None


def mark_of(status: os.stat_result) -> Mark:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class ScratchSnapshot:
    """The known state of a job's scratch directory, from one checkpoint to the next. Methods block on the disk."""

    def __init__(self, scratch: Path, owner: tuple[int, int] | None = None) -> None:
        self._scratch = scratch
        self._owner = owner
        self._parts: dict[Mark, ImageFile] = {}

    def add_unchanged(self, draft: Draft, keeper: int, now: float) -> bytes:
        """Take in, while the job runs, the files that have not changed lately; returns the list for the keeper.

        Args:
            keeper: process id of the job's keeper.
            now: wall time, or a little before it, seconds.
        """
        mapped = mapped_files(keeper)
        if mapped is None:
            self._parts = {}
            return b""
        latest, leased = int(now * 1e9) - SETTLED, leased_files()
        found: dict[Mark, ImageFile] = {}
        with SafeDirectory(self._scratch, self._owner) as safe:
            for entry in entries(safe):
                if not stat.S_ISREG(entry.mode) or entry.mark[0] in mapped | leased or entry.mark[3] > latest:
                    continue
                with contextlib.suppress(OSError, ImageError):
                    found[entry.mark] = self._part(draft, safe, entry)
        self._parts = found
        return b"".join(_TAKEN.pack(*mark) for mark in found)

    def gather(self, draft: Draft, directory: Path, before: dict[str, tuple[int, int]]) -> tuple[ImageFile, ...]:
        """All of the scratch directory as parts of an image, when the keeper has written its own.

        Args:
            directory: where the keeper wrote. Without a list of its there, the job has ended with the image, and the
                scratch directory is as it was.
            before: what `staging.top_level` said before the job began; goes along.

        Raises:
            ImageError: a file is not what was listed, or cannot be read.
        """
        try:
            listed = list(rows_of(directory / LISTED)) if (directory / LISTED).exists() else None
            with SafeDirectory(self._scratch, self._owner) as safe:
                found = listed if listed is not None else list(entries(safe, open_up=True))
                return self._gathered(draft, safe, directory, found, before)
        except OSError as error:
            what = os.path.basename(error.filename) if isinstance(error.filename, str) else "a file"
            text = f"cannot save the job's {what}: {(error.strerror or str(error)).lower()}"
            raise ImageError(text, retry=True) from error

    def _gathered(
        self,
        draft: Draft,
        safe: SafeDirectory,
        directory: Path,
        found: list[ScratchEntry],
        before: dict[str, tuple[int, int]],
    ) -> tuple[ImageFile, ...]:
        parts: list[ImageFile] = []
        numbers: dict[int, int] = {}
        rows: list[list[Any]] = []
        for entry in found:
            inner: Any = None
            if stat.S_ISREG(entry.mode):
                inner = numbers.get(entry.mark[0])
                if inner is None:
                    inner = numbers[entry.mark[0]] = len(parts)
                    parts.append(self._content(draft, safe, directory, entry, f"{FILES}{inner}"))
            elif stat.S_ISLNK(entry.mode):
                inner = entry.target
            rows.append([entry.name, entry.mode, entry.mark[2], inner])
        tree = msgpack.packb({"entries": rows, "before": {name: list(mark) for name, mark in before.items()}})
        (directory / TREE).write_bytes(tree)
        with (directory / TREE).open("rb") as handle:
            parts.append(draft.add(TREE, handle))
        return tuple(parts)

    def _content(self, draft: Draft, safe: SafeDirectory, directory: Path, entry: ScratchEntry, name: str) -> ImageFile:
        if entry.kept is not None:
            with (directory / f"{KEPT}{entry.kept}").open("rb") as handle:
                return draft.add(name, handle)
        return self._part(draft, safe, entry, name)

    def _part(self, draft: Draft, safe: SafeDirectory, entry: ScratchEntry, name: str = "") -> ImageFile:
        known = self._parts.get(entry.mark)
        if known is not None and draft.has(known):
            known = replace(known, name=name)
            draft.report_chunks(known)
            return known
        with os.fdopen(safe.open_file(entry.name), "rb") as handle:
            if mark_of(os.fstat(handle.fileno())) != entry.mark:
                raise ImageError("a file changed while it was saved", retry=True)
            part = draft.add(name, handle)
            if mark_of(os.fstat(handle.fileno())) != entry.mark:
                raise ImageError("a file changed while it was saved", retry=True)
        self._parts[entry.mark] = part
        return part


def entries(scratch: SafeDirectory, *, open_up: bool = False) -> Iterator[ScratchEntry]:
    """The entries of a directory, each after the directory that holds it; entries that cannot be read are left out.

    Args:
        open_up: the job is dead: what it forbade itself is opened, and has its mode in the entry.
    """
    pending = [b""]
    while pending:
        below = pending.pop()
        try:
            for last, status, target in scratch.entries(below):
                name = os.path.join(below, last)
                mark = mark_of(status)
                wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400
                plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
                if open_up and plain and status.st_mode & wanted != wanted:
                    mark = (*mark[:3], scratch.open_up(name, wanted).st_ctime_ns)
                if stat.S_ISSOCK(status.st_mode):
                    continue
                yield ScratchEntry(name, mark, status.st_mode, target)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(name)
        except OSError:
            if open_up:
                raise


def rows_of(path: Path) -> Iterator[ScratchEntry]:
    """The entries that a keeper has listed.

    Raises:
        ImageError: it is cut off.
    """
    data = path.read_bytes()
    place, number = 0, 0
    while place < len(data):
        if place + _ROW.size > len(data):
            raise ImageError("the list of the job's files is cut off", retry=True)
        *mark, mode, kept, length, more = _ROW.unpack_from(data, place)
        place += _ROW.size
        name, target = data[place : place + length], data[place + length : place + length + more]
        place += length + more
        inode, size, modified, changed = mark
        yield ScratchEntry(name, (inode, size, modified, changed), mode, target, number if kept else None)
        number += 1


def mapped_files(keeper: int) -> set[int] | None:
    """Inodes of files that a process below the keeper has mapped to be written through; None when that cannot be seen.

    A file that is written so has a new time at the first write only.
    """
    found: set[int] = set()
    try:
        pending = list(_children(keeper))
        while pending:
            pid = pending.pop()
            try:
                pending += _children(pid)
                with open(f"/proc/{pid}/maps", "rb") as lines:
                    for line in lines:
                        fields = line.split(None, 5)
                        if fields[1][3:4] == b"s":
                            found.add(int(fields[4]))
            except (FileNotFoundError, ProcessLookupError):
                continue  # it has ended
    except OSError:
        return None
    return found


def leased_files() -> set[int]:
    """Inodes of files that somebody has a lease for writing on: to open one breaks it, and a signal says so."""
    found: set[int] = set()
    with contextlib.suppress(OSError), open("/proc/locks", encoding="ascii") as lines:
        for fields in map(str.split, lines):
            if fields[1] == "LEASE" and fields[3] == "WRITE":
                found.add(int(fields[5].rsplit(":", 1)[1]))
    return found


def _children(pid: int) -> Iterator[int]:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as text:
            yield from map(int, text.read().split())


# -- back ----------------------------------------------------------------------------------------------------


def has_files(manifest: Manifest) -> bool:
    """Whether a checkpoint has the job's files in it."""
    return any(part.name == TREE for part in manifest.parts)


def restore_files(image: Path, scratch: Path, owner: tuple[int, int] | None) -> dict[str, tuple[int, int]]:
    """Make an empty scratch directory what it was; returns the `before` of the job's first start. Blocks on the disk.

    Nothing is written outside of the directory, whatever the image says: it may be somebody else's word.

    Args:
        image: the directory with the image's parts; files are moved from there.

    Raises:
        ImageError: the image is damaged, or the disk fails.
    """
    tree = _tree_of(image)
    made: dict[int, bytes] = {}
    links: list[tuple[bytes, bytes]] = []
    try:
        with SafeDirectory(scratch, owner) as safe:
            for name, mode, _, inner in tree.rows:
                if stat.S_ISDIR(mode):
                    if safe.exists(name):
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
                    safe.make_directory(name, 0o700)
                elif stat.S_ISFIFO(mode):
                    safe.make_pipe(name)
                elif stat.S_ISLNK(mode):
                    links.append((inner, name))
                elif inner in made:
                    safe.give_second_name(made[inner], name)
                else:
                    safe.move_in(image / f"{FILES}{inner}", name, 0o600)
                    made[inner] = name
            for target, name in links:
                safe.make_link(target, name)
            for name, mode, modified, _ in reversed(tree.rows):
                safe.set_mode_and_time(name, None if stat.S_ISLNK(mode) else mode & 0o1777, modified)
    except OSError as error:
        text = f"cannot put the job's files back: {(error.strerror or str(error)).lower()}"
        raise ImageError(text, retry=True) from error
    return tree.before


@dataclass(frozen=True, slots=True)
class _Tree:
    rows: list[tuple[bytes, int, int, Any]]
    before: dict[str, tuple[int, int]]


def _tree_of(image: Path) -> _Tree:
    try:
        said = msgpack.unpackb((image / TREE).read_bytes(), use_list=True)
        rows = [(bytes(name), int(mode), int(modified), inner) for name, mode, modified, inner in said["entries"]]
        before = {str(name): (int(size), int(changed)) for name, (size, changed) in said["before"].items()}
        _check(rows)
        for number in {inner for _, mode, _, inner in rows if stat.S_ISREG(mode)}:
            if type(number) is not int or not (image / f"{FILES}{number}").is_file():
                raise ValueError(f"there is no file {number}")
        return _Tree(rows, before)
    except (KeyError, ValueError, TypeError, msgpack.UnpackException) as error:
        raise ImageDamaged(f"the files of this checkpoint make no sense: {error}") from error


def _check(rows: Iterable[tuple[bytes, int, int, Any]]) -> None:
    folders = {b""}
    for name, mode, _, inner in rows:
        folder, _, last = name.rpartition(b"/")
        if folder not in folders or last in (b"", b".", b"..") or b"\0" in name:
            raise ValueError(f"a file named {name!r}")
        if stat.S_ISDIR(mode):
            folders.add(name)
        elif stat.S_ISLNK(mode):
            if not isinstance(inner, bytes) or not inner or b"\0" in inner:
                raise ValueError(f"a link named {name!r}")
        elif not stat.S_ISREG(mode) and not stat.S_ISFIFO(mode):
            raise ValueError(f"{name!r} is neither file nor directory nor link nor fifo")
