"""SHOW_PATHS: which directories of this machine every job of isolation 'full' sees, read-only, beside the system's.

For interpreters and libraries that lie elsewhere: a shared conda, /opt's neighbours, a software tree on a file server.
"""

from __future__ import annotations

import os

from pool.errors import PoolError

#: Directories that are never shown whole: people's homes, and those that the kernel makes for each process.
CLOSED = ("/home", "/root", "/proc", "/dev", "/sys", "/tmp", "/run", "/var")


class WrongPath(PoolError):
    """A path that cannot be shown to jobs."""


def shown(text: str) -> tuple[str, ...]:
    """The paths of the setting, between commas or blanks.

    Raises:
        WrongPath: one is relative, or holds what no job is to see.
    """
    paths = tuple(os.path.normpath(word) for word in text.replace(",", " ").split())
    for path in paths:
        if not os.path.isabs(path):
            raise WrongPath(f"SHOW_PATHS: {path} is not a path from the root", hint="begin it with /")
        if any(closed == path or closed.startswith(path.rstrip("/") + "/") for closed in CLOSED):
            raise WrongPath(
                f"SHOW_PATHS: {path} would show jobs what they are not to see",
                hint="name the directory below it that they need",
            )
    return paths
