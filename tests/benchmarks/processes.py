"""The cost of processes, read from /proc: memory, processor time, children.

Knows nothing of the pool.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> tuple[int, int]:
    """(resident, proportional) bytes of one process; zeros when it is gone."""
    found = {"Rss": 0, "Pss": 0}
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            name, _, rest = line.partition(":")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    except (OSError, ValueError):
        return 0, 0
    return found["Rss"], found["Pss"]


def private(pid: int) -> int:
    """Bytes that only this process holds."""
    total = 0
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith(("Private_Clean:", "Private_Dirty:")):
                total += int(line.split()[1]) * 1024
    except OSError:
        return 0
    return total


def processor_seconds(pid: int) -> float:
    """User and system seconds of one process so far, without its children."""
    try:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


def children(pid: int) -> list[int]:
    """The processes below one, itself first."""
    parents: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for known in found:
        found.extend(parents.get(known, ()))
    return found


def anonymous(pid: int) -> int:
    """Bytes of a process's anonymous memory: what its program allocated, without the libraries it maps."""
    try:
        for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0
