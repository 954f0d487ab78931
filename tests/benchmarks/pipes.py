"""Jobs of several processes beside the same programs in a shell (VS 7.1); what an empty process more costs (VS 7.2)."""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import time

from pool.client import Pool
from tests.benchmarks.nodes import personal_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Three unmodified programs that are busy one after the other and together; {} is how much.
LINE = "seq 1 {} | awk '{{s += sqrt($1); print s}}' | gzip -1"
MOST = 10  # processes, as in the paper's table 7.2


@benchmark("pipes")
async def pipes(effort: Effort) -> list[Row]:
    """A pipeline as a job beside a shell's (CPU, elapsed), and jobs of 1 to 10 empty processes."""
    async with personal_node(slots=2) as node, await Pool.connect(node.address) as pool:
        await _empty(pool, 1)
        turns = {number: await _empty(pool, number, effort.of(15, least=3)) for number in range(1, MOST + 1)}
        jobs, shells = [], []
        size = effort.of(3_000_000, least=100_000)
        for turn in range(effort.of(7, least=2)):
            # In turns, and the first of each pair by turns too: what else the machine does meets both alike.
            for job in (True, False) if turn % 2 else (False, True):
                if job:
                    jobs.append(await _as_job(pool, size))
                else:
                    shells.append(await asyncio.to_thread(_in_shell, size))
    each = (turns[MOST] - turns[1]) / (MOST - 1)
    cpu, elapsed = (statistics.median(one[i] for one in jobs) for i in (0, 1))
    shell_cpu, shell_elapsed = (statistics.median(one[i] for one in shells) for i in (0, 1))
    note = f"medians of {len(jobs)} runs each, in turns; the paper: + 1.4 % and + 4.2 %"
    return [
        Row("pipe job, CPU of its processes", cpu, "s", Goal("at most", 1.005, "ratio"), "shell", shell_cpu, note),
        Row("pipe job, start to end", elapsed, "s", Goal("at most", 1.01, "ratio"), "shell", shell_elapsed),
        Row("turn-around of one empty process", 1000 * turns[1], "ms", Goal("at most", 60), note="the paper: 29 s"),
        Row("... of each further one", 1000 * each, "ms", Goal("at most", 3), note="the paper: 9.4 s"),
    ]


async def _empty(pool: Pool, processes: int, times: int = 3) -> float:
    """Median seconds from submit to completed."""
    names = " ".join(f"p{number}=/bin/true" for number in range(processes))
    commands = {"executable": names, "universe": "pipe"}
    loop = asyncio.get_running_loop()
    found = []
    for _ in range(times):
        began = loop.time()
        results = await (await pool.submit(commands)).wait()
        found.append(loop.time() - began)
        assert [result.exit_code for result in results] == [0], results
    return statistics.median(found)


async def _as_job(pool: Pool, size: int) -> tuple[float, float]:
    """CPU seconds of all processes, and seconds from their start to the last end."""
    text = f"executable = {LINE.format(size)} > /dev/null\nqueue\n"
    (result,) = await (await pool.submit(text)).wait()
    assert result.ok, result
    cpu = sum(end["user_cpu"] + end["system_cpu"] for end in result.processes)
    return cpu, max(end["wall"] for end in result.processes)


def _in_shell(size: int) -> tuple[float, float]:
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(["/bin/sh", "-c", f"{LINE.format(size)} > /dev/null"], check=True, env={"PATH": os.defpath})
    elapsed, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, elapsed
