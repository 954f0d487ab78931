"""How much of the machine this process may use: processors by affinity and quota, memory by limit, whichever is least.

Control groups of both versions are read, from the process's own up to the root of what it can see, since each one above
limits those below. Within a container the path that the kernel reports may not exist under the container's own mount;
then the mount itself is the group.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from pool.decimals import has_digits_only

#: A version 1 group without memory limit says this many bytes or more.
_UNLIMITED = 1 << 60


def usable_cpus(affinity: int, root: Path = Path("/")) -> int:
    """Whole processors, at least one."""
    quotas = [*_v2(root, _cpu_max), *_v1(root, "cpu", _cpu_quota)]
    return max(1, min([affinity, *(int(quota) for quota in quotas)]))


def usable_memory(total: int, root: Path = Path("/")) -> int:
    """Bytes."""
    limits = [*_v2(root, _memory_max), *_v1(root, "memory", _memory_limit)]
    return int(min([total, *limits]))


def _v2(root: Path, read: Callable[[Path], float | None]) -> Iterator[float]:
    mount = root / "sys/fs/cgroup"
    if not (mount / "cgroup.controllers").exists():
        mount = mount / "unified"
    yield from _limits_upwards(mount, _own_group(root, ""), read)


def _v1(root: Path, controller: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    mount = root / "sys/fs/cgroup" / controller
    if mount.exists():
        yield from _limits_upwards(mount, _own_group(root, controller), read)


def _limits_upwards(mount: Path, group: str, read: Callable[[Path], float | None]) -> Iterator[float]:
    """The limits of each group from the own one up to the mount."""
    path = Path(os.path.normpath(f"{mount}/{group}"))
    if not path.is_dir() or not path.is_relative_to(mount):
        path = mount
    while True:
        found = read(path)
        if found is not None:
            yield found
        if path == mount:
            return
        path = path.parent


def _own_group(root: Path, controller: str) -> str:
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller in controllers.split(","):
            return path
    return "/"


def _cpu_max(group: Path) -> float | None:
    words = _text(group / "cpu.max").split()
    if len(words) != 2 or not (has_digits_only(words[0]) and has_digits_only(words[1])) or not int(words[1]):
        return None
    return int(words[0]) / int(words[1])


def _cpu_quota(group: Path) -> float | None:
    quota, period = _text(group / "cpu.cfs_quota_us").strip(), _text(group / "cpu.cfs_period_us").strip()
    return int(quota) / int(period) if has_digits_only(quota) and has_digits_only(period) and int(period) else None


def _memory_max(group: Path) -> float | None:
    limit = _text(group / "memory.max").strip()
    return int(limit) if has_digits_only(limit) else None


def _memory_limit(group: Path) -> float | None:
    limit = _text(group / "memory.limit_in_bytes").strip()
    return int(limit) if has_digits_only(limit) and int(limit) < _UNLIMITED else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
