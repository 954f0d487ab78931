"""The sensors of a machine that does not exist: a test sets what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


class FakeSensors:
    """Facts that a test changes.

    Attributes:
        facts: what `read` answers; change it while the pool runs.
        touched: wall time at which the owner last touched the keyboard, None for never.
    """

    def __init__(self, name: str, *, cpus: int = 1, memory: int = 4096) -> None:
        self.name = name
        self.touched: float | None = None
        self.facts: dict[str, Any] = {
            "Arch": "X86_64",
            "OpSys": "LINUX",
            "OpSysAndVer": "Debian12",
            "Cpus": cpus,
            "Memory": memory,
            "Disk": 10**7,
            "LoadAvg": 0.0,
            "TotalLoadAvg": 0.0,
            "TotalCondorLoadAvg": 0.0,
        }

    async def start(self) -> None:
        """There is nothing to start."""

    async def stop(self) -> None:
        """There is nothing to stop."""

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        """There are no processes."""

    def read(self, wall: float) -> dict[str, Any]:
        idle = int(wall - self.touched) if self.touched is not None else 10**6
        return {**self.facts, "KeyboardIdle": idle, "ConsoleIdle": idle}
