"""The files of a job that moves: its scratch directory in a checkpoint, as it was at the moment of the memory (C4).

    settled (job runs) -> the keeper holds the job, lists all, copies what has changed -> gather -> ... -> put_back

What can be read before the job stands still is read then, and only if it has changed since the checkpoint before; the
keeper (pool/checkpoint/scratch.c) compares inode, size and both times, and copies what differs while nothing moves.

Guaranteed: an image holds exactly the directories, files, links and fifos of that moment, with modes and times of
change; two names of one file stay that. Not kept: sockets, extended attributes, the owner (all becomes the job's).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from pool.images import Draft, ImageDamaged, ImageError, Manifest, Part

#: Parts of an image: what the scratch directory is made of, and its files by number.
TREE, FILES = "tree", "files/"
#: What the keeper writes beside its own: struct listed of pool/checkpoint/scratch.c, and copies by number.
LISTED, KEPT = "scratch", "kept."
#: A file is read early only when it was last changed so long ago (ns): a change after that has another time, however
#: coarse the kernel's clock for files is.
SETTLED = 100_000_000
_TAKEN = struct.Struct("=QQqq")
_ROW = struct.Struct("=QQqqIIII")

Mark = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Entry:
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


class Frozen:
    """What is known of a job's scratch directory from one checkpoint to the next. Methods block on the disk."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._parts: dict[Mark, Part] = {}

    def settled(self, draft: Draft, keeper: int, now: float) -> bytes:
        """Take in, while the job runs, what has not been changed just now; what the keeper is told of it.

        Args:
            keeper: process id of the job's keeper.
            now: wall time, or a little before it, seconds.
        """
        mapped = mapped_files(keeper)
        if mapped is None:
            self._parts = {}
            return b""
        latest = int(now * 1e9) - SETTLED
        found: dict[Mark, Part] = {}
        for entry in entries(self._scratch):
            if not stat.S_ISREG(entry.mode) or entry.mark[0] in mapped or entry.mark[3] > latest:
                continue
            with contextlib.suppress(OSError, ImageError):
                found[entry.mark] = self._part(draft, entry)
        self._parts = found
        return b"".join(_TAKEN.pack(*mark) for mark in found)

    def gather(self, draft: Draft, directory: Path, before: dict[str, tuple[int, int]]) -> tuple[Part, ...]:
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
            found = listed if listed is not None else list(entries(self._scratch, open_up=True))
            return self._gathered(draft, directory, found, before)
        except OSError as error:
            what = os.path.basename(error.filename) if isinstance(error.filename, str) else "a file"
            text = f"cannot save the job's {what}: {(error.strerror or str(error)).lower()}"
            raise ImageError(text, retry=True) from error

    def _gathered(
        self, draft: Draft, directory: Path, found: list[Entry], before: dict[str, tuple[int, int]]
    ) -> tuple[Part, ...]:
        parts: list[Part] = []
        numbers: dict[int, int] = {}
        rows: list[list[Any]] = []
        for entry in found:
            inner: Any = None
            if stat.S_ISREG(entry.mode):
                inner = numbers.get(entry.mark[0])
                if inner is None:
                    inner = numbers[entry.mark[0]] = len(parts)
                    parts.append(self._content(draft, directory, entry, f"{FILES}{inner}"))
            elif stat.S_ISLNK(entry.mode):
                inner = entry.target
            rows.append([entry.name, entry.mode, entry.mark[2], inner])
        tree = msgpack.packb({"entries": rows, "before": {name: list(mark) for name, mark in before.items()}})
        (directory / TREE).write_bytes(tree)
        with (directory / TREE).open("rb") as handle:
            parts.append(draft.add(TREE, handle))
        return tuple(parts)

    def _content(self, draft: Draft, directory: Path, entry: Entry, name: str) -> Part:
        if entry.kept is not None:
            with (directory / f"{KEPT}{entry.kept}").open("rb") as handle:
                return draft.add(name, handle)
        return self._part(draft, entry, name)

    def _part(self, draft: Draft, entry: Entry, name: str = "") -> Part:
        known = self._parts.get(entry.mark)
        if known is not None and draft.has(known):
            known = replace(known, name=name)
            draft.tell(known)
            return known
        path = os.path.join(os.fsencode(self._scratch), entry.name)
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as handle:
            part = draft.add(name, handle)
            if mark_of(os.fstat(handle.fileno())) != entry.mark:
                raise ImageError("a file changed while it was saved", retry=True)
        self._parts[entry.mark] = part
        return part


