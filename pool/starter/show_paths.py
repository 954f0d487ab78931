"""SHOW_PATHS: which directories of this machine jobs of isolation 'full' see beside the system's, and who may write.

For interpreters and libraries that lie elsewhere (a shared conda, a software tree on a file server), and for trees that
a work flow's jobs share with the machine where it was submitted. `PATH` is shown to all jobs, read-only; `PATH:rw` may
be written to; `PATH:rw:alice+%physics` is shown to jobs of that user and that group only. The file system's own rights
hold beside it, as everywhere.
"""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from pool.errors import PoolError
from pool.starter.spec import KeeperSpec

#: Directories that are never shown whole: people's homes, and those that the kernel makes for each process.
CLOSED = ("/home", "/root", "/proc", "/dev", "/sys", "/tmp", "/run", "/var")


class WrongPath(PoolError):
    """A path that cannot be shown to jobs."""


@dataclass(frozen=True, slots=True)
class ShownDirectory:
    """A directory that jobs see.

    Attributes:
        writable: they may write to it, too.
        uids, gids: whose jobs see it; everybody's if both are empty.
    """

    path: str
    writable: bool = False
    uids: frozenset[int] = frozenset()
    gids: frozenset[int] = frozenset()

    def is_for(self, uid: int, gids: Collection[int]) -> bool:
        """Whether jobs of this account see it."""
        return not (self.uids or self.gids) or uid in self.uids or not self.gids.isdisjoint(gids)


def shown(text: str) -> tuple[ShownDirectory, ...]:
    """The directories of the setting, between commas or blanks.

    Raises:
        WrongPath: one is relative, or holds what no job is to see, or names an account that there is not.
    """
    return tuple(map(_directory, text.replace(",", " ").split()))


def _directory(word: str) -> ShownDirectory:
    given, *more = word.split(":")
    path = os.path.normpath(given)
    if not os.path.isabs(path):
        raise WrongPath(f"SHOW_PATHS: {path} is not a path from the root", hint="begin it with /")
    if any(closed == path or closed.startswith(path.rstrip("/") + "/") for closed in CLOSED):
        raise WrongPath(
            f"SHOW_PATHS: {path} would show jobs what they are not to see",
            hint="name the directory below it that they need",
        )
    mode = more.pop(0) if more else "ro"
    if mode not in ("ro", "rw") or len(more) > 1:
        raise WrongPath(f"SHOW_PATHS: {word} cannot be read", hint="write PATH, PATH:rw, or PATH:rw:alice+%physics")
    accounts = [name for name in (more[0].split("+") if more else []) if name]
    if more and not accounts:
        raise WrongPath(f"SHOW_PATHS: {word} names nobody", hint="write PATH:rw:alice+%physics")
    if accounts and os.path.exists(path) and not os.path.isdir(path):
        raise WrongPath(f"SHOW_PATHS: {path} is no directory", hint="a file is shown to all jobs, or to none")
    uids = frozenset(_number(name) for name in accounts if not name.startswith("%"))
    gids = frozenset(_number(name) for name in accounts if name.startswith("%"))
    return ShownDirectory(path, mode == "rw", uids, gids)


def _number(name: str) -> int:
    """The number of a user, or of a group (`%name`)."""
    try:
        return grp.getgrnam(name[1:]).gr_gid if name.startswith("%") else pwd.getpwnam(name).pw_uid
    except KeyError:
        kind = "group" if name.startswith("%") else "user"
        raise WrongPath(
            f"SHOW_PATHS: there is no {kind} {name.lstrip('%')}", hint="users by name, groups as %NAME"
        ) from None


def without_others_directories(spec: KeeperSpec, directories: Sequence[ShownDirectory]) -> KeeperSpec:
    """A job's spec that hides the directories which are shown to others only."""
    if spec.isolation != "full":
        return spec
    groups = {spec.gid, *(os.getgroups() if spec.groups is None else spec.groups)}
    others = tuple(one.path for one in directories if not one.is_for(spec.uid, groups))
    return replace(spec, hidden=(*spec.hidden, *others)) if others else spec
