"""All sensors of a real machine together: what they say, that nothing waits, and what one reading opens."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pool.classad import ClassAd
from pool.machine import LinuxSensors, Sensors
from pool.machine.load import READS
from pool.machine.sensors import memory_left
from pool.policy.owner import OwnerPolicy

PAPERS = {"Memory", "Disk", "KeyboardIdle", "Cpus", "LoadAvg", "VirtualMemory", "Subnet"}  # EV 3.2
TODAYS = {
    "Arch", "OpSys", "OpSysAndVer", "OpSysMajorVer", "OpSysVer", "ConsoleIdle", "TotalLoadAvg", "TotalCondorLoadAvg",
    "DetectedCpus", "DetectedMemory", "TotalCpus", "TotalMemory", "MachineResources", "UtsnameRelease",
}  # fmt: skip


def orphan() -> int:
    """A busy process that is nobody's descendant any more."""
    script = (
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        print(os.getpid(), flush=True)\n        while True: pass\n    os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        return int(parent.stdout.readline())


def sleepers(number: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen(["sleep", "60"]) for _ in range(number)]


_PATHS: list[str] | None = None


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if _PATHS is not None and event in ("open", "os.listdir", "os.scandir"):
        _PATHS.append(str(arguments[0]))


sys.addaudithook(_note)


@contextmanager
def opened() -> Iterator[list[str]]:
    """The files and directories that this process opens meanwhile, as the interpreter itself tells of them."""
    global _PATHS
    paths: list[str] = []
    _PATHS = paths
    try:
        yield paths
    finally:
        _PATHS = None


@pytest.fixture
async def sensors(tmp_path: Path) -> AsyncIterator[LinuxSensors]:
    sensors = LinuxSensors(tmp_path, {"License": 3})
    await sensors.start()
    yield sensors
    await sensors.stop()


async def test_the_facts_of_this_machine(sensors: LinuxSensors) -> None:
    typed: Sensors = sensors
    facts = typed.read(time.time())
    assert facts.keys() >= PAPERS | TODAYS
    assert 1 <= facts["Cpus"] <= (os.cpu_count() or 1)
    assert 0 < facts["Memory"] <= facts["DetectedMemory"]
    assert facts["Disk"] > 0
    assert facts["License"] == 3
    assert facts["MachineResources"].endswith(" License")
    assert 0 <= facts["TotalCondorLoadAvg"] <= facts["TotalLoadAvg"]
    assert facts["LoadAvg"] == pytest.approx(facts["TotalLoadAvg"] - facts["TotalCondorLoadAvg"], abs=0.011)
    ClassAd(facts)


async def test_every_fact_that_the_shipped_policy_asks_for_is_there(sensors: LinuxSensors) -> None:
    policy = OwnerPolicy.from_shipped("desktop", {})
    slot = ClassAd({**sensors.read(time.time()), "Activity": "Busy", "EnteredCurrentActivity": 5})
    assert policy.faults(slot, None, time.time()) == []


async def test_the_pools_own_processes_are_told_apart(sensors: LinuxSensors) -> None:
    """A process that is not this one's descendant is the pool's when the startd says so."""
    busy = orphan()
    try:
        sensors.watch(lambda: [busy])
        sensors.read(time.time())
        assert sensors._trees._known[busy].running == 1
    finally:
        os.kill(busy, 9)


async def test_a_disk_that_is_not_there_is_no_disk(tmp_path: Path) -> None:
    assert LinuxSensors(tmp_path / "gone").read(time.time())["Disk"] == 0


async def test_nothing_stays_open(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        sensors = LinuxSensors(tmp_path)
        await sensors.start()
        sensors.read(time.time())
        await sensors.stop()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_reading_opens_a_bounded_number_of_files(sensors: LinuxSensors) -> None:
    """However many jobs there are: each is looked at in its turn, and none is left out for good."""
    jobs = sleepers(READS)
    roots = {job.pid for job in jobs}
    try:
        sensors.watch(lambda: roots)
        for _ in range(3):
            with opened() as paths:
                sensors.read(time.time())
            looks = [path for path in paths if re.match(r"/proc/\d+/task", path)]
            others = [path for path in paths if path not in looks]
            # Two files for each task, and the list of each process's tasks before them.
            assert len(looks) <= 2 * READS
            assert sorted(path for path in others if path.startswith("/proc/")) == ["/proc/loadavg", "/proc/meminfo"]
            assert len(others) == len(set(others))
        assert sensors._trees._known.keys() >= roots
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_memory_that_is_left(tmp_path: Path) -> None:
    text = "MemTotal: 5 kB\nSwapTotal: 9 kB\nMemAvailable: 2100 kB\nSwapFree:   7 kB\nDirty: 1 kB\n"
    (tmp_path / "meminfo").write_text(text)
    assert memory_left(tmp_path / "meminfo") == {"VirtualMemory": 7, "AvailableMemory": 2}
    assert memory_left(tmp_path / "none") == {"VirtualMemory": 0, "AvailableMemory": 0}
