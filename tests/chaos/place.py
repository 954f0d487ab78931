"""The place of real pools: a mount for their disks, the socket of reports, and the program that reports."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.chaos.reports import Reports

#: Where the pools' disks are mounted, in a mount namespace of its own: short, for the names of sockets.
PLACE = Path("/mnt/chaos")


def mounted() -> Reports:
    """Mount the place, and listen there to what jobs report."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "chaos", str(PLACE.parent)], check=True)
    (PLACE / "reports").mkdir(parents=True)
    reports = Reports(PLACE / "reports" / "socket")
    reports.listen()
    return reports


def compiled_reporter(directory: Path) -> Path:
    """Compile the program of the jobs (`reporter.c`) into a directory."""
    program = directory / "reporter"
    source = Path(__file__).with_name("reporter.c")
    subprocess.run(["cc", "-static", "-O1", "-o", str(program), str(source)], check=True)
    return program
