"""Checkpoints: how long a job is frozen, how fast it is written and restored, beside CRIU and DMTCP where installed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from pool.checkpoint.build import compiler
from pool.jobs.huge_pages import VARIABLE as TUNABLES
from pool.jobs.huge_pages import tunables
from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.benchmarks.checkpoint_peers import Measured, measured
from tests.benchmarks.floors import written
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import until

#: Fills memory with numbers that no file system can leave out, says so, and waits; then writes to every tenth page.
#: With a word before the size it says how many seconds it takes to copy itself (the median of five), and ends.
PROGRAM = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static void nothing(int signal) { (void)signal; }
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
static int by_size(const void *a, const void *b) { return *(double *)a < *(double *)b ? -1 : 1; }
static void fork_alone(void)
{
    double took[5];
    for (int i = 0; i < 5; i++) {
        double began = now();
        pid_t copy = fork();
        if (copy == 0)
            _exit(0);
        took[i] = now() - began;
        waitpid(copy, NULL, 0);
    }
    qsort(took, 5, sizeof *took, by_size);
    printf("%.6f\\n", took[2]);
}
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[argc - 1]) << 20;
    unsigned long value = 1;
    char *memory = malloc(size);
    for (size_t at = 0; at < size; at += 8)
        *(unsigned long *)(memory + at) = value = value * 6364136223846793005ul + 1;
    if (argc > 2)
        return fork_alone(), 0;
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
    return Path(tempfile.mkdtemp(dir=shm if free > 16 << 30 else None))


def is_ready(out: Path, times: int = 1) -> bool:
    return out.exists() and out.read_text().count("ready") >= times


def compiled_program(place: Path) -> Path:
    source, program = place / "fill.c", place / "fill"
    source.write_text(PROGRAM)
    subprocess.run([*compiler().split(), "-O2", "-o", program, source], check=True)
    return program


def _bare_fork(program: Path, megabytes: int) -> float:
    """Seconds for which a program of that size stands still when it does nothing but copy itself."""
    return float(subprocess.run([program, "fork", str(megabytes)], check=True, capture_output=True, text=True).stdout)


class Taken(NamedTuple):
    """Seconds: the job stands still, for the first image and for one with a tenth of the pages written since; both
    images until they are written; a restore of the second; and stands still after that.
    """

    still: float
    still_again: float
    dump: float
    increment: float
    restore: float
    still_restored: float


def job_with_memory(place: Path, program: Path, megabytes: int, out: Path, *, huge_pages: bool) -> KeeperSpec:
    """The program with so much memory, as a job that writes to `out`."""
    return KeeperSpec(
        id="1.0.0",
        argv=(str(program), str(megabytes)),
        env={TUNABLES: tunables("")} if huge_pages else {},
        cwd=str(place),
        uid=os.getuid(),
        gid=os.getgid(),
        stdout=str(out),
        isolation="shared",
    )


async def _ours(place: Path, program: Path, megabytes: int, *, huge_pages: bool = False) -> Taken:
    keepers = NativeKeepers(place / f"keepers{megabytes}")
    await keepers.open()
    try:
        out, image = place / f"out{megabytes}", place / f"image{megabytes}"
        spec = job_with_memory(place, program, megabytes, out, huge_pages=huge_pages)
        keeper = await keepers.start(spec)
        await until(lambda: is_ready(out), 60)
        report = await keeper.checkpoint(image)
        await keeper.signal(signal.SIGUSR1)
        await until(lambda: is_ready(out, 2), 60)
        again = image.with_name(image.name + "again")
        increment = await keeper.checkpoint(again, parent=image)
        await keeper.kill()
        await keeper.ended
        await keeper.forget()
        began = time.perf_counter()
        keeper = await keepers.start(spec, image=again)
        restore = time.perf_counter() - began
        last = await keeper.checkpoint(image.with_name(image.name + "last"))
        return Taken(
            report.standstill,
            increment.standstill,
            report.seconds,
            increment.seconds,
            restore,
            last.standstill,
        )
    finally:
        await keepers.close(kill=True)
        out.unlink(missing_ok=True)
        for which in ("", "again", "last"):
            shutil.rmtree(place / f"image{megabytes}{which}", ignore_errors=True)


def _in_huge_pages(what: str, goal: float, huge: Taken, plain: Taken) -> list[Row]:
    """The stops of a job whose memory lies in huge pages, beside the same job without."""
    peer = "the same without huge pages"
    return [
        Row(
            f"job stands still, huge pages, {what}",
            huge.still * 1000,
            "ms",
            Goal("at most", goal),
            peer,
            plain.still * 1000,
        ),
        Row(
            f"job stands still, huge pages, every tenth page written since, {what}",
            huge.still_again * 1000,
            "ms",
            Goal("at most", goal),
            peer,
            plain.still_again * 1000,
        ),
        Row(
            f"job stands still, huge pages, after a restore, {what}",
            huge.still_restored * 1000,
            "ms",
            Goal("at most", goal),
            peer,
            plain.still_restored * 1000,
        ),
        Row(
            f"dump, 10 % dirty, huge pages, {what}",
            huge.increment * 1000,
            "ms",
            None,
            peer,
            plain.increment * 1000,
        ),
        Row(f"restore, huge pages, {what}", huge.restore * 1000, "ms", None, peer, plain.restore * 1000),
    ]


def _beside(peer: Measured | None, what: str, gigabytes: float, still: float, dump: float, restore: float) -> list[Row]:
    """The three figures that a peer has, too; seconds."""
    name = peer.peer if peer else ""
    return [
        Row(
            f"job stands still{what}",
            still * 1000,
            "ms",
            Goal("at most", 5 + 25 * gigabytes),
            name,
            peer.dump * 1000 if peer else None,
        ),
        Row(
            f"dump to page cache{what}",
            gigabytes / dump,
            "GB/s",
            Goal("at least", 2),
            name,
            gigabytes / peer.dump if peer else None,
        ),
        Row(
            f"restore{what}",
            restore * 1000,
            "ms",
            Goal("at most", 30 + 600 * gigabytes),
            name,
            peer.restore * 1000 if peer else None,
        ),
    ]


@benchmark("checkpoint")
async def checkpoint(effort: Effort) -> list[Row]:
    """A job's standstill, the rate of its dump and the time of its restore, at 100 MB, 1 GB and 4 GB."""
    place = _place()
    rows = []
    try:
        program = compiled_program(place)
        sizes = ((100, 3.0), (effort.of(1000, least=100), 5.0), (effort.of(4000, least=100), 15.0))
        for megabytes, goal in sizes:
            await _ours(place, program, megabytes)  # memory the machine has never touched costs more the first time
            plain = await _ours(place, program, megabytes)
            huge = await _ours(place, program, megabytes, huge_pages=True)
            still = max(plain.still, plain.still_again)
            dump, increment, restore = plain.dump, plain.increment, plain.restore
            peers = await asyncio.to_thread(measured, place, program, megabytes)
            bare = await asyncio.to_thread(_bare_fork, program, megabytes)
            in_order = await asyncio.to_thread(written, place / "plain", megabytes)
            gigabytes = megabytes / 1000
            what = f"{megabytes} MB"
            first = peers[0] if peers else None
            rows += [
                Row(
                    f"job stands still, {what}",
                    still * 1000,
                    "ms",
                    Goal("at most", 1.2, "ratio"),
                    "a bare fork of as much memory",
                    bare * 1000,
                ),
                Row(f"dump, 10 % dirty, {what}", increment * 1000, "ms", Goal("at most", 100 * gigabytes)),
                *_in_huge_pages(what, goal, huge, plain),
                Row(
                    f"dump to page cache, beside the least, {what}",
                    gigabytes / dump,
                    "GB/s",
                    None,
                    "as many bytes written in order",
                    gigabytes / in_order,
                ),
                *_beside(first, f", {what}", gigabytes, still, dump, restore),
                *(row for peer in peers[1:] for row in _beside(peer, f", {what}", gigabytes, still, dump, restore)),
            ]
        return rows
    finally:
        shutil.rmtree(place, ignore_errors=True)
