"""The cost of a job below the roles: starts a second through the keepers alone, beside xargs; how long one start takes,
beside posix_spawn; and the memory of a keeper.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from pool.checkpoint.build import compiler
from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.benchmarks import processes
from tests.benchmarks.peers import xargs
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

SLOTS = 8
TURNS = 5
#: One at a time, of each kind.
STARTS = 100
#: Says when it began, seconds of the wall clock, and with an argument stays until it is asked to go.
BEGUN = """
#include <stdio.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    (void)argv;
    printf("%ld.%09ld\\n", now.tv_sec, now.tv_nsec);
    fflush(stdout);
    while (argc > 1)
        pause();
    return 0;
}
"""


@benchmark("starts")
async def starts(effort: Effort) -> list[Row]:
    """1,000 /bin/true by 8 keepers at a time, with the host's files and with a tree of their own, beside xargs."""
    jobs = effort.of(1000, least=40)
    ours: dict[str, list[float]] = {"shared": [], "full": []}
    plain: list[float] = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        keepers = NativeKeepers(Path(directory, "keepers"))
        await keepers.open()
        try:
            for isolation in ours:
                await _through(keepers, Path(directory), isolation, SLOTS)
            for _ in range(effort.of(TURNS, least=2)):
                for isolation, rates in ours.items():
                    rates.append(jobs / await _through(keepers, Path(directory), isolation, jobs))
                plain.append(jobs / await xargs(SLOTS, jobs))
        finally:
            await keepers.close(kill=True)
    peer = statistics.median(plain)
    return [
        Row(
            f"{jobs:,} /bin/true through {SLOTS} keepers, isolation {isolation}",
            statistics.median(rates),
            "jobs/s",
            None,
            f"xargs -P{SLOTS}",
            peer,
        )
        for isolation, rates in ours.items()
    ]


@benchmark("start")
async def start(effort: Effort) -> list[Row]:
    """From the call that starts a job to its program's first instruction, one at a time, beside posix_spawn of the
    same; and the memory of a keeper whose job waits."""
    times: dict[str, list[float]] = {"shared": [], "full": []}
    plain: list[float] = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        place = Path(directory)
        program, out = _compiled(place), place / "out"
        keepers = NativeKeepers(place / "keepers")
        await keepers.open()
        try:
            for turn in range(effort.of(STARTS, least=5)):
                for isolation, found in times.items():
                    called = time.time()
                    keeper = await keepers.start(_spec(f"{turn}.0.1", (str(program),), place, isolation, str(out)))
                    await keeper.ended
                    await keeper.forget()
                    found.append(float(out.read_text()) - called)
                plain.append(_spawned(program, out))
            keeper = await keepers.start(_spec("0.0.2", (str(program), "stay"), place, "full", str(out)))
            own = [pid for pid in processes.children(keeper.pid) if _program_of(pid) != str(program)]
            memory = sum(processes.memory(pid)[1] for pid in own) / 1e6
            await keeper.kill()
            await keeper.ended
            await keeper.forget()
        finally:
            await keepers.close(kill=True)
    peer = statistics.median(plain) * 1000
    rows = []
    for isolation, found in times.items():
        most = sorted(found)[len(found) * 99 // 100] * 1000
        metric = f"a job's start to its first instruction, isolation {isolation}"
        note = f"99 of 100 within {most:.1f} ms"
        value = statistics.median(found) * 1000
        rows.append(Row(metric, value, "ms", Goal("at most", 5), "posix_spawn", peer, note))
    return [*rows, Row("a keeper whose job waits, proportional", memory, "MB", Goal("at most", 1))]


def _compiled(place: Path) -> Path:
    (place / "begun.c").write_text(BEGUN)
    subprocess.run([*compiler().split(), "-O2", "-o", place / "begun", place / "begun.c"], check=True)
    return place / "begun"


def _spawned(program: Path, out: Path) -> float:
    """The same without a keeper, seconds."""
    to = (os.POSIX_SPAWN_OPEN, 1, str(out), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    called = time.time()
    os.waitpid(os.posix_spawn(program, [str(program)], {}, file_actions=[to]), 0)
    return float(out.read_text()) - called


def _program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode()


def _spec(name: str, argv: tuple[str, ...], scratch: Path, isolation: str, stdout: str = os.devnull) -> KeeperSpec:
    return KeeperSpec(
        id=name,
        argv=argv,
        env={"PATH": os.defpath},
        cwd=str(scratch),
        uid=os.geteuid(),
        gid=os.getegid(),
        scratch=str(scratch),
        isolation=isolation,
        hidden=(str(scratch.parent / "spool"),),
        lease_seconds=60.0,
        stdout=stdout,
    )


async def _through(keepers: NativeKeepers, directory: Path, isolation: str, jobs: int) -> float:
    loop = asyncio.get_running_loop()

    async def lane(number: int) -> None:
        scratch = directory / f"slot{number}"
        scratch.mkdir(exist_ok=True)
        for turn in range(jobs // SLOTS):
            spec = _spec(f"{number}.{turn}.1", ("/bin/true",), scratch, isolation)
            keeper = await keepers.start(spec)
            await keeper.ended
            await keeper.forget()

    began = loop.time()
    await asyncio.gather(*(lane(number) for number in range(SLOTS)))
    return loop.time() - began
