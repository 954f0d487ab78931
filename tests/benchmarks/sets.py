"""Checkpoints of a job on two machines with a stream between its parts: how long it stands still, and until it is kept.

No peer: nothing else is known here that saves programs on several machines with what is between them, unmodified.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from pathlib import Path

from pool.checkpoint.build import compiler
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token, until

#: Stops and waits up to this are not noticed, seconds: a thread that sleeps a millisecond wakes that late.
NOTICED = 0.0015
#: Fills memory with numbers that nothing can compress, and writes or reads a stream. A thread wakes each millisecond
#: and says when it came too late; whoever reads says when it had to wait: both with the time, and in seconds.
PROGRAM = """
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}
static void said(const char *what, double since, double late)
{
    if (now() - since > late)
        fprintf(stderr, "%s %.6f %.6f\\n", what, now(), now() - since);
}
static void *wakes(void *unused)
{
    for (;;) {
        double since = now();
        usleep(1000);
        said("stood", since, NOTICED);
    }
    return unused;
}
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    unsigned long value = 1;
    char *memory = malloc(size), block[65536];
    pthread_t thread;
    (void)argc;
    for (size_t at = 0; at < size; at += 8)
        *(unsigned long *)(memory + at) = value = value * 6364136223846793005ul + 1;
    memset(block, 'x', sizeof block);
    pthread_create(&thread, NULL, wakes, NULL);
    fprintf(stderr, "ready\\n");
    for (;;) {
        double since = now();
        if (!strcmp(argv[2], "write")) {
            if (write(1, block, 4096) < 0)
                return 1;
            usleep(1000);
        } else {
            if (read(0, block, sizeof block) <= 0)
                return 1;
            said("waited", since, NOTICED);
        }
    }
}
"""
#: A set is made so often.
TURNS = 5


def _compiled(home: Path) -> Path:
    (home / "part.c").write_text(PROGRAM)
    options = ["-O2", "-pthread", f"-DNOTICED={NOTICED}"]
    subprocess.run([*compiler().split(), *options, "-o", home / "part", home / "part.c"], check=True)
    return home / "part"


def _longest(told: Path, what: str, since: float) -> float:
    """The longest of such waits that ended after that, seconds; `NOTICED` where none was longer."""
    lines = [line.split() for line in told.read_text().splitlines() if line.startswith(what)]
    return max((float(length) for _, at, length in lines if float(at) > since), default=NOTICED)


@benchmark("sets")
async def sets(effort: Effort) -> list[Row]:
    """Two parts with a stream between them, on a machine each: saved beside their run, again and again."""
    megabytes = effort.of(100, least=10)
    stood: list[float] = []
    waited: list[float] = []
    kept: list[float] = []
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd")).ready()
        home = nodes.directory("home")
        program = _compiled(home)
        text = f"""
        executable = w={program} r={program}
        pipe = w | r
        transfer_executable = false
        w.arguments = {megabytes} write
        r.arguments = {megabytes} read
        w.error = w.err
        r.error = r.err
        spread = on
        queue
        """
        told = [home / "w.err", home / "r.err"]
        async with client(head) as pool:
            await slots(pool, 2)
            cluster = await pool.submit(text, iwd=str(home))
            await until(lambda: all(one.exists() and "ready" in one.read_text() for one in told), "both parts to run")
            for _ in range(effort.of(TURNS, least=2)):
                await asyncio.sleep(0.5)
                since = time.time()
                done = await cluster.checkpoint()
                kept.append(time.time() - since)
                assert done.done == 1, done
                stood.append(max(_longest(one, "stood", since) for one in told))
                waited.append(_longest(told[1], "waited", since))
            await cluster.remove()
            await cluster.wait(support.PATIENCE)
    what = f"a job's checkpoint, two parts of {megabytes} MB with a stream between"
    first, *later = kept
    return [
        Row(f"{what}: a part stands still", statistics.median(stood) * 1000, "ms", Goal("at most", 7.5)),
        Row(f"{what}: its stream stands still", statistics.median(waited) * 1000, "ms"),
        Row(f"{what}: until the submit side has it, the first", first, "s"),
        Row(f"{what}: the others, nothing changed", statistics.median(later), "s"),
    ]
