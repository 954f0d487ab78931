"""How long nobody has touched this machine: terminals, pseudo-terminals, keyboard and mouse (A4; EV 3.2).

Looked at once an evaluation and never in between, so that a hundred keystrokes a second cost what none cost:

    terminals     the access time of /dev/tty* and /dev/pts/*, which moves when what was typed is read. The kernel
                  notes it in steps of eight seconds
    interrupts    the count of the keyboard controller's, in /sys/kernel/irq. Everybody may read it; USB keyboards have
                  no interrupt of their own
    input events  /dev/input/event* of keyboards and pointers, where this process may open them (root, group `input`).
                  Waiting events are thrown away unseen: only their presence counts

Events of keyboard and mouse before the first look are unknown, and the owner may be there: that counts as a touch at
that time. A change is dated by monotonic time, so that a clock that is set does neither hide the owner nor invent one.
Only the first look at a terminal has to trust the wall clock. A time stamp that is later than the last look counts as a
touch even if it was there before. A clock that was set back cannot tell it from a new one, and the owner may be there.
Serial lines to instruments (ttyUSB and the like) say nothing of a person and are left out.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

#: Seconds of idleness that are reported at most: nobody was ever seen.
FOREVER = 10**7
#: Seconds between two times that the kernel notes for a terminal.
GRAIN = 8.0
_TERMINAL = re.compile(r"(tty(S|AMA)?[0-9]+|hvc[0-9]+|console)")
_KEYS = ("i8042", "keyboard", "mouse", "touchpad", "hid")
#: Looks after which devices that were plugged in are found.
AGAIN = 12


class LastChanges:
    """When something last changed, by monotonic time. Pure: what is seen and both clocks are handed in."""

    def __init__(self) -> None:
        self._seen: dict[str, float] = {}
        self._youngest: float | None = None
        self._looked = 0.0

    def read_stamps(self, stamps: Mapping[str, float], wall: float, now: float) -> None:
        """Take in the time stamps (wall, seconds) of all that can be touched."""
        for name, stamp in stamps.items():
            known = self._seen.get(name)
            age = max(0.0, wall - stamp)
            # A clock that was set back may give a new touch the time stamp that was there already.
            if known == stamp and not 0.0 <= wall - stamp < now - self._looked:
                continue
            if known is not None and age > now - self._looked + GRAIN:
                age = 0.0  # it changed since the last look: the clock was set
            self.touched(now - age)
        self._seen = dict(stamps)
        self._looked = now

    def touched(self, when: float) -> None:
        """Something was touched at a (monotonic) time."""
        self._youngest = when if self._youngest is None else max(self._youngest, when)

    def idle(self, now: float) -> float:
        """Seconds since the last touch."""
        return FOREVER if self._youngest is None else min(max(0.0, now - self._youngest), FOREVER)


class Terminals:
    """The terminals of a machine: those of its own console, and all others."""

    def __init__(self, devices: Path = Path("/dev")) -> None:
        self._devices = devices
        self._console, self._all = LastChanges(), LastChanges()

    def last_input(self, wall: float, now: float) -> None:
        """Stat each terminal once."""
        console = dict(self._stamps(self._devices, _TERMINAL))
        lines = dict(self._stamps(self._devices / "pts", re.compile(r"[0-9]+")))
        self._console.read_stamps(console, wall, now)
        self._all.read_stamps(console | lines, wall, now)

    def idle(self, now: float) -> tuple[float, float]:
        """Seconds since anybody typed anywhere, and at the machine itself."""
        return self._all.idle(now), self._console.idle(now)

    @staticmethod
    def _stamps(directory: Path, names: re.Pattern[str]) -> Iterator[tuple[str, float]]:
        with contextlib.suppress(OSError), os.scandir(directory) as entries:
            for entry in entries:
                if names.fullmatch(entry.name):
                    with contextlib.suppress(OSError):
                        yield entry.path, entry.stat().st_atime


class KeyInterrupts:
    """Interrupts of keyboard and mouse controllers. Which lines are theirs is looked up once."""

    def __init__(self, kernel: Path = Path("/sys/kernel/irq")) -> None:
        self._counters = [line / "per_cpu_count" for line in _listed(kernel) if _is_keys(line / "actions")]
        self._last: list[str] | None = None

    def has_input(self) -> bool:
        """Whether there was an interrupt since the last time this was asked; at the first time there may have been."""
        if not self._counters:
            return False
        counts = [_read(path) for path in self._counters]
        moved = counts != self._last
        self._last = counts
        return moved


class InputEvents:
    """Event devices of keyboards and pointers, those that may be opened."""

    def __init__(self, devices: Path = Path("/dev/input"), system: Path = Path("/sys/class/input")) -> None:
        self._devices = devices
        self._system = system
        self._open: dict[str, int] = {}
        self._until_again = 0

    def has_input(self) -> bool:
        """Whether events waited; they are gone then. Never waits itself. Of a new device some may be gone already."""
        known = set(self._open)
        if self._until_again <= 0:
            self._find()
            self._until_again = AGAIN
        self._until_again -= 1
        moved = False
        for name, descriptor in list(self._open.items()):
            try:
                while os.read(descriptor, 16384):
                    moved = True
                self._drop(name)
            except BlockingIOError:
                moved = moved or name not in known
            except OSError:
                self._drop(name)
        return moved

    def close(self) -> None:
        """Let the devices go."""
        for name in list(self._open):
            self._drop(name)

    def _find(self) -> None:
        for path in _listed(self._devices):
            if path.name in self._open or not path.name.startswith("event") or not self._is_a_persons(path.name):
                continue
            with contextlib.suppress(OSError):
                self._open[path.name] = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def _is_a_persons(self, name: str) -> bool:
        """A keyboard repeats keys (event type 20); the kernel gives a mouse, touchpad or tablet a `mouse` node."""
        device = self._system / name / "device"
        with contextlib.suppress(ValueError):
            if int(_read(device / "capabilities" / "ev").split()[-1] or "0", 16) >> 20 & 1:
                return True
        return any(path.name.startswith("mouse") for path in _listed(device))

    def _drop(self, name: str) -> None:
        os.close(self._open.pop(name))


class UserActivity:
    """All signs of a person together.

    Args:
        root: of the file system, for tests.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._terminals = Terminals(root / "dev")
        self._interrupts = KeyInterrupts(root / "sys/kernel/irq")
        self._events = InputEvents(root / "dev/input", root / "sys/class/input")
        self._hands = LastChanges()

    def idle_times(self, wall: float, now: float, session_idle: float | None = None) -> tuple[float, float]:
        """KeyboardIdle and ConsoleIdle, seconds: any terminal or the machine itself; the machine itself only.

        Args:
            wall, now: wall and monotonic time.
            session_idle: seconds for which the desktop session says it was not used; None where it does not say.
        """
        self._terminals.last_input(wall, now)
        # Both are asked every time: each remembers what it saw.
        if self._interrupts.has_input() | self._events.has_input():
            self._hands.touched(now)
        everywhere, console = self._terminals.idle(now)
        console = min(console, self._hands.idle(now), FOREVER if session_idle is None else session_idle)
        return min(everywhere, console), console

    def close(self) -> None:
        """Keep nothing open."""
        self._events.close()


def _is_keys(actions: Path) -> bool:
    reported = _read(actions).lower()
    return any(name in reported for name in _KEYS)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return "0"


def _listed(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []
