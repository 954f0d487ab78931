"""Which part of the submit machine's files a job is shown: pure.

A job sees the system (programs, libraries, /etc, /dev, /proc) of the machine it runs on, and the trees of the submit
side that are granted to it. Those are the trees that its description asks for (`remote_io_trees`, or else the
directories that it names), as far as the administrator allows them (REMOTE_IO_TREES). Some of them are for reading
only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from dataclasses import dataclass

#: Directories of the root that are always the execute machine's own.
LOCAL = frozenset(
    [
        "bin",
        "boot",
        "dev",
        "etc",
        "gnu",
        "job",
        "lib",
        "lib32",
        "lib64",
        "libx32",
        "lost+found",
        "nix",
        "proc",
        "run",
        "sbin",
        "sys",
        "usr",
    ]
)
#: Those that are its own but for what the job names below them.
PARTLY = frozenset(("opt", "tmp", "var"))


@dataclass(frozen=True, slots=True)
class Tree:
    """One directory of the submit side with all below it."""

    path: str
    readonly: bool = False


class BadTree(ValueError):
    """A word that names no tree."""


def trees_of(text: str) -> tuple[Tree, ...]:
    """REMOTE_IO_TREES: directories between blanks or commas, `:ro` behind those that may only be read.

    Raises:
        BadTree: a name is not absolute.
    """
    return tuple(map(tree_of, text.replace(",", " ").split()))


def wishes_of(text: str) -> tuple[Tree, ...]:
    """A job's RemoteIOTrees: directories between commas, `:ro` as above.

    Raises:
        BadTree: a name is not absolute.
    """
    return tuple(tree_of(word.strip()) for word in text.split(",") if word.strip())


def tree_of(word: str) -> Tree:
    """One directory, with `:ro` behind it or not.

    Raises:
        BadTree: its name is not absolute, or what follows the colon is not known.
    """
    path, _, how = word.partition(":")
    if not path.startswith("/") or how not in ("", "ro", "rw"):
        raise BadTree(word)
    return Tree(posixpath.normpath("/" + path.lstrip("/")), how == "ro")


def granted(allowed: Iterable[Tree], top: Iterable[str], wished: Iterable[Tree]) -> tuple[Tree, ...]:
    """The trees that a job may reach; one may lie in another that is granted in another way.

    A directory is granted where the job asks for it and the administrator allows it; for writing, where both say so.

    Args:
        allowed: the administrator's.
        top: the directories in the root of the submit machine: `/` asks for those that are the submit side's.
        wished: the job's.
    """
    allowed, wishes = tuple(allowed), []
    for wish in wished:
        if wish.path == "/":
            wishes += [
                Tree(f"/{name}", wish.readonly)
                for name in top
                if name not in LOCAL and name not in PARTLY and not name.startswith(".")
            ]
        elif _holds_homes(wish.path):
            wishes.append(wish)
    paths = {wish.path for wish in wishes}
    paths |= {tree.path for tree in allowed if any(is_below(tree.path, path) for path in paths)}
    found: list[Tree] = []
    for path in sorted(paths):  # a directory comes before those in it
        bound = max(
            (tree for tree in allowed if is_below(path, tree.path)), key=lambda tree: len(tree.path), default=None
        )
        if bound is None:
            continue
        readonly = bound.readonly or all(wish.readonly for wish in wishes if is_below(path, wish.path))
        around = max(
            (tree for tree in found if is_below(path, tree.path)), key=lambda tree: len(tree.path), default=None
        )
        if around is None or around.readonly != readonly:
            found.append(Tree(path, readonly))
    return tuple(found)


def outermost(trees: Iterable[Tree]) -> tuple[Tree, ...]:
    """Those that lie in no other, read-only where all that lies in them is: what the job's machine mounts."""
    trees = tuple(trees)
    return tuple(
        Tree(tree.path, all(one.readonly for one in trees if is_below(one.path, tree.path)))
        for tree in trees
        if not any(tree.path != other.path and is_below(tree.path, other.path) for other in trees)
    )


def _holds_homes(path: str) -> bool:
    """Whether a job finds the submit side's directory under this name, not that of the machine it runs on."""
    first, *inner = path.split("/")[1:]
    return first not in LOCAL and (first not in PARTLY or bool(inner)) and not is_below(path, "/var/tmp")


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
