"""Files of a job in another pool: by both worlds, directly, and beside them on a second node of the own pool.

Real nodes on loopback. The submit side is a head without machines. Each kind of job runs in turns in the pool `other`,
which has no agreement about direct connections, in the pool `direct`, which has, and on a machine of the own pool.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from pool.client import Pool
from tests.benchmarks.flock_parts import _directly
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.flocks import BOTH, agree
from tests.e2e.support import HEAD, Nodes, client, program, slots, token
from tests.starter.support import PYTHON

ROUNDS = 3
#: By place, a job's requirements.
PLACES = {
    "worlds": 'FlockPool =?= "other"',
    "direct": 'FlockPool =?= "direct"',
    "own": 'FlockPool =?= undefined && Machine == "second"',
}
#: Reads a file, writes another, and asks for names that are not there: says bytes a second, twice, and seconds a call.
REMOTE = """
import os, sys, time
size, calls = int(sys.argv[1]), int(sys.argv[2])
began = time.perf_counter()
with open("big", "rb", buffering=0) as file:
    while file.read(1 << 20): pass
read = time.perf_counter()
with open("written", "wb", buffering=0) as file:
    for _ in range(size >> 20): file.write(bytes(1 << 20))
    os.fsync(file.fileno())
wrote = time.perf_counter()
for number in range(calls):
    os.mkdir("d"); os.rmdir("d")
done = time.perf_counter()
print(size / (read - began), size / (wrote - read), (done - wrote) / calls / 2)
"""


async def _seconds(pool: Pool, place: Path, where: str) -> float:
    """From the submit of a job with a large input to its end."""
    began = time.perf_counter()
    job = {"executable": "/bin/true", "transfer_input_files": "big", "should_transfer_files": "YES"}
    (result,) = await (await pool.submit({**job, "requirements": where}, iwd=str(place))).wait(300.0)
    assert result.ok, result
    return time.perf_counter() - began


async def _remote(pool: Pool, place: Path, where: str, size: int, calls: int) -> tuple[float, float, float]:
    """Bytes a second read and written, and seconds of a call that changes a directory, of remote files."""
    script = program(place, f"exec {PYTHON} remote.py {size} {calls}", "remote.sh")
    job = {"executable": script, "remote_io": "on", "output": "out", "error": "err", "requirements": where}
    (result,) = await (await pool.submit(job, iwd=str(place))).wait(300.0)
    assert result.ok, (result, (place / "err").read_text())
    read, written, call = (place / "out").read_text().split()
    return float(read), float(written), float(call)


async def _measure(nodes: Nodes, size: int, calls: int, rounds: int) -> dict[str, tuple[float, ...]]:
    """By place: seconds of a job with a large input, and `_remote`; medians."""
    place = nodes.directory("files")
    (place / "big").write_bytes(os.urandom(size))
    (place / "remote.py").write_text(REMOTE)
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in PLACES}
    async with client(nodes.all[0]) as pool:
        await slots(pool, 3)
        for _ in range(rounds):
            for name, where in PLACES.items():
                found[name].append(
                    (await _seconds(pool, place, where), *await _remote(pool, place, where, size, calls))
                )
    return {name: tuple(map(statistics.median, zip(*one, strict=True))) for name, one in found.items()}


@benchmark("flock_direct")
async def flock_direct(effort: Effort) -> list[Row]:
    """Inputs and remote files of a job in another pool, by the worlds and directly, beside the own pool."""
    with support.nodes() as nodes, tempfile.TemporaryDirectory() as place:
        home = nodes.start("home", f"{HEAD},world", FLOCK_FILE=_directly(Path(place), "direct")).ready()
        nodes.start("second", "startd", join=await token(home, "startd"), SLOTS="1", FILESYSTEM_DOMAIN="far").ready()
        for name in ("other", "direct"):
            file = _directly(Path(place), "home") if name == "direct" else ""
            lender = nodes.start(name, BOTH, SLOTS="1", FILESYSTEM_DOMAIN=name, FLOCK_FILE=file).ready()
            await agree(lender, home, (name, "home"))
        size, rounds = effort.of(200_000_000, 20_000_000), ROUNDS if effort.share >= 1 else 1
        found = await _measure(nodes, size, effort.of(2000, 100), rounds)
    own, load = found["own"], f"load {os.getloadavg()[0]:.0f} on {os.cpu_count()} CPUs"
    rows = []
    for name, words in (("worlds", "by the worlds"), ("direct", "directly")):
        at_least = Goal("at least", 0.5, "ratio") if name == "direct" else None
        at_most = Goal("at most", 2.0, "ratio") if name == "direct" else None
        took = f"a job in another pool with {size / 1e6:.0f} MB of inputs {words}"
        rows.append(Row(took, found[name][0], "s", at_most, "own pool", own[0], load))
        for index, what in ((1, "remote reads"), (2, "remote writes")):
            here, there = own[index] / 1e6, found[name][index] / 1e6
            rows.append(Row(f"{what} of a job in another pool {words}", there, "MB/s", at_least, "own pool", here))
        call, peer = found[name][3] * 1e6, own[3] * 1e6
        rows.append(Row(f"a remote call that changes a directory {words}", call, "us", at_most, "own pool", peer))
    return rows
