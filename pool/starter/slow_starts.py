"""A start that takes long: the log says once how far it has come, and where its keeper and the fork server stand."""

from __future__ import annotations

import contextlib
import logging
from typing import Any

from pool.starter.cells import Directory
from pool.starter.handle import NativeKeeper

log = logging.getLogger("pool.starter")

#: Seconds after which a start is said to take long.
SLOW = 10.0


def log_slow(directory: Directory, keeper: NativeKeeper, fork_server: int) -> None:
    """Log how far the start of a keeper's job has come, if it has not come to its end by now."""
    if keeper.starting.done() or directory.fd < 0:
        return
    cell = directory.read(keeper.cell)
    said: dict[str, Any] = {"job": keeper.id, "seconds": SLOW, "fork_server": _describe_process(fork_server)}
    if cell is None or cell.number != keeper.number:
        said["keeper"] = (
            "none has taken it" if not keeper.reused else f"has not read it: {_describe_process(keeper.reused)}"
        )
    else:
        said["keeper"] = _describe_process(cell.pid) if cell.pid else "was not made yet"
    log.warning("a start takes long", extra=said)


def _describe_process(pid: int) -> str:
    """A process with its state, the system call that it is in, and where in the kernel it sleeps."""
    found = [str(pid)]
    for name in ("stat", "syscall", "wchan"):
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/{name}", encoding="utf-8", errors="replace") as file:
                text = file.read()
            found.append(text.rpartition(") ")[2].split(" ")[0] if name == "stat" else text.split(" ")[0].strip())
    return " ".join(found)
