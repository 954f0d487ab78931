"""How long nobody has touched this machine: terminals, pseudo-terminals, input devices, the desktop session.

A terminal's access time moves when something is read from it, which is when somebody types. Input devices have no
such time; their interrupts are counted in /proc/interrupts, and a count that moved is activity.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

#: Seconds of idleness that are told at most: nobody was ever seen.
FOREVER = 10**7
_CONSOLE = ("tty", "console")


def terminal_idle(wall: float, devices: Path = Path("/dev")) -> tuple[float, float]:
    """Seconds since anybody typed at any terminal, and at a console of the machine itself."""
    everywhere = console = float(FOREVER)
    for path in _terminals(devices):
        with contextlib.suppress(OSError):
            idle = max(0.0, wall - os.stat(path).st_atime)
            everywhere = min(everywhere, idle)
            if path.parent == devices:
                console = min(console, idle)
    return everywhere, console


def idle_seconds(wall: float, session_since: float | None) -> tuple[float, float]:
    """KeyboardIdle and ConsoleIdle: any terminal or the desktop session; the machine's own keyboard only.

    Args:
        session_since: wall time since when the desktop session is idle, the present while it is used, None without one.
    """
    everywhere, console = terminal_idle(wall)
    devices = _INPUT.idle(wall)
    console = min(console, devices)
    if session_since is not None:
        console = min(console, max(0.0, wall - session_since))
    return min(everywhere, console), console


class InputDevices:
    """Keyboard and mouse by their interrupts."""

    NAMES = ("i8042", "keyboard", "mouse", "hid")

    def __init__(self, source: Path = Path("/proc/interrupts")) -> None:
        self._source = source
        self._last: int | None = None
        self._moved = 0.0

    def idle(self, wall: float) -> float:
        """Seconds since the count last moved, as seen by these readings; a great many where there is no device."""
        count = self._count()
        if count is None:
            return float(FOREVER)
        if self._last is not None and count != self._last:
            self._moved = wall
        self._last = count
        return max(0.0, wall - self._moved) if self._moved else float(FOREVER)

    def _count(self) -> int | None:
        try:
            text = self._source.read_text()
        except OSError:
            return None
        total: int | None = None
        for line in text.splitlines():
            lowered = line.lower()
            if any(name in lowered for name in self.NAMES):
                numbers = [int(word) for word in line.split()[1:] if word.isdigit()]
                total = (total or 0) + sum(numbers)
        return total


_INPUT = InputDevices()


def _terminals(devices: Path) -> Iterable[Path]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(devices):
            name = entry.name
            if name.startswith(_CONSOLE) and name not in ("tty", "ttyprintk"):
                yield Path(entry.path)
    with contextlib.suppress(OSError):
        for entry in os.scandir(devices / "pts"):
            if entry.name.isdigit():
                yield Path(entry.path)
