"""The limits of a process on its machine: control groups of both versions, within containers and without."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from pool.machine.limits import usable_cpus, usable_memory

GB = 2**30


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text + "\n")


@pytest.fixture
def second(tmp_path: Path) -> Path:
    """A machine with control groups of version 2, and this process in /user/ada."""
    put(tmp_path, "sys/fs/cgroup/cgroup.controllers", "cpu memory")
    put(tmp_path, "proc/self/cgroup", "0::/user/ada")
    put(tmp_path, "sys/fs/cgroup/user/ada/cpu.max", "max 100000")
    put(tmp_path, "sys/fs/cgroup/user/ada/memory.max", "max")
    return tmp_path


def test_without_limits_all_is_usable(second: Path, tmp_path: Path) -> None:
    assert (usable_cpus(8, second), usable_memory(16 * GB, second)) == (8, 16 * GB)
    assert (usable_cpus(8, tmp_path / "x"), usable_memory(16 * GB, tmp_path / "x")) == (8, 16 * GB)


def test_limits_of_the_own_group_and_of_those_above_hold(second: Path) -> None:
    put(second, "sys/fs/cgroup/user/ada/cpu.max", "650000 100000")
    put(second, "sys/fs/cgroup/user/memory.max", str(4 * GB))
    assert (usable_cpus(8, second), usable_memory(16 * GB, second)) == (6, 4 * GB)
    put(second, "sys/fs/cgroup/user/cpu.max", "200000 100000")
    put(second, "sys/fs/cgroup/user/ada/memory.max", str(2 * GB))
    assert (usable_cpus(8, second), usable_memory(16 * GB, second)) == (2, 2 * GB)
    assert usable_cpus(1, second) == 1


def test_a_part_of_a_processor_is_one(second: Path) -> None:
    put(second, "sys/fs/cgroup/user/ada/cpu.max", "50000 100000")
    assert usable_cpus(8, second) == 1


def test_a_container_whose_path_is_the_hosts(second: Path) -> None:
    put(second, "proc/self/cgroup", "0::/docker/0123")
    put(second, "sys/fs/cgroup/memory.max", str(GB))
    put(second, "sys/fs/cgroup/cpu.max", "300000 100000")
    assert (usable_cpus(8, second), usable_memory(16 * GB, second)) == (3, GB)


def test_a_path_that_leaves_its_mount_does_not_mislead(second: Path) -> None:
    put(second, "proc/self/cgroup", "0::/../../..")
    assert usable_cpus(8, second) == 8


def test_the_first_version(tmp_path: Path) -> None:
    put(tmp_path, "proc/self/cgroup", "4:memory:/a/b\n2:cpu,cpuacct:/a\n0::/")
    put(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "250000")
    put(tmp_path, "sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000")
    put(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1")
    put(tmp_path, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", str(3 * GB))
    put(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712")
    assert (usable_cpus(8, tmp_path), usable_memory(16 * GB, tmp_path)) == (2, 3 * GB)
    put(tmp_path, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712")
    assert usable_memory(16 * GB, tmp_path) == 16 * GB


@pytest.mark.parametrize("nonsense", ["", "many 3", "1", "5 0", "\x00"])
def test_nonsense_is_no_limit(second: Path, nonsense: str) -> None:
    put(second, "sys/fs/cgroup/user/ada/cpu.max", nonsense)
    put(second, "sys/fs/cgroup/user/ada/memory.max", nonsense or "max")
    assert usable_cpus(8, second) == 8


def test_this_machine() -> None:
    cpus, total = len(os.sched_getaffinity(0)), psutil.virtual_memory().total
    assert 1 <= usable_cpus(cpus) <= cpus
    assert 0 < usable_memory(total) <= total
