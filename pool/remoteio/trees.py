"""Which part of the submit machine's files a job is shown: pure.

A job sees the system (programs, libraries, /etc, /dev, /proc) of the machine it runs on, and everything else of
home. An administrator narrows the latter to trees (REMOTE_IO_TREES), some of them for reading only.
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
    """One directory of home with all below it."""

    path: str
    readonly: bool = False


class BadTree(ValueError):
    """A word of REMOTE_IO_TREES that is none."""


def trees_of(text: str) -> tuple[Tree, ...]:
    """REMOTE_IO_TREES: directories between blanks or commas, `:ro` behind those that may only be read.

    Raises:
        BadTree: a name is not absolute.
    """
    found = []
    for word in text.replace(",", " ").split():
        path, _, how = word.partition(":")
        if not path.startswith("/") or how not in ("", "ro", "rw"):
            raise BadTree(word)
        found.append(Tree(posixpath.normpath("/" + path.lstrip("/")), how == "ro"))
    return tuple(found)


def shown(allowed: Iterable[Tree], top: Iterable[str], named: Iterable[str]) -> tuple[Tree, ...]:
    """The trees a job is shown, none within another.

    Args:
        allowed: the administrator's.
        top: the directories in the root of the submit machine.
        named: absolute paths that the job's description names.
    """
    allowed = tuple(allowed)
    whole = {f"/{name}" for name in top if name not in LOCAL and name not in PARTLY and not name.startswith(".")}
    for path in named:
        parts = posixpath.normpath(path).split("/")[1:]
        if len(parts) > 2 and parts[0] in PARTLY and not path.startswith("/var/tmp/"):
            whole.add("/" + "/".join(parts[:2]))
    found: dict[str, bool] = {}
    for path in whole:
        for tree in allowed:
            if below(path, tree.path):
                found[path] = found.get(path, True) and tree.readonly
            elif below(tree.path, path):
                found[tree.path] = tree.readonly
    outermost = [path for path in found if not any(path != other and below(path, other) for other in found)]
    return tuple(Tree(path, found[path]) for path in sorted(outermost))


def below(path: str, directory: str) -> bool:
    """Whether a path is a directory or lies in it."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
