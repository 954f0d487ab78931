"""Parts of one job in two pools: a TCP stream, round trips and a pipe, beside the same between two nodes of one pool.

Real nodes on loopback. What passes between pools goes through both worlds and the schedd; each world is its own pool's
head here. Local jobs start meanwhile: what they wait is put beside what they wait while nothing passes.
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


@benchmark("flock_parts")
async def flock_parts(effort: Effort) -> list[Row]:
    """A TCP stream and a pipe between parts of one job in two pools, beside two nodes of one pool."""
    size, turns = effort.of(500_000_000, 20_000_000), effort.of(5_000, 200)
    far, near, far_pipe, near_pipe = [], [], [], []
    with support.nodes() as nodes, tempfile.TemporaryDirectory() as place:
        network = compiled(Path(place))
        home = nodes.start("home", BOTH, SLOTS="3").ready()
        nodes.start("second", "startd", join=await token(home, "startd"), SLOTS="2", FILESYSTEM_DOMAIN="far").ready()
        other = nodes.start("other", BOTH, SLOTS="2", FILESYSTEM_DOMAIN="other").ready()
        await agree(other, home, ("other", "home"))
        async with client(home) as pool:
            await slots(pool, 3)
            for _ in range(ROUNDS if effort.share >= 1 else 1):
                far.append(await _by_network(nodes, network, LENT, size, turns))
                near.append(await _by_network(nodes, network, SECOND, size, turns))
                far_pipe.append(await _by_pipe(nodes, LENT, size))
                near_pipe.append(await _by_pipe(nodes, SECOND, size))
            local, count = nodes.directory("local"), effort.of(40, 5)
            quiet = await _starts(pool, local, count)
            bulk = await pool.submit(_network_job(local, network, LENT, 1 << 40, 1), iwd=str(local))
            await asyncio.sleep(3.0)  # until it runs, and its stream is as fast as it becomes
            busy = await _starts(pool, local, count)
            assert [ad.value("JobStatus") for ad in await bulk.ads()] == [2]
            await bulk.remove()
    load = f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    there, here = (list(map(statistics.median, zip(*one, strict=True))) for one in (far, near))
    beside = "two nodes of one pool"
    return [
        Row("one TCP stream between parts in two pools", there[0] / 1e6, "MB/s", None, beside, here[0] / 1e6, load),
        Row("a round trip between them", there[1], "us", None, beside, here[1]),
        Row(
            "a pipe between parts in two pools",
            statistics.median(far_pipe) / 1e6,
            *("MB/s", None, beside, statistics.median(near_pipe) / 1e6),
        ),
        Row(
            "a local job meanwhile, from submit to end",
            busy * 1e3,
            *("ms", Goal("at most", 2.0, "ratio"), "nothing passes between pools", quiet * 1e3),
        ),
    ]
