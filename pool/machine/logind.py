"""The desktop session's idle hint, as logind keeps it in files that anybody may read (no bus, no waiting).

/run/systemd/seats/NAME names the active session; /run/systemd/sessions/ID has IDLE= and IDLE_SINCE_HINT= (or the bus
only, on newer systems, where the hint is then not known and terminals and input devices have to do).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

MICRO = 1_000_000


class SessionIdle:
    """Looks at the sessions of the machine's seats."""

    def __init__(self, run: Path = Path("/run/systemd")) -> None:
        self._run = run

    async def start(self) -> None:
        """Nothing is kept open."""

    async def stop(self) -> None:
        """Nothing was kept open."""

    def idle_since(self) -> float | None:
        """Wall time since when every session at a seat is idle; None when there is no hint."""
        latest: float | None = None
        for session in self._sessions():
            hint = session.get("IDLE_SINCE_HINT") or session.get("IDLE_SINCE_HINT_REALTIME")
            if session.get("IDLE") is None or hint is None or not hint.isdigit():
                continue
            since = int(hint) / MICRO
            latest = since if latest is None else max(latest, since)
        return latest

    def _sessions(self) -> Iterator[dict[str, str]]:
        with contextlib.suppress(OSError):
            for path in sorted((self._run / "sessions").iterdir()):
                if path.suffix:
                    continue
                fields = _fields(path)
                if fields.get("SEAT"):
                    yield fields


def _fields(path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, equals, value = line.partition("=")
            if equals:
                found[name] = value
    return found
