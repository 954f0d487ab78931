"""The sensors of a machine, read together every few seconds. Nothing here waits, and nothing runs between two reads.

`read` answers with attributes by the names that job descriptions use. What a machine does not have (a desktop
session, a GPU, input devices) is simply not there. The owner's activity is the youngest of terminals, input devices
and the desktop session's idle hint; a hundred keystrokes a second cost nothing, since only access times are looked
at, once a reading.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import psutil

from pool.machine.activity import idle_seconds
from pool.machine.gpus import count_gpus
from pool.machine.load import JobLoad, runnable_in
from pool.machine.logind import SessionIdle

Facts = dict[str, Any]
#: Disk kept back from jobs on the file system of the scratch directories, KiB.
DISK_RESERVE = 64 * 1024


class Sensors(Protocol):
    """What a startd asks of its machine."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def read(self, wall: float) -> Facts:
        """Facts by attribute name; times in seconds, memory in MB, disk in KiB."""
        ...

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        """Say how to find the process numbers of the pool's own jobs' keepers."""
        ...


class LinuxSensors:
    """A real Linux machine.

    Args:
        directory: where scratch directories lie, for the free disk space.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._still = still_facts()
        self._session = SessionIdle()
        self._job_load = JobLoad()
        self._roots: Callable[[], Iterable[int]] = tuple

    async def start(self) -> None:
        await self._session.start()

    async def stop(self) -> None:
        await self._session.stop()

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        self._roots = roots

    def read(self, wall: float) -> Facts:
        """One reading: about a millisecond."""
        now = asyncio.get_running_loop().time()
        load = os.getloadavg()[0]
        roots = list(self._roots())
        own = self._job_load.sample(runnable_in(roots) if roots else 0, now)
        keyboard, console = idle_seconds(wall, self._session.idle_since())
        return {
            **self._still,
            "Disk": self._disk(),
            "LoadAvg": round(load, 2),
            "TotalLoadAvg": round(load, 2),
            "TotalCondorLoadAvg": round(min(own, load), 2),
            "KeyboardIdle": int(keyboard),
            "ConsoleIdle": int(console),
            "VirtualMemory": psutil.swap_memory().free // 1024,
        }

    def _disk(self) -> int:
        with contextlib.suppress(OSError):
            status = os.statvfs(self._directory)
            return max(0, status.f_bavail * status.f_frsize // 1024 - DISK_RESERVE)
        return 0


def still_facts() -> Facts:
    """What does not change while the machine is up."""
    cpus = len(os.sched_getaffinity(0))
    name, version = _distribution()
    facts: Facts = {
        "Arch": {"x86_64": "X86_64", "aarch64": "aarch64"}.get(platform.machine(), platform.machine()),
        "OpSys": "LINUX",
        "OpSysName": name,
        "OpSysMajorVer": version,
        "OpSysAndVer": f"{name}{version}",
        "KernelVersion": platform.release(),
        "Cpus": cpus,
        "DetectedCpus": os.cpu_count() or cpus,
        "TotalCpus": cpus,
        "Memory": _memory() // 2**20,
        "DetectedMemory": psutil.virtual_memory().total // 2**20,
    }
    gpus = count_gpus()
    if gpus:
        facts["GPUs"] = facts["DetectedGPUs"] = gpus
    return facts


def _memory() -> int:
    """Bytes of memory this process may use: the machine's, or its cgroup's where that has less."""
    total = psutil.virtual_memory().total
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(OSError, ValueError):
            return min(total, int(Path(name).read_text()))
    return total


def _distribution() -> tuple[str, int]:
    release: dict[str, str] = {}
    with contextlib.suppress(OSError):
        release = platform.freedesktop_os_release()
    name = release.get("NAME", "Linux").split()[0]
    major = release.get("VERSION_ID", "0").split(".")[0]
    return name, int(major) if major.isdigit() else 0
