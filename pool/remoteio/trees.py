"""Which part of the submit machine's files a job is shown: pure.

A job sees the system (programs, libraries, /etc, /dev, /proc) of the machine it runs on, and the trees of the submit
side that are granted to it. Those are the trees that its description asks for (`remote_io_trees`, or else the
directories that it names), as far as the administrator allows them (REMOTE_IO_TREES). Some of them are for reading
only. Of some of these the job says that they are static: its machine then opens files there without asking.
"""

from __future__ import annotations

import posixpath
from collections.abc import Container, Iterable
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
#: The words behind the colon of a tree that a job asks for.
MODES = ("", "ro", "rw", "static")


@dataclass(frozen=True, slots=True)
class Tree:
    """One directory of the submit side with all below it.

    Attributes:
        static: read-only, and seldom changed by others: opening and closing a file there is its machine's own affair.
    """

    path: str
    readonly: bool = False
    static: bool = False


class BadTree(ValueError):
    """A word that names no tree."""


def trees_of(text: str) -> tuple[Tree, ...]:
    """REMOTE_IO_TREES: directories between blanks or commas, `:ro` behind those that may only be read.

    Raises:
        BadTree: a name is not absolute.
    """
    return tuple(tree_of(word, ("", "ro", "rw")) for word in text.replace(",", " ").split())


def wishes_of(text: str) -> tuple[Tree, ...]:
    """A job's RemoteIOTrees: directories between commas, `:ro` as above, or `:static`.

    Raises:
        BadTree: a name is not absolute.
    """
    return tuple(tree_of(word.strip(), MODES) for word in text.split(",") if word.strip())


def tree_of(word: str, modes: Container[str]) -> Tree:
    """One directory, with one of these modes behind it or none.

    Raises:
        BadTree: its name is not absolute, or what follows the colon is not known.
    """
    path, _, how = word.partition(":")
    if not path.startswith("/") or how not in modes:
        raise BadTree(word)
    return Tree(posixpath.normpath("/" + path.lstrip("/")), how in ("ro", "static"), how == "static")


def granted(allowed: Iterable[Tree], top: Iterable[str], wished: Iterable[Tree]) -> tuple[Tree, ...]:
    """The trees that a job may reach; one may lie in another that is granted in another way.

    A directory is granted where the job asks for it and the administrator allows it; for writing, where both say so. Of
    several wishes, and of several permissions, the one for the nearest directory around counts.

    Args:
        allowed: the administrator's.
        top: the directories in the root of the submit machine: `/` asks for those that are the submit side's.
        wished: the job's.
    """
    allowed, wishes = tuple(allowed), []
    for wish in wished:
        if wish.path == "/":
            wishes += [
                Tree(f"/{name}", wish.readonly, wish.static)
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
        around_it = [wish for wish in wishes if is_below(path, wish.path)]
        nearest = max(len(wish.path) for wish in around_it)
        asked = [wish for wish in around_it if len(wish.path) == nearest]
        readonly, static = bound.readonly or all(wish.readonly for wish in asked), all(wish.static for wish in asked)
        around = max(
            (tree for tree in found if is_below(path, tree.path)), key=lambda tree: len(tree.path), default=None
        )
        if around is None or (around.readonly, around.static) != (readonly, static):
            found.append(Tree(path, readonly, static))
    return tuple(found)


def outermost(trees: Iterable[Tree]) -> tuple[Tree, ...]:
    """Those that lie in no other, read-only or static where all that lies in them is: what the job's machine mounts."""
    trees, found = tuple(trees), []
    for tree in trees:
        if not any(tree.path != other.path and is_below(tree.path, other.path) for other in trees):
            inner = [one for one in trees if is_below(one.path, tree.path)]
            found.append(Tree(tree.path, all(one.readonly for one in inner), all(one.static for one in inner)))
    return tuple(found)


def _holds_homes(path: str) -> bool:
    """Whether a job finds the submit side's directory under this name, not that of the machine it runs on."""
    first, *inner = path.split("/")[1:]
    return first not in LOCAL and (first not in PARTLY or bool(inner)) and not is_below(path, "/var/tmp")


def is_below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
