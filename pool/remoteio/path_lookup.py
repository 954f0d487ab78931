"""The file of a job's path on the submit side: found by the kernel below a tree, without links, in one step.

So nothing can race it. The job's own kernel follows symbolic links, with READLINK; here none is followed. A path that
meets one nevertheless has changed since the job's kernel looked: ESTALE, at which it looks again.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator, Iterable
from typing import NamedTuple

from pool.remoteio import kernel
from pool.remoteio.trees import Tree, is_below, outermost

#: Names that undo information is kept under; a job does not see them.
UNDO = b".poolnode-undo."
#: Begins the name of a file that shows two machines that they see the same tree, while it is looked for.
PROBE = b".poolnode-probe."
#: File systems in which a name is not a file: processes, the kernel's own settings.
_NOT_FILES = {
    *(0x9FA0, 0x62656572, 0x64626720, 0x73636673, 0x27E0EB, 0x63677270, 0x74726163, 0x6165676C),
    *(0xCAFE4A11, 0x42494E4D, 0xDE5E81E4, 0x62656570, 0x6E736673),
}
_BENEATH = kernel.BENEATH | kernel.NO_SYMLINKS | kernel.NO_MAGICLINKS
_DIRECTORY = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
#: Directories that are known to be shown.
_KNOWN = 4096


class NameInDirectory(NamedTuple):
    """A name in a directory; the name is '.' for a tree itself."""

    directory: int
    name: bytes
    readonly: bool


class PathDescriptor:
    """The file at a place, whatever becomes of its name: a context manager that gives a descriptor which only names it
    (O_PATH).
    """

    __slots__ = ("_fd", "_place")

    def __init__(self, place: NameInDirectory) -> None:
        self._place = place

    def __enter__(self) -> int:
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._place.name, flags, dir_fd=self._place.directory)
        return self._fd

    def __exit__(self, *exception: object) -> None:
        os.close(self._fd)


class _At:
    """A place, for as long as its directory is open."""

    __slots__ = ("_place",)

    def __init__(self, place: NameInDirectory) -> None:
        self._place = place

    def __enter__(self) -> NameInDirectory:
        return self._place

    def __exit__(self, *exception: object) -> None:
        os.close(self._place.directory)


class Places:
    """The trees of one job.

    Args:
        trees: what it may reach; one may lie in another, and counts there.
        hidden: absolute paths (of the node's own state) that it may not.

    Attributes:
        trees: the outermost ones, which its machine mounts.
    """

    def __init__(self, trees: Iterable[Tree], hidden: Iterable[str] = ()) -> None:
        trees = tuple(trees)
        self.trees = outermost(trees)
        self._open: list[tuple[bytes, int, bool]] = []
        self._hidden = tuple(os.fsencode(os.path.realpath(path)) for path in hidden)
        self._devices: dict[int, bool] = {}
        self._known: dict[tuple[bytes, bool], tuple[int, bytes, bool]] = {}
        for tree in sorted(trees, key=lambda tree: -len(tree.path)):
            try:
                root = os.fsencode(tree.path).rstrip(b"/")
                self._open.append((root, os.open(tree.path, _DIRECTORY), tree.readonly))
            except OSError:
                continue  # what is not there, or may not be entered, is missing for the job as for its owner
        self._tops = frozenset(root for root, _, _ in self._open)
        # A directory with a tree in it stays where it is, so that nothing else comes to lie at that tree's name.
        self._above_trees = frozenset(
            os.fsencode(tree.path[:end]) for tree in trees for end, sign in enumerate(tree.path) if sign == "/" and end
        )

    def close(self) -> None:
        """Let go of the trees."""
        while self._open:
            os.close(self._open.pop()[1])

    def contains(self, path: bytes) -> bool:
        """Whether a path lies in a tree at all."""
        return any(path == tree or path.startswith(tree + b"/") for tree, _, _ in self._open)

    def has_readonly(self, directory: bytes) -> bool:
        """Whether anything in a directory may only be read."""
        return any(readonly and is_below(os.fsdecode(tree), os.fsdecode(directory)) for tree, _, readonly in self._open)

    def open_parent(self, path: bytes, *, write: bool = False, own: bool = False) -> _At:
        """The directory that holds a path, open, and the name in it: for `with`.

        Args:
            write: it is going to be changed.
            own: for undoing, which may use the names that are kept from the job.

        Raises:
            OSError: it is not shown (EACCES), read-only (EROFS), or whatever the owner would meet.
        """
        above, _, name = path.rpartition(b"/")
        self._check_name(path, name, own)
        found = self._shown(path, own) if path in self._tops else self._tree_of(above, own)
        if path in self._hidden:
            raise _problem(errno.EACCES)
        root, inner, readonly = found
        if path in self._tops:
            name = b"."
        if write and readonly:
            raise _problem(errno.EROFS)
        if write and (name == b"." or path in self._above_trees):
            raise _problem(errno.EBUSY)
        return self._at(root, inner, name, readonly)

    def open_directory(self, path: bytes) -> _At:
        """A directory whose names are going to be changed, open, as the place of its own '.': for `with`; see
        `name_in`.

        Raises:
            OSError: as `open_parent`.
        """
        root, inner, readonly = self._tree_of(path, False)
        if readonly:
            raise _problem(errno.EROFS)
        return self._at(root, inner, b".", readonly)

    def name_in(self, directory: NameInDirectory, above: bytes, name: bytes) -> NameInDirectory:
        """A name in such a directory, whose path is `above`; it is going to be changed. Raises OSError."""
        path = above + b"/" + name
        if b"/" in name:
            raise _problem(errno.EINVAL)
        self._check_name(path, name, False)
        if path in self._hidden:
            raise _problem(errno.EACCES)
        if path in self._tops or path in self._above_trees:
            raise _problem(errno.EBUSY)
        return NameInDirectory(directory.directory, name, False)

    def _at(self, root: int, inner: bytes, name: bytes, readonly: bool) -> _At:
        directory = _parent(root, inner)
        try:
            self._check(directory)
        except OSError:
            os.close(directory)
            raise
        return _At(NameInDirectory(directory, name, readonly))

    @staticmethod
    def _check_name(path: bytes, name: bytes, own: bool) -> None:
        if name in (b"", b".", b"..") or b"\0" in path:
            raise _problem(errno.EINVAL)
        if len(path) >= 4096 and not own:  # a hidden name may be longer than the one that it stands for
            raise _problem(errno.ENAMETOOLONG)
        if not own and name.startswith(UNDO):
            raise _problem(errno.ENOENT)

    def walk_to(self, path: bytes) -> Generator[tuple[bytes, int], None, None]:
        """Every directory from a tree to this one, each with its name in the one before, and open until the next.

        Raises:
            OSError: it is not shown, or whatever the owner would meet.
        """
        root, inner, _ = self._tree_of(path, False)
        directory = os.dup(root)
        try:
            yield b"", directory
            for name in inner.split(b"/") if inner != b"." else ():
                further = _parent(directory, name)
                os.close(directory)
                directory = further
                yield name, directory
        finally:
            os.close(directory)

    def _tree_of(self, above: bytes, own: bool) -> tuple[int, bytes, bool]:
        """Which tree a directory lies in: (its descriptor, path in it, read-only). Kept for the next time."""
        known = self._known.get((above, own))
        if known is None:
            if len(self._known) > _KNOWN:
                self._known.clear()
            known = self._known[above, own] = self._shown(above, own)
        return known

    def _shown(self, path: bytes, own: bool) -> tuple[int, bytes, bool]:
        parts = path.split(b"/")
        if parts[0] or any(part in (b"", b".", b"..") for part in parts[1:]):
            raise _problem(errno.EINVAL)
        if not own and any(part.startswith(UNDO) for part in parts):
            raise _problem(errno.ENOENT)
        if any(path == one or path.startswith(one + b"/") for one in self._hidden):
            raise _problem(errno.EACCES)
        for tree, root, readonly in self._open:
            if path == tree:
                return root, b".", readonly
            if path.startswith(tree + b"/"):
                return root, path[len(tree) + 1 :], readonly
        raise _problem(errno.EACCES)

    def _check(self, directory: int) -> None:
        device = os.fstat(directory).st_dev
        files = self._devices.get(device)
        if files is None:
            files = self._devices[device] = kernel.magic(directory) not in _NOT_FILES
        if not files:
            raise _problem(errno.EACCES)


def _parent(root: int, inner: bytes) -> int:
    try:
        return kernel.openat2(root, inner, _DIRECTORY, _BENEATH)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise _problem(errno.ESTALE) from None
        raise


def _problem(number: int) -> OSError:
    return OSError(number, os.strerror(number))
