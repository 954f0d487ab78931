"""A job's pipe from one machine to another, beside the same programs joined by a plain copying TCP peer.

Two nodes on this machine, TLS between them as ever; the peer is what people do with nc: no encryption, no identities,
64 KiB at a time. The delay is a relay's, on a way without encryption: every byte waits for it, each way half.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.starter.crossing import crossing

WRITER = """
import os, sys
block, left = bytes(1 << 20), int(sys.argv[1])
while left:
    left -= os.write(1, block[:left])
"""
#: Prints bytes a second from the first byte to the end.
READER = """
import os, time
count, begun = len(os.read(0, 1 << 20)), time.perf_counter()
while data := os.read(0, 1 << 20):
    count += len(data)
print(count / (time.perf_counter() - begun))
"""
#: What stands between the two in place of the pool: `send PORT`, or `take`, which says its port first.
PEER = """
import os, socket, sys
if sys.argv[1] == "send":
    with socket.create_connection(("127.0.0.1", int(sys.argv[2]))) as peer:
        while data := os.read(0, 65536):
            peer.sendall(data)
else:
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], file=sys.stderr, flush=True)
        peer, _ = server.accept()
        while data := peer.recv(65536):
            os.write(1, data)
"""
ROUNDS = 3


async def _by_peer(size: int) -> float:
    pipe = asyncio.subprocess.PIPE
    reading, writing = os.pipe()
    take = await asyncio.create_subprocess_exec(sys.executable, "-c", PEER, "take", stdout=writing, stderr=pipe)
    os.close(writing)
    reader = await asyncio.create_subprocess_exec(sys.executable, "-c", READER, stdin=reading, stdout=pipe)
    os.close(reading)
    assert take.stderr is not None
    port = int(await take.stderr.readline())
    reading, writing = os.pipe()
    writer = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, str(size), stdout=writing)
    os.close(writing)
    send = await asyncio.create_subprocess_exec(sys.executable, "-c", PEER, "send", str(port), stdin=reading)
    os.close(reading)
    said, _ = await reader.communicate()
    await asyncio.gather(*(process.wait() for process in (take, writer, send)))
    return float(said)


async def _by_pool(size: int, nodes: support.Nodes) -> float:
    home = nodes.directory("home")
    for name, text in (("writer.py", WRITER), ("reader.py", READER)):
        (home / name).write_text(text)
    text = f"""
    executable = w={sys.executable} r={sys.executable}
    pipe = w | r
    transfer_executable = false
    w.arguments = {home}/writer.py {size}
    r.arguments = {home}/reader.py
    r.output = rate
    spread = on
    queue
    """
    async with client(nodes.all[0]) as pool:
        (result,) = await (await pool.submit(text, iwd=str(home))).wait(120.0)
    assert result.ok, result
    return float((home / "rate").read_text())


async def _delayed(size: int, round_trip: float) -> float:
    """Bytes a second through a relay with this delay."""

    def write(fd: int) -> None:
        block, left = bytes(1 << 20), size
        while left:
            left -= os.write(fd, block[:left])

    def read(fd: int) -> None:
        while os.read(fd, 1 << 20):
            pass

    with tempfile.TemporaryDirectory() as place:
        async with crossing(round_trip / 2, relay=Path(place)) as made:
            begun = time.perf_counter()
            reading = asyncio.create_task(asyncio.to_thread(read, made.read))
            await asyncio.to_thread(write, made.write)
            made.done_writing()
            await reading
            return size / (time.perf_counter() - begun)


def _used(nodes: support.Nodes) -> float:
    return sum(sum(psutil.Process(node.process.pid).cpu_times()[:2]) for node in nodes.all)


@benchmark("spread")
async def spread(effort: Effort) -> list[Row]:
    """A job's pipe between two machines: loopback, and 10 and 100 ms of delay."""
    size = effort.of(512) << 20
    ours, theirs, used = [], [], []
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd")).ready()
        async with client(head) as pool:
            await slots(pool, 2)
        for _ in range(ROUNDS):
            theirs.append(await _by_peer(size) / 1e6)
            before = _used(nodes)
            ours.append(await _by_pool(size, nodes) / 1e6)
            used.append((_used(nodes) - before) / size * 1e9)
    note = f"{statistics.median(used):.1f} s of processor time for a GB, of both nodes; load {os.getloadavg()[0]:.0f}"
    rows = [
        Row(
            "a pipe between two machines, one stream over loopback",
            statistics.median(ours),
            "MB/s",
            Goal("at least", 1000),
            "plain TCP, no encryption",
            statistics.median(theirs),
            note,
        )
    ]
    near = await _delayed(size, 0.0) / 1e6
    for delay in (0.01, 0.1):
        far = await _delayed(size, delay) / 1e6
        note = "through a relay, without encryption"
        rows.append(Row(f"the same over {delay * 1000:g} ms", far, "MB/s", None, "without delay", near, note))
    return rows
