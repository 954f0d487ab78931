"""How long the user waits for a list: whole commands, from the shell and back."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pool.client import Pool
from pool.wire import RealNetwork
from pool.wire.join import join
from tests.benchmarks.nodes import LISTEN, Node, whole_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.conftest import REPOSITORY

POOLNODE = (sys.executable, "-m", "pool.cli.main")


async def command(node: Node, *arguments: str, least_lines: int, program: Sequence[str | Path] = POOLNODE) -> float:
    """Seconds one command takes, by default one of `poolnode`, its output read and counted."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    process = await asyncio.create_subprocess_exec(
        *program,
        *arguments,
        cwd=REPOSITORY,
        env=os.environ | {"POOLNODE_ADDRESS": node.address},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    took = loop.time() - began
    assert process.returncode == 0, f"{' '.join(arguments)}: status {process.returncode}"
    lines = output.count(b"\n")
    assert lines >= least_lines, f"{' '.join(arguments)}: {lines} lines instead of {least_lines}"
    return took


async def fake_machines(pool: Pool, many: int, directory: Path) -> None:
    """Have the collector know that many machines more, each advertised as the pool's own first slot is, by a node that
    joined for it and keeps its credentials in the directory.
    """
    token = (await pool.call("node.token", {"roles": ["startd"], "lifetime": 600, "uses": 1}))["token"]
    credentials = await join(token, "fake", directory)
    model = (await pool.advertised("Machine", limit=1))[0]
    link = await RealNetwork(credentials=credentials).connect((await pool.info())["address"])
    for start in range(0, many, 500):
        updates = []
        for number in range(start, min(start + 500, many)):
            name = f"slot{number}@fake"
            ad = model | {"Name": name, "Machine": f"host{number}", "Memory": 1024 + number}
            updates.append({"kind": "Machine", "name": name, "sequence": 1, "whole": True, "ad": ad, "lifetime": 900.0})
        answer = await link.call("collector.update", {"instance": "fake", "incarnation": "fake", "updates": updates})
        assert not answer["refused"], answer["refused"][:1]
    await link.close()


@benchmark("listings")
async def listings(effort: Effort) -> list[Row]:
    """`q` and `condor_q` on 10,000 jobs, `status` and `why` on 10,000 machines, whole commands, medians of 5.

    `q` is timed where nothing else goes on, and once more while the negotiator reads machines that came all at once.
    """
    many = effort.of(10_000, least=100)
    queue, goal, reason = Goal("at most", 0.15), Goal("at most", 0.5), Goal("at most", 1.0)
    rows = []
    async with whole_node(2, *LISTEN) as node:
        async with await Pool.connect(node.address) as pool:
            queued = await pool.submit(
                {"executable": "/bin/true", "arguments": "$(Process)", "requirements": "False", "queue": many}
            )
            times = [await command(node, "q", least_lines=many) for _ in range(5)]
            rows.append(Row(f"q on {many:,} jobs", statistics.median(times), "s", queue))
            await fake_machines(pool, many, node.directory / "fake")
        for metric, arguments, lines, held_to in (
            (f"q on {many:,} jobs, just after {many:,} machines came", ("q",), many, None),
            (f"status on {many:,} machines", ("status",), many, goal),
            (f"why of a job, {many:,} machines and jobs", ("why", f"{queued.cluster}.{many - 1}"), 5, reason),
            (f"why of a machine, {many:,} machines", ("why", f"slot{many - 1}@fake"), 3, reason),
            (f"q --json on {many:,} jobs, whole ads", ("q", "--json"), many, None),
        ):
            times = [await command(node, *arguments, least_lines=lines) for _ in range(5)]
            rows.append(Row(metric, statistics.median(times), "s", held_to))
        rows += await drop_ins(node, many)
        rows.append(await started(node, many))
    rows.append(version())
    return rows


async def started(node: Node, many: int) -> Row:
    """Processor time of `q`, beside that of a Python that loads the libraries of a command, in turns."""
    ours, theirs = list[float](), list[float]()
    for _ in range(9):
        for command_line, times in ((("-m", "pool.cli.main", "q"), ours), (("-c", "import asyncio, typer"), theirs)):
            times.append(await asyncio.to_thread(_processor_time, sys.executable, *command_line, address=node.address))
    ours_ms, theirs_ms = 1000 * statistics.median(ours), 1000 * statistics.median(theirs)
    metric = f"q on {many:,} jobs, processor time"
    return Row(metric, ours_ms, "ms", None, "Python with asyncio and typer", theirs_ms, f"least {1000 * min(ours):.0f}")


def version() -> Row:
    """Processor time of `poolnode --version` as it is installed, beside a Python that does nothing, in turns."""
    ours, theirs = [], []
    for _ in range(21):
        ours.append(_processor_time(Path(sys.executable).with_name("poolnode"), "--version"))
        theirs.append(_processor_time(sys.executable, "-c", "pass"))
    ours_ms, theirs_ms = 1000 * statistics.median(ours), 1000 * statistics.median(theirs)
    metric, goal = "poolnode --version, processor time", Goal("at most", 25)
    return Row(metric, ours_ms, "ms", goal, "python -c pass", theirs_ms)


def _processor_time(*command: str | Path, address: str = "") -> float:
    """Seconds of user and system time that a program takes; it may ask the node with that address."""
    environment = os.environ | ({"POOLNODE_ADDRESS": address} if address else {})
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=REPOSITORY, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"{command[-1]}: status {process.returncode}"
    return usage.ru_utime + usage.ru_stime


async def drop_ins(node: Node, many: int) -> list[Row]:
    """`condor_q -nobatch` beside `q`, in turns."""
    place = node.directory / "drop-ins"
    await command(node, "compat", "--install", str(place), least_lines=0)
    ours, theirs = [], []
    for _ in range(5):
        ours.append(await command(node, "q", least_lines=many))
        theirs.append(await command(node, "-nobatch", least_lines=many, program=[place / "bin" / "condor_q"]))
    metric, goal = f"condor_q -nobatch on {many:,} jobs", Goal("at most", 1.2, "ratio")
    return [Row(metric, statistics.median(theirs), "s", goal, "poolnode q", statistics.median(ours))]
