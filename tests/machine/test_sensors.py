"""All sensors of a real machine together: what they say, that nothing waits, and what one reading costs."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pool.classad import ClassAd
from pool.machine import LinuxSensors, Sensors
from pool.machine.sensors import free_swap
from pool.policy.owner import Policy

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
    policy = Policy.of("desktop", {})
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


async def test_one_reading_is_well_under_five_milliseconds(sensors: LinuxSensors) -> None:
    """Of the processor, which does not depend on who else uses this machine; the best of some, beside fifty jobs."""
    jobs = sleepers(50)
    try:
        sensors.watch(lambda: [job.pid for job in jobs])
        costs = []
        for _ in range(20):
            before = resource.getrusage(resource.RUSAGE_SELF)
            sensors.read(time.time())
            after = resource.getrusage(resource.RUSAGE_SELF)
            costs.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        assert min(costs) < 0.0025
    finally:
        for job in jobs:
            job.kill()
            job.wait()


def test_swap(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 5 kB\nSwapTotal: 9 kB\nSwapFree:   7 kB\nDirty: 1 kB\n")
    assert free_swap(tmp_path / "meminfo") == 7
    assert free_swap(tmp_path / "none") == 0
