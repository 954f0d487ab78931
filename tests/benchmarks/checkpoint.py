"""Checkpoints: how long a job stands still, how fast it is written and put back, beside CRIU where root has it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from pool.checkpoint.build import compiler
from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import until

QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "check": False}

#: Fills memory with numbers that no file system can leave out, says so, and waits; then writes to every tenth page.
PROGRAM = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void nothing(int signal) { (void)signal; }
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[argc - 1]) << 20;
    unsigned long value = 1;
    char *memory = malloc(size);
    for (size_t at = 0; at < size; at += 8)
        *(unsigned long *)(memory + at) = value = value * 6364136223846793005ul + 1;
    signal(SIGUSR1, nothing);
    for (;;) {
        puts("ready");
        fflush(stdout);
        pause();
        for (size_t at = 0; at < size; at += 40960)
            memory[at]++;
    }
}
"""


def _place() -> Path:
    """In memory where that is, so that the kernel's page cache is measured and no disk."""
    shm = Path("/dev/shm")
    free = shutil.disk_usage(shm).free if shm.is_dir() else 0
    return Path(tempfile.mkdtemp(dir=shm if free > 4 << 30 else None))


def _ready(out: Path, times: int = 1) -> bool:
    return out.exists() and out.read_text().count("ready") >= times


def _compiled(place: Path) -> Path:
    source, program = place / "fill.c", place / "fill"
    source.write_text(PROGRAM)
    subprocess.run([*compiler().split(), "-O2", "-o", program, source], check=True)
    return program


async def _ours(place: Path, program: Path, megabytes: int) -> tuple[float, float, float, float]:
    """(standstill, dump, dump with a tenth of the pages written since, restore of that) in seconds."""
    keepers = NativeKeepers(place / f"keepers{megabytes}")
    await keepers.open()
    try:
        out, image = place / f"out{megabytes}", place / f"image{megabytes}"
        spec = KeeperSpec(
            id="1.0.0",
            argv=(str(program), str(megabytes)),
            env={},
            cwd=str(place),
            uid=os.getuid(),
            gid=os.getgid(),
            stdout=str(out),
            isolation="shared",
        )
        keeper = await keepers.start(spec)
        await until(lambda: _ready(out), 60)
        report = await keeper.checkpoint(image)
        await keeper.signal(signal.SIGUSR1)
        await until(lambda: _ready(out, 2), 60)
        again = image.with_name(image.name + "again")
        increment = await keeper.checkpoint(again, parent=image)
        await keeper.kill()
        await keeper.ended
        await keeper.forget()
        began = time.perf_counter()
        keeper = await keepers.start(spec, image=again)
        restore = time.perf_counter() - began
        return max(report.standstill, increment.standstill), report.seconds, increment.seconds, restore
    finally:
        await keepers.close(kill=True)
        shutil.rmtree(place / f"image{megabytes}", ignore_errors=True)
        shutil.rmtree(place / f"image{megabytes}again", ignore_errors=True)


def _criu(place: Path, program: Path, megabytes: int) -> tuple[float, float] | None:
    """(dump, restore) in seconds, the job standing still for the whole dump; None where it cannot be used."""
    criu = shutil.which("criu", path="/usr/sbin:/usr/bin:/sbin:/usr/local/sbin")
    if criu is None or os.getuid():
        return None
    out, image = place / f"criu{megabytes}", place / f"criu-image{megabytes}"
    image.mkdir()
    with out.open("wb") as file:
        job = subprocess.Popen(
            [program, str(megabytes)], stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    try:
        while not _ready(out):
            time.sleep(0.01)
        where = ["--images-dir", str(image)]
        began = time.perf_counter()
        done = subprocess.run([criu, "dump", "-t", str(job.pid), *where], **QUIET)
        dumped = time.perf_counter() - began
        if done.returncode:  # it does not know this kernel, for one
            return None
        job.wait()
        began = time.perf_counter()
        done = subprocess.run([criu, "restore", "-d", *where], **QUIET)
        restored = time.perf_counter() - began
        if done.returncode:
            return None
        os.kill(job.pid, 9)
        return dumped, restored
    finally:
        job.kill()
        job.wait()
        shutil.rmtree(image, ignore_errors=True)


@benchmark("checkpoint")
async def checkpoint(effort: Effort) -> list[Row]:
    """A job's standstill, the rate of its dump and the time of its restore, at 100 MB and 1 GB."""
    place = _place()
    rows = []
    try:
        program = _compiled(place)
        for megabytes in (100, effort.of(1000, least=100)):
            await _ours(place, program, megabytes)  # memory the machine has never touched costs more the first time
            still, dump, increment, restore = await _ours(place, program, megabytes)
            criu = await asyncio.to_thread(_criu, place, program, megabytes)
            peer = "CRIU (root)" if criu else ""
            dumped, restored = criu or (None, None)
            gigabytes = megabytes / 1000
            what = f"{megabytes} MB"
            rows += [
                Row(
                    f"job stands still, {what}",
                    still * 1000,
                    "ms",
                    Goal("at most", 5 + 25 * gigabytes),
                    peer=peer,
                    peer_value=dumped * 1000 if dumped else None,
                ),
                Row(
                    f"dump to page cache, {what}",
                    gigabytes / dump,
                    "GB/s",
                    Goal("at least", 2),
                    peer=peer,
                    peer_value=gigabytes / dumped if dumped else None,
                ),
                Row(f"dump, 10 % dirty, {what}", increment * 1000, "ms", Goal("at most", 100 * gigabytes)),
                Row(
                    f"restore, {what}",
                    restore * 1000,
                    "ms",
                    Goal("at most", 30 + 600 * gigabytes),
                    peer=peer,
                    peer_value=restored * 1000 if restored else None,
                ),
            ]
        return rows
    finally:
        shutil.rmtree(place, ignore_errors=True)
