"""Becoming a user for good: what a process does that is to work on that user's files and nobody else's (B5)."""

from __future__ import annotations

import os


def become(uid: int, gid: int, groups: list[int]) -> None:
    """Turn into the user, irrevocably. Raises RuntimeError where that did not hold."""
    if os.geteuid() == 0 and uid != 0:
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
