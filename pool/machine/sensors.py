"""The sensors of a machine, read together every few seconds. Nothing here waits, and nothing runs between two reads.

`read` answers with attributes by the names that job descriptions use. A part that a machine lacks (a desktop session, a
GPU, input devices) is simply not there.

The machine's load is `TotalLoadAvg`, the pool's part of it `TotalCondorLoadAvg`, and what is left the owner's.
`LoadAvg` is the owner's alone; the startd adds to each slot's what its job causes (`loads`), so that
`LoadAvg - CondorLoadAvg` means the same in every slot's ad.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import psutil

from pool.jobs.huge_pages import HUGE_PAGES
from pool.machine.activity import UserActivity
from pool.machine.gpus import facts_of, find_gpus
from pool.machine.huge_pages import offered_huge_pages
from pool.machine.limits import usable_cpus, usable_memory
from pool.machine.load import Count, Loads, OwnerLoad, ProcessTrees, running_tasks
from pool.machine.logind import SessionIdle
from pool.machine.system import subnet, this_system

Facts = dict[str, Any]
#: Disk kept back from jobs on the file system of the scratch directories, KiB.
DISK_RESERVE = 64 * 1024


class Sensors(Protocol):
    """The measurements that a startd asks of its machine."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...

    def read(self, wall: float) -> Facts:
        """Facts by attribute name; times in seconds, memory in MB, disk in KiB."""
        ...

    def loads(self) -> Mapping[int, float]:
        """The load of each of the pool's own jobs at the last reading, by its keeper's process number."""
        ...

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        """Say how to find the process numbers of the pool's own jobs' keepers."""
        ...

    def subscribe(self, changed: Callable[[], None]) -> bool:
        """Report each change that time alone does not bring; False where only reading shows changes."""
        ...


class LinuxSensors:
    """A real Linux machine.

    Args:
        directory: where scratch directories lie, for the free disk space.
        resources: resources of the machine's own by name and amount, beside those that are found.
    """

    def __init__(self, directory: Path, resources: Mapping[str, int | float] | None = None) -> None:
        self._directory = directory
        self._still = still_facts(resources or {})
        self._activity = UserActivity()
        self._session = SessionIdle()
        self._owner = OwnerLoad()
        self._trees = ProcessTrees()
        self._jobs = Loads()
        self._loads: dict[int, float] = {}
        self._roots: Callable[[], Iterable[int]] = tuple

    async def start(self) -> None:
        await self._session.start()

    async def stop(self) -> None:
        await self._session.stop()
        self._activity.close()

    def watch(self, roots: Callable[[], Iterable[int]]) -> None:
        """Descendants of this process are the pool's own in any case; these are beside that."""
        self._roots = roots

    def subscribe(self, changed: Callable[[], None]) -> bool:
        return False

    def loads(self) -> Mapping[int, float]:
        return self._loads

    def read(self, wall: float) -> Facts:
        """One reading: about a millisecond."""
        now = asyncio.get_running_loop().time()
        keyboard, console = self._activity.idle_times(wall, now, self._session.idle(now))
        return {
            **self._still,
            **self._load(now),
            "Disk": self._disk(),
            **memory_left(),
            "KeyboardIdle": int(keyboard),
            "ConsoleIdle": int(console),
        }

    def _load(self, now: float) -> Facts:
        whole = os.getloadavg()[0]
        # At one moment as nearly as can be: first all tasks, then the pool's. This process runs whenever it looks.
        running = running_tasks()
        own = self._trees.count((os.getpid(), *self._roots()))
        own = Count(max(0.0, own.running - 1), own.waiting)
        self._loads = self._jobs.sample(self._trees.by_root, now)
        owner = self._owner.sample(whole, max(0.0, running - 1), own, now)
        return {
            "TotalLoadAvg": round(whole, 2),
            "TotalCondorLoadAvg": round(max(0.0, whole - owner), 2),
            "LoadAvg": round(owner, 2),
        }

    def _disk(self) -> int:
        try:
            status = os.statvfs(self._directory)
        except OSError:
            return 0
        return max(0, status.f_bavail * status.f_frsize // 1024 - DISK_RESERVE)


def still_facts(resources: Mapping[str, int | float]) -> Facts:
    """The attributes that do not change while the machine is up."""
    memory = psutil.virtual_memory().total
    cpus = usable_cpus(len(os.sched_getaffinity(0)))
    gpus = find_gpus(os.environ)
    facts: Facts = {
        **this_system(),
        "Cpus": cpus,
        "DetectedCpus": os.cpu_count() or cpus,
        "TotalCpus": cpus,
        "Memory": usable_memory(memory) // 2**20,
        "TotalMemory": usable_memory(memory) // 2**20,
        "DetectedMemory": memory // 2**20,
        HUGE_PAGES: offered_huge_pages(),
        "Subnet": own_subnet(),
        **resources,
    }
    facts |= facts_of(gpus)
    facts["MachineResources"] = " ".join(("Cpus", "Memory", "Disk", *(("GPUs",) if gpus else ()), *resources))
    return facts


def own_subnet() -> str:
    """The network that this machine is on (EV 3.2): that of its first address that others can reach."""
    for addresses in psutil.net_if_addrs().values():
        for one in addresses:
            if one.family.name == "AF_INET" and one.netmask and not one.address.startswith("127."):
                return subnet(one.address, one.netmask)
    return ""


def memory_left(meminfo: Path = Path("/proc/meminfo")) -> Facts:
    """VirtualMemory: swap space that is free, KiB (EV 3.2). AvailableMemory: what could be had without taking it from
    anybody, MB.
    """
    try:
        text = meminfo.read_text()
    except OSError:
        text = ""
    return {"VirtualMemory": _kib("SwapFree:", text), "AvailableMemory": _kib("MemAvailable:", text) // 1024}


def _kib(name: str, text: str) -> int:
    _, found, rest = text.partition(name)
    return int(rest.split(maxsplit=1)[0]) if found else 0
