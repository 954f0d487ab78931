"""Starts that take long: which of them they are, and for the log how far one has come.

One timer serves all starts, and only while there are any: a short job would pay more for timers of its own than for the
message that starts it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pool.starter.cells import Directory
from pool.starter.handle import NativeKeeper

log = logging.getLogger("pool.starter")

#: Seconds after which a start is said to take long.
SLOW = 10.0
#: Seconds between two looks at the starts that are under way.
LOOK = 0.5


@dataclass(slots=True)
class _Start:
    """One start that is under way.

    Attributes:
        until: when its lease is over for good; None without one.
        sent: when it was sent; None before.
        slow: whether it was said to be slow.
    """

    keeper: NativeKeeper
    until: float | None
    sent: float | None = None
    slow: bool = False


class StartWatch:
    """The starts that are under way. Each is looked at every half second.

    Args:
        most: seconds from when a start is sent until a keeper must have it.
        slow: called once with one that was sent `SLOW` seconds ago.
        late: called once with one that was sent `most` seconds ago.
        over: called once with one whose lease has ended: its keeper may hang, and then does not look at its lease.
    """

    def __init__(
        self,
        most: float,
        *,
        slow: Callable[[NativeKeeper], None],
        late: Callable[[NativeKeeper], None],
        over: Callable[[NativeKeeper], None],
    ) -> None:
        self._most = most
        self._slow = slow
        self._late = late
        self._over = over
        self._loop = asyncio.get_running_loop()
        self._starts: dict[int, _Start] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, keeper: NativeKeeper, lease: float | None) -> None:
        """A start begins; `lease`: seconds after which `over` is called, None for never."""
        self._starts[keeper.number] = _Start(keeper, None if lease is None else self._loop.time() + lease)
        if self._timer is None:
            self._timer = self._loop.call_later(LOOK, self._check_starts)

    def sent(self, keeper: NativeKeeper) -> None:
        """It was sent, for the first time or again."""
        start = self._starts.get(keeper.number)
        if start is not None:
            start.sent, start.slow = self._loop.time(), False

    def renew(self, keeper: NativeKeeper, lease: float) -> None:
        """The lease of one that has one ends later."""
        start = self._starts.get(keeper.number)
        if start is not None and start.until is not None:
            start.until = self._loop.time() + lease

    def drop(self, keeper: NativeKeeper) -> None:
        """It is over, or nobody waits for it any more."""
        self._starts.pop(keeper.number, None)

    def close(self) -> None:
        """Look at nothing any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._starts.clear()

    def _check_starts(self) -> None:
        self._timer, now = None, self._loop.time()
        for start in list(self._starts.values()):
            if start.until is not None and now >= start.until:
                start.until = None
                self._over(start.keeper)
            if start.sent is None:
                continue
            if not start.slow and now >= start.sent + SLOW:
                start.slow = True
                self._slow(start.keeper)
            if now >= start.sent + self._most:
                start.sent = None
                self._late(start.keeper)
        if self._starts:
            self._timer = self._loop.call_later(LOOK, self._check_starts)


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