def entries(scratch: Path, *, open_up: bool = False) -> Iterator[Entry]:
    """What lies in a directory, what holds others before them; what cannot be read is left out.

    Args:
        open_up: the job is dead: what it forbade itself is opened, and has its mode in the entry.
    """
    top = os.fsencode(scratch)
    pending = [b""]
    while pending:
        below = pending.pop()
        try:
            with os.scandir(os.path.join(top, below) if below else top) as listing:
                inner = sorted(listing, key=lambda entry: entry.name)
        except OSError:
            if open_up:
                raise
            continue
        for one in inner:
            try:
                status = one.stat(follow_symlinks=False)
                target = os.readlink(one.path) if stat.S_ISLNK(status.st_mode) else b""
                wanted = 0o700 if stat.S_ISDIR(status.st_mode) else 0o400
                plain = stat.S_ISDIR(status.st_mode) or stat.S_ISREG(status.st_mode)
                mark = mark_of(status)
                if open_up and plain and status.st_mode & wanted != wanted:
                    os.chmod(one.path, wanted)
                    mark = (*mark[:3], one_changed(one.path))
            except OSError:
                if open_up:
                    raise
                continue  # gone meanwhile
            if stat.S_ISSOCK(status.st_mode):
                continue
            name = os.path.join(below, one.name)
            yield Entry(name, mark, status.st_mode, target)
            if stat.S_ISDIR(status.st_mode):
                pending.append(name)


def one_changed(path: bytes) -> int:
    """The time of the last change of anything of a file (ns)."""
    return os.lstat(path).st_ctime_ns


def rows_of(path: Path) -> Iterator[Entry]:
    """What a keeper has listed.

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
        yield Entry(name, (inode, size, modified, changed), mode, target, number if kept else None)
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


def _children(pid: int) -> Iterator[int]:
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as text:
            yield from map(int, text.read().split())


# -- back ----------------------------------------------------------------------------------------------------


def has_files(manifest: Manifest) -> bool:
    """Whether a checkpoint has the job's files in it."""
    return any(part.name == TREE for part in manifest.parts)


def put_back(image: Path, scratch: Path, owner: tuple[int, int] | None) -> dict[str, tuple[int, int]]:
    """Make an empty scratch directory what it was; returns the `before` of the job's first start. Blocks on the disk.

    Nothing is written outside of the directory, whatever the image says: it may be somebody else's word.

    Args:
        image: the directory with the image's parts; files are moved from there.

    Raises:
        ImageError: the image is damaged, or the disk fails.
    """
    tree = _tree_of(image)
    top = os.fsencode(scratch)
    made: dict[int, bytes] = {}
    links: list[tuple[bytes, bytes]] = []
    try:
        for name, mode, _, inner in tree.rows:
            path = os.path.join(top, name)
            if stat.S_ISDIR(mode):
                os.mkdir(path, 0o700)
            elif stat.S_ISFIFO(mode):
                os.mkfifo(path, 0o600)
            elif stat.S_ISLNK(mode):
                links.append((inner, path))
            elif inner in made:
                os.link(made[inner], path)
            else:
                _move(os.fsencode(image / f"{FILES}{inner}"), path)
                made[inner] = path
        for target, path in links:  # last: nothing is ever written by way of one
            os.symlink(target, path)
        for name, mode, modified, _ in reversed(tree.rows):
            path = os.path.join(top, name)
            if owner is not None:
                os.chown(path, *owner, follow_symlinks=False)
            if not stat.S_ISLNK(mode):
                os.chmod(path, mode & 0o1777)
            os.utime(path, ns=(modified, modified), follow_symlinks=False)
    except OSError as error:
        text = f"cannot put the job's files back: {(error.strerror or str(error)).lower()}"
        raise ImageError(text, retry=True) from error
    return tree.before


@dataclass(frozen=True, slots=True)
class _Tree:
    rows: list[tuple[bytes, int, int, Any]]
    before: dict[str, tuple[int, int]]


def _move(source: bytes, path: bytes) -> None:
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    try:
        os.rename(source, path)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, path)


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
