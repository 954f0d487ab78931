"""Becoming a user for good: what a process does that is to work on that user's files and nobody else's (B5).

Such a process is started with posix_spawn: forking the node, as large as it is, would cost more than all it does.
"""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterable

import pool
from pool.errors import PoolError

#: The descriptor at which a process that was started so finds its socket.
SOCKET = 3


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Turn into the user, irrevocably; Python's modules stay within reach.

    Raises:
        RuntimeError: that did not hold.
    """
    if os.geteuid() == 0 and uid != 0:
        _open_module_directories()
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    if set(os.getresuid()) != {uid}:
        raise RuntimeError(f"this process runs as {os.getresuid()}, not as {uid}")
    if uid != 0:
        try:
            os.setresuid(0, 0, 0)
        except PermissionError:
            return
        raise RuntimeError("root could be regained")


def _open_module_directories() -> None:
    """Open the directories of Python's modules, and look for modules there by descriptor from now on.

    Python imports some modules at their first use (`encodings.idna`, `bz2`). The user may not be able to go where they
    lie: root's Python may be below /root. A name below /proc/self/fd goes through none of the directories above
    (proc(5)).
    """
    opened: dict[str, str] = {}

    def by_descriptor(directory: str) -> str:
        if directory not in opened:
            try:
                fd = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            except OSError:  # no directory: an archive of modules, or not there
                opened[directory] = directory
            else:
                opened[directory] = f"/proc/self/fd/{fd}"
        return opened[directory]

    sys.path[:] = [by_descriptor(directory) for directory in sys.path]
    for module in list(sys.modules.values()):
        if isinstance(path := getattr(module, "__path__", None), list):
            path[:] = [by_descriptor(directory) for directory in path]


def identity_of(owner: str, user: str | None) -> tuple[int, int, list[int]]:
    """The account of a process that works on a user's files: user id, group id, groups.

    Args:
        user: the name that this process's own user goes by.

    Raises:
        PoolError: this process may not become that user, or there is none.
    """
    own = os.geteuid()
    if owner == user:
        return own, os.getegid(), os.getgroups()
    if own != 0:
        raise PoolError(
            f"cannot use the files of {owner}: this node runs as {user or own}",
            hint="submit as that user, or run the schedd as root to serve several users",
        )
    try:
        entry = pwd.getpwnam(owner)
    except KeyError:
        raise PoolError(
            f"cannot use the files of {owner}: there is no such user on this machine",
            hint="submit from a machine where that user exists",
        ) from None
    return entry.pw_uid, entry.pw_gid, os.getgrouplist(owner, entry.pw_gid)


def file_tree_seen() -> str:
    """The identity of a file tree: two processes with the same answer see the same files; empty where it is unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            boot = file.read().strip()
        return f"{boot}:{os.stat('/proc/self/ns/mnt').st_ino}:{os.stat('/').st_ino}"
    except OSError:
        return ""


def start_as(module: str, their_socket: int, identity: Iterable[int]) -> int:
    """Start a module with its end of a socket at descriptor 3, and whom to become on its command line: its process id.

    Raises:
        OSError: it cannot be started.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(pool.__file__)))
    command = [sys.executable, "-s", "-P", "-m", module, *map(str, identity)]
    nothing = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    # Out of the way first: the socket may be descriptor 3 already, which dup2 would then leave close-on-exec.
    spare = os.dup(their_socket)
    try:
        return os.posix_spawn(
            sys.executable,
            command,
            {"PYTHONPATH": home, "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, nothing, 0),
                (os.POSIX_SPAWN_DUP2, nothing, 1),
                (os.POSIX_SPAWN_DUP2, spare, SOCKET),
            ],
            setsid=True,
        )
    finally:
        os.close(spare)
        os.close(nothing)
