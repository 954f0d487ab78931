"""A job's pipe from one machine to another, beside the same programs joined by a plain copying TCP peer, or two cats.

Two nodes on this machine, TLS between them as ever; the peer is what people do with nc: no encryption, no identities,
64 KiB at a time. Two cats are the least that anything can be that takes bytes from one pipe and puts them into another
on two machines: on a machine whose processors writer, reader, and both nodes share it is the bound. The delay is a
relay's: every byte waits for it, each way half.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.e2e import support
from tests.e2e.support import HEAD, client, slots, token
from tests.pipes.support import crossing

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
#: The program between the two in place of the pool: `send PORT`, or `take`, which says its port first.
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


def _joined(size: int, before: subprocess.Popen[bytes], after: subprocess.Popen[bytes]) -> tuple[float, float]:
    """Bytes a second from a writer into one program and out of another to a reader, and what both took for a GB."""
    assert before.stdin is not None
    assert after.stdout is not None
    python, none = sys.executable, subprocess.DEVNULL
    with subprocess.Popen([python, "-c", READER], stdin=after.stdout, stdout=subprocess.PIPE) as reader:
        after.stdout.close()
        with subprocess.Popen([python, "-c", WRITER, str(size)], stdin=none, stdout=before.stdin):
            before.stdin.close()
            said = reader.communicate()[0]
    used = 0.0
    for process in (before, after):
        _, process.returncode, usage = os.wait4(process.pid, 0)
        used += usage.ru_utime + usage.ru_stime
    return float(said), used / size * 1e9


def _by_peer(size: int) -> tuple[float, float]:
    pipe = subprocess.PIPE
    take = subprocess.Popen([sys.executable, "-c", PEER, "take"], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    assert take.stderr is not None
    with take.stderr:
        port = take.stderr.readline()
    return _joined(size, subprocess.Popen([sys.executable, "-c", PEER, "send", port.decode()], stdin=pipe), take)


def _by_cats(size: int) -> tuple[float, float]:
    reading, writing = os.pipe()
    first = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=writing)
    second = subprocess.Popen(["cat"], stdin=reading, stdout=subprocess.PIPE)
    os.close(reading)
    os.close(writing)
    return _joined(size, first, second)


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


def _middle(runs: list[tuple[float, float]]) -> tuple[float, float]:
    rates, used = zip(*runs, strict=True)
    return statistics.median(rates), statistics.median(used)


def _used(nodes: support.Nodes) -> float:
    return sum(sum(psutil.Process(node.process.pid).cpu_times()[:2]) for node in nodes.all)


@benchmark("spread")
async def spread(effort: Effort) -> list[Row]:
    """A job's pipe between two machines: loopback, and 10 and 100 ms of delay."""
    size = effort.of(512) << 20
    ours, peers, cats = list[tuple[float, float]](), list[tuple[float, float]](), list[tuple[float, float]]()
    with support.nodes() as nodes:
        head = nodes.start("head", HEAD).ready()
        for name in ("one", "two"):
            nodes.start(name, "startd", join=await token(head, "startd")).ready()
        async with client(head) as pool:
            await slots(pool, 2)
        for _ in range(ROUNDS):
            cats.append(await asyncio.to_thread(_by_cats, size))
            peers.append(await asyncio.to_thread(_by_peer, size))
            before = _used(nodes)
            rate = await _by_pool(size, nodes)
            ours.append((rate, (_used(nodes) - before) / size * 1e9))
    (rate, used), (tcp, tcp_used), (copied, copied_used) = map(_middle, (ours, peers, cats))
    load = f"load {os.getloadavg()[0]:.0f}"
    rows = [
        Row(
            "a pipe between two machines, one stream over loopback",
            rate / 1e6,
            "MB/s",
            Goal("at least", 1000),
            "plain TCP, no encryption",
            tcp / 1e6,
            f"two cats {copied / 1e6:.0f} MB/s; {load}",
        ),
        Row(
            "processor time for a GB, of both nodes",
            used,
            "s",
            None,
            "plain TCP, no encryption",
            tcp_used,
            f"two cats {copied_used:.1f} s; {load}",
        ),
    ]
    near = await _delayed(size, 0.0) / 1e6
    for delay in (0.01, 0.1):
        far = await _delayed(size, delay) / 1e6
        note = "through a relay in Python, which is the bound"
        rows.append(Row(f"the same over {delay * 1000:g} ms", far, "MB/s", None, "without delay", near, note))
    return rows
