"""The effect of a checkpoint on the machine's owner: the delay of a task that wakes now and again, as an editor
does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median

from pool.checkpoint.build import compiler
from pool.images import ImageStore
from pool.images.priority import run_low_priority
from pool.starter.keeper import Keeper, KeeperSpec, NativeKeepers
from tests.benchmarks.checkpoint import PROGRAM
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import until

#: Wakes every five milliseconds, works for about one, and says at the end how late it was done: the middle, the 99th
#: of a hundred, and the worst, in microseconds after the time at which it was to wake.
TASK = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
enum { MOST = 100000, EVERY = 5000000 };
static volatile sig_atomic_t over;
static double late[MOST];
static unsigned char memory[1 << 20];
static void stop(int number) { (void)number; over = 1; }
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}
static int less(const void *a, const void *b) { double x = *(double *)a, y = *(double *)b; return (x > y) - (x < y); }
int main(void)
{
    struct timespec due;
    int count = 0;
    signal(SIGTERM, stop);
    clock_gettime(CLOCK_MONOTONIC, &due);
    puts("ready");
    fflush(stdout);
    while (!over && count < MOST) {
        due.tv_nsec += EVERY;
        if (due.tv_nsec >= 1000000000)
            due.tv_sec++, due.tv_nsec -= 1000000000;
        if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL))
            break;
        for (int round = 0; round < 4; round++)
            for (unsigned at = 0; at < sizeof memory; at += 16)
                memory[at] = (unsigned char)(memory[at] * 31 + round);
        late[count++] = now() - (due.tv_sec * 1e6 + due.tv_nsec / 1e3);
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        if (t.tv_sec > due.tv_sec || t.tv_nsec > due.tv_nsec + EVERY)
            due = t;
    }
    qsort(late, count, sizeof *late, less);
    printf("%d %.0f %.0f %.0f\\n", count, late[count / 2], late[count * 99 / 100], late[count - 1]);
    return 0;
}
"""
Late = tuple[float, float]
#: A machine has its moods: each figure is the middle one of so many.
ROUNDS = 3


def _compiled(place: Path, name: str, text: str) -> Path:
    (place / f"{name}.c").write_text(text)
    subprocess.run([*compiler().split(), "-O2", "-o", place / name, place / f"{name}.c"], check=True)
    return place / name


async def _felt(task: Path, during: Callable[[], Awaitable[object]]) -> Late:
    """How late the task is while something is done: the middle and the 99th of a hundred, milliseconds."""
    process = await asyncio.create_subprocess_exec(task, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    await process.stdout.readline()
    await during()
    process.terminate()
    said = (await process.stdout.read()).split()
    await process.wait()
    return float(said[1]) / 1000, float(said[2]) / 1000


async def _dd(source: Path, target: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        "dd", f"if={source}", f"of={target}", "bs=1M", "conv=fdatasync", "status=none"
    )
    await process.wait()


def _take_in(store: ImageStore, image: Path) -> None:
    with store.begin("1.0") as draft:
        draft.commit(draft.add_file(image), 0.0)


async def _job(keepers: NativeKeepers, program: Path, place: Path, megabytes: int) -> Keeper:
    out = place / "out"
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
    await until(lambda: out.exists() and bool(out.read_text()), 60)
    return keeper


async def _round(keeper: Keeper, task: Path, place: Path) -> dict[str, Late]:
    """The delay with nothing else, with a checkpoint as it is written and as it is stored, and with dd."""
    os.mkdir(place)
    image, store = place / "image", ImageStore(place / "store")
    felt = {
        "alone": await _felt(task, lambda: asyncio.sleep(2.0)),
        "written": await _felt(task, lambda: keeper.checkpoint(image)),
        "stored": await _felt(task, lambda: run_low_priority(_take_in, store, image)),
        "dd": await _felt(task, lambda: _dd(image / "pages", place / "copy")),
    }
    shutil.rmtree(place)
    return felt


@benchmark("owner")
async def owner(effort: Effort) -> list[Row]:
    """The delay of an owner's task during a checkpoint of 1 GB on its way to the disk, beside dd doing the same."""
    place = Path(tempfile.mkdtemp())
    megabytes = effort.of(1000, least=100)
    keepers = NativeKeepers(place / "keepers")
    await keepers.open()
    try:
        task, program = _compiled(place, "task", TASK), _compiled(place, "fill", PROGRAM)
        keeper = await _job(keepers, program, place, megabytes)
        rounds = [await _round(keeper, task, place / str(number)) for number in range(effort.of(ROUNDS))]
        await keeper.kill()
        await keeper.ended
        await keeper.forget()
    finally:
        await keepers.close(kill=True)
        shutil.rmtree(place, ignore_errors=True)
    felt = {what: tuple(median(one[what][number] for one in rounds) for number in range(2)) for what in rounds[0]}
    rows = []
    for number, which in enumerate(("the middle", "99 of 100")):
        for what in ("written", "stored"):
            rows.append(
                Row(
                    f"an owner's task is done, {which}, while a checkpoint is {what}, {megabytes} MB",
                    felt[what][number],
                    "ms",
                    Goal("at most", 1.5, "ratio"),
                    peer="dd of as much",
                    peer_value=felt["dd"][number],
                    note=f"{felt['alone'][number]:.2f} ms with neither",
                )
            )
    return rows
