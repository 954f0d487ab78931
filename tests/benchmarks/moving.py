"""From being evicted to running again on another idle node: how long a job is silent, as it sees it itself.

No peer: CRIU and DMTCP move no jobs by themselves, they write and read the images that others carry.
"""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from pathlib import Path
from typing import Any

from pool.checkpoint.build import compiler
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, Nodes, client, slots, token, until

#: Fills memory with numbers that nothing can compress, then writes down the time each millisecond.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    size_t size = (size_t)atol(argv[1]) << 20;
    unsigned long value = 1, lines = 3000;
    char *memory = malloc(size);
    for (size_t at = 0; at < size; at += 8)
        *(unsigned long *)(memory + at) = value = value * 6364136223846793005ul + 1;
    for (;;) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        printf("%ld.%09ld\\n", now.tv_sec, now.tv_nsec);
        fflush(stdout);
        if (--lines == 0)
            return 0;
        usleep(1000);
    }
}
"""


def _compile(home: Path) -> None:
    (home / "fill.c").write_text(PROGRAM)
    subprocess.run([*compiler().split(), "-O2", "-o", home / "fill", home / "fill.c"], check=True)


def _silence(out: Path) -> float:
    """The longest time between two lines, seconds."""
    times = [float(line) for line in out.read_text().splitlines()]
    return max(after - before for before, after in itertools.pairwise(times))


async def _moved(nodes: Nodes, pool: Any, home: Path, megabytes: int, carried: bool) -> float:
    """Move a job once to the other machine; the seconds for which it was silent."""
    commands: dict[str, Any] = {
        "executable": str(home / "fill"),
        "arguments": f"{megabytes}",
        "output": "out",
        "log": "log",
    }
    if carried:
        commands |= {"should_transfer_files": "YES"}
    (home / "log").unlink(missing_ok=True)
    cluster = await pool.submit(commands, iwd=str(home))
    log = home / "log"

    def runs(times: int) -> bool:
        return log.exists() and log.read_text().count("Job executing on host") == times

    async def machine() -> str:
        (ad,) = await cluster.ads()
        return str(ad.value("RemoteHost")).rpartition("@")[2]

    await until(lambda: runs(1), "the job to run")
    await asyncio.sleep(0.6)
    first = await machine()
    async with client(next(node for node in nodes.all if node.state.stem == first)) as there:
        await there.call("startd.drain", {"how": "vacate", "reason": "measured"})
        (result,) = await cluster.wait(support.PATIENCE)
        await there.call("startd.undrain", {})
    assert runs(2), log.read_text()
    assert result.state == "completed", result
    return _silence(home / "out")


@benchmark("moving")
async def moving(effort: Effort) -> list[Row]:
    """Evicted to running again on another idle node, a job of 100 MB of memory that does not compress."""
    megabytes = effort.of(100, least=10)
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd"), CHECKPOINT_WORTH="0").ready()
        home = nodes.directory("home")
        _compile(home)
        async with client(head) as pool:
            await slots(pool, 2)
            rows = []
            for carried in (False, True):
                times = sorted([await _moved(nodes, pool, home, megabytes, carried) for _ in range(effort.of(5))])
                note = f"median of {len(times)}, {times[0]:.2f} to {times[-1]:.2f} s; all nodes on one machine"
                what = "with its files" if carried else "its files on the submit machine"
                metric = f"evicted to running, {megabytes} MB, {what}"
                rows.append(Row(metric, times[len(times) // 2], "s", Goal("at most", 1), note=note))
    return rows
