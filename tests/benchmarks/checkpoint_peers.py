"""CRIU (as root) and DMTCP on the same program as the `checkpoint` benchmark's, where they are installed.

Neither copies what it saves: the program stands still for as long as its image takes to write.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SHOWN_NOTHING: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/local/sbin", "/usr/sbin", "/sbin"))
PATIENCE = 120.0


@dataclass(frozen=True)
class Measured:
    """Seconds that a peer took to write its image, and to have the program running again from it."""

    peer: str
    dump: float
    restore: float


def measured(place: Path, program: Path, megabytes: int) -> list[Measured]:
    """Each peer that is installed and works on this kernel."""
    return [found for peer in (_criu, _dmtcp) if (found := peer(place, program, megabytes))]


def _until(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def _ready(out: Path) -> bool:
    return out.exists() and "ready" in out.read_text()


@contextmanager
def _running(command: list[str | Path], out: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose memory is full when the block begins; killed at its end."""
    with out.open("wb") as file:
        job = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
    try:
        _until(lambda: _ready(out))
        yield job
    finally:
        job.kill()
        job.wait()


def _timed(*command: str | Path) -> float | None:
    """Seconds; None where it fails."""
    began = time.perf_counter()
    done = subprocess.run(command, **SHOWN_NOTHING)
    return None if done.returncode else time.perf_counter() - began


def _criu(place: Path, program: Path, megabytes: int) -> Measured | None:
    criu = shutil.which("criu", path=PATH)
    if criu is None or os.getuid():
        return None
    image = place / f"criu{megabytes}"
    image.mkdir()
    where = ["--images-dir", str(image)]
    try:
        with _running([program, str(megabytes)], place / f"criu-out{megabytes}") as job:
            dump = _timed(criu, "dump", "-t", str(job.pid), *where)
            if dump is None:  # it does not know this kernel, for one
                return None
            job.wait()
            restore = _timed(criu, "restore", "-d", *where)
            if restore is None:
                return None
            os.kill(job.pid, 9)  # the same number: no child of ours any more
            return Measured("CRIU (root)", dump, restore)
    finally:
        shutil.rmtree(image, ignore_errors=True)


def _dmtcp(place: Path, program: Path, megabytes: int) -> Measured | None:
    launch = shutil.which("dmtcp_launch", path=PATH)
    if launch is None:
        return None
    tools, image, port = Path(launch).parent, place / f"dmtcp{megabytes}", place / f"dmtcp-port{megabytes}"
    image.mkdir()
    started = ["--new-coordinator", "-p", "0", "--port-file", str(port), "--ckptdir", str(image)]
    ask: list[str | Path] = [tools / "dmtcp_command", "-p"]

    def running() -> bool:
        return b"RUNNING=yes" in subprocess.run([*ask, "--status"], capture_output=True, check=False).stdout

    try:
        with _running([launch, "--no-gzip", *started, program, str(megabytes)], place / f"dmtcp-out{megabytes}"):
            ask.append(re.sub(r"\D", "", port.read_text()))
            dump = _timed(*ask, "--bcheckpoint")
            subprocess.run([*ask, "--quit"], **SHOWN_NOTHING)
        images = list(image.glob("*.dmtcp"))
        if dump is None or not images:
            return None
        port.unlink()
        began = time.perf_counter()
        job = subprocess.Popen(
            [tools / "dmtcp_restart", *started, *images],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            ask[-1] = ""
            if not _until(lambda: job.poll() is not None or (port.exists() and port.read_text().strip() != "")):
                return None
            ask[-1] = re.sub(r"\D", "", port.read_text())
            back = _until(lambda: job.poll() is not None or running()) and job.poll() is None
            restore = time.perf_counter() - began
            subprocess.run([*ask, "--quit"], **SHOWN_NOTHING)
        finally:
            job.kill()
            job.wait()
        return Measured("DMTCP", dump, restore) if back else None
    finally:
        shutil.rmtree(image, ignore_errors=True)
