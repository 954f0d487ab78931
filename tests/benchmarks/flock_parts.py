"""Parts of one job in two pools: a TCP stream, round trips and a pipe, beside the same between two nodes of one pool.

Real nodes on loopback. What passes to the pool `other` goes through both worlds and the schedd; each world is its own
pool's head here. The machines of the pool `direct` and of the home connect directly. Local jobs start meanwhile: what
they wait is put beside what they wait while nothing passes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from pathlib import Path

from pool.client import Pool
from tests.benchmarks.network import compiled
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.benchmarks.spread import READER, WRITER
from tests.e2e import support
from tests.e2e.flocks import BOTH, agree
from tests.e2e.support import Nodes, client, program, slots, token
from tests.starter.support import PYTHON

ROUNDS = 3
PORT = 5000
HOME, LENT, SECOND = 'FlockPool =?= undefined && Machine == "home"', 'FlockPool =?= "other"', 'Machine == "second"'
DIRECT = 'FlockPool =?= "direct"'


def _network_job(place: Path, network: Path, apart: str, size: int, turns: int) -> str:
    script = program(
        place,
        f"if [ $1 = 0 ]; then exec ./network serve {PORT}; fi; exec ./network measure rank0 {PORT} {size} {turns}",
        "both.sh",
    )
    return f"""
    universe = parallel
    executable = {script}
    arguments = $(Node)
    output = out.$(Node)
    error = err.$(Node)
    job_network = private
    transfer_input_files = {network}
    should_transfer_files = YES
    +ParallelShutdownPolicy = "WAIT_FOR_ALL"
    machine_count = 1
    requirements = {HOME}
    queue
    requirements = {apart}
    queue
    """


async def _by_network(nodes: Nodes, network: Path, apart: str, size: int, turns: int) -> tuple[float, float]:
    """Bytes a second of a TCP stream from a part elsewhere to one at home, and microseconds of a round trip."""
    place = nodes.directory("network")
    text = _network_job(place, network, apart, size, turns)
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(place))).wait(300.0)
    assert result.ok, (result, (place / "err.0").read_text(), (place / "err.1").read_text())
    rate, trip = (place / "out.1").read_text().split()
    return float(rate), float(trip)


async def _by_pipe(nodes: Nodes, apart: str, size: int) -> float:
    """Bytes a second of a pipe from a part elsewhere to one at home."""
    place = nodes.directory("pipe")
    (place / "writer.py").write_text(WRITER)
    (place / "reader.py").write_text(READER)
    text = f"""
    executable = w={PYTHON} writer.py {size} | r={PYTHON} reader.py > rate
    transfer_input_files = writer.py, reader.py
    should_transfer_files = YES
    w.requirements = {apart}
    r.requirements = {HOME}
    queue
    """
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(place))).wait(300.0)
    assert result.ok, result
    return float((place / "rate").read_text())


async def _starts(pool: Pool, place: Path, count: int) -> float:
    """Seconds from the submit of a local job to its end; the median of some."""
    took = []
    for _ in range(count):
        began = time.perf_counter()
        job = {"executable": "/bin/true", "requirements": HOME, "should_transfer_files": "YES"}
        (result,) = await (await pool.submit(job, iwd=str(place))).wait(60.0)
        assert result.ok, result
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def _directly(place: Path, pool: str) -> str:
    """A flock's file with which machines of this pool and another connect directly."""
    path = place / f"{pool}.toml"
    path.write_text(f'[{pool}]\ndirect = ["127.0.0.1/32"]\n')
    return str(path)


async def _meanwhile(nodes: Nodes, network: Path, apart: str, count: int) -> float:
    """Seconds of a local job while a stream passes between two parts."""
    local = nodes.directory("local")
    async with client(nodes.all[0]) as pool:
        bulk = await pool.submit(_network_job(local, network, apart, 1 << 40, 1), iwd=str(local))
        await asyncio.sleep(3.0)  # until it runs, and its stream is as fast as it becomes
        busy = await _starts(pool, local, count)
        assert [ad.value("JobStatus") for ad in await bulk.ads()] == [2]
        await bulk.remove()
    return busy


@benchmark("flock_parts")
async def flock_parts(effort: Effort) -> list[Row]:
    """A TCP stream and a pipe between parts of one job in two pools, beside two nodes of one pool."""
    size, turns = effort.of(500_000_000, 20_000_000), effort.of(5_000, 200)
    streams: dict[str, list[tuple[float, float]]] = {LENT: [], DIRECT: [], SECOND: []}
    pipes: dict[str, list[float]] = {LENT: [], DIRECT: [], SECOND: []}
    with support.nodes() as nodes, tempfile.TemporaryDirectory() as place:
        network = compiled(Path(place))
        home = nodes.start("home", BOTH, SLOTS="4", FLOCK_FILE=_directly(Path(place), "direct")).ready()
        nodes.start("second", "startd", join=await token(home, "startd"), SLOTS="2", FILESYSTEM_DOMAIN="far").ready()
        for name in ("other", "direct"):
            file = _directly(Path(place), "home") if name == "direct" else ""
            lender = nodes.start(name, BOTH, SLOTS="2", FILESYSTEM_DOMAIN=name, FLOCK_FILE=file).ready()
            await agree(lender, home, (name, "home"))
        async with client(home) as pool:
            await slots(pool, 4)
            for _ in range(ROUNDS if effort.share >= 1 else 1):
                for apart in streams:
                    streams[apart].append(await _by_network(nodes, network, apart, size, turns))
                    pipes[apart].append(await _by_pipe(nodes, apart, size))
            local, count = nodes.directory("local"), effort.of(40, 5)
            quiet = await _starts(pool, local, count)
        busy = {apart: await _meanwhile(nodes, network, apart, count) for apart in streams}
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    (there, straight, here) = (list(map(statistics.median, zip(*one, strict=True))) for one in streams.values())
    far_pipe, straight_pipe, near_pipe = map(statistics.median, pipes.values())
    beside, goal = "two nodes of one pool", Goal("at most", 2.0, "ratio")
    same, quiet_ms = Goal("at least", 0.5, "ratio"), ("nothing passes between pools", quiet * 1e3)
    return [
        Row("one TCP stream between parts in two pools", there[0] / 1e6, "MB/s", None, beside, here[0] / 1e6, load),
        Row("the same where machines connect directly", straight[0] / 1e6, "MB/s", same, beside, here[0] / 1e6),
        Row("a round trip between them", there[1], "us", None, beside, here[1]),
        Row("the same where machines connect directly", straight[1], "us", goal, beside, here[1]),
        Row("a pipe between parts in two pools", far_pipe / 1e6, "MB/s", None, beside, near_pipe / 1e6),
        Row("the same where machines connect directly", straight_pipe / 1e6, "MB/s", same, beside, near_pipe / 1e6),
        Row("a local job meanwhile, from submit to end", busy[LENT] * 1e3, "ms", goal, *quiet_ms),
        Row("the same where machines connect directly", busy[DIRECT] * 1e3, "ms", goal, *quiet_ms),
        Row("the same between two nodes of one pool", busy[SECOND] * 1e3, "ms", None, *quiet_ms),
    ]
