"""The submit machine's files in a job, beside the same program on a local disk in the same run; with delay put between.

Near and far are a keeper and a home with nothing or a delay between them; through two nodes is the whole way, with TLS.
The delay is a relay's of this file, not the kernel's: every byte waits for it, each way half.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from pool.client import Pool
from pool.starter.keeper import NativeKeepers
from tests.benchmarks.nodes import two_nodes
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.remoteio.support import HomeProcess
from tests.starter.support import PYTHON, spec

RECORD = 1024
PROGRAM = """
import json, os, subprocess, sys, time
directory, megabytes, files = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.chdir(directory)
took = {}

def timed(name, work):
    begun = time.perf_counter()
    work()
    took[name] = time.perf_counter() - begun

def write():
    with open("records", "wb", buffering=0) as file:
        for _ in range(4096):
            file.write(record)

def read(name, size):
    with open(name, "rb", buffering=0) as file:
        room = bytearray(size)
        while file.readinto(room):
            pass

def each():
    for number in range(50):
        os.close(os.open("files/%d" % number, os.O_RDONLY))

def clock():
    for _ in range(200000):
        time.time()

def write_large():
    with open("written", "wb", buffering=0) as file:
        for _ in range(megabytes):
            file.write(room)

def grow():
    for number in range(20):
        with open("log", "ab", buffering=0) as file:
            file.write(record)

record = b"x" * 1024
room = b"y" * (1 << 20)
timed("write", write)
timed("read", lambda: read("records", 1024))
timed("first", lambda: read("large", 1 << 20))
timed("cached", lambda: read("large", 1 << 20))
timed("large", write_large)
timed("open", each)
timed("append", grow)
grep = ["grep", "-r", "no such word", "files"]
subprocess.run(grep)
timed("grep", lambda: subprocess.run(grep))
timed("clock", clock)
with open(sys.argv[4] if len(sys.argv) > 4 else "/dev/stdout", "w") as file:
    print(json.dumps(took), file=file)
"""

#: The work of a job in a tree that it only reads.
READING = """
import json, os, subprocess, sys, time
os.chdir(sys.argv[1])
took = {}

def timed(name, work):
    begun = time.perf_counter()
    work()
    took[name] = time.perf_counter() - begun

def read():
    with open("large", "rb", buffering=0) as file:
        room = bytearray(1 << 20)
        while file.readinto(room):
            pass

def each():
    for number in range(1000):
        os.close(os.open("files/%d" % (number % 50), os.O_RDONLY))

read()
timed("cached", read)
grep = ["grep", "-r", "no such word", "files"]
subprocess.run(grep)
timed("grep", lambda: subprocess.run(grep))
timed("open", each)
print(json.dumps(took))
"""


def _fill(directory: Path, megabytes: int, files: int) -> None:
    (directory / "files").mkdir(parents=True)
    for number in range(files):
        (directory / "files" / str(number)).write_text("some words\n" * 20)
    with (directory / "large").open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(1 << 20))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay: float) -> None:
    loop = asyncio.get_running_loop()
    while data := await reader.read(1 << 20):
        loop.call_later(delay, writer.write, data)


@contextlib.asynccontextmanager
async def delayed(home: socket.socket, delay: float) -> AsyncIterator[socket.socket]:
    """Home's stream, each way half the delay further off."""
    if not delay:
        yield home
        return
    ours, theirs = socket.socketpair()
    for end in (home, ours):
        end.setblocking(False)
    left, right = await asyncio.open_connection(sock=home), await asyncio.open_connection(sock=ours)
    tasks = [
        asyncio.create_task(_pass(left[0], right[1], delay / 2)),
        asyncio.create_task(_pass(right[0], left[1], delay / 2)),
    ]
    try:
        yield theirs
    finally:
        theirs.close()
        for task in tasks:
            task.cancel()
        for _, writer in (left, right):
            writer.transport.abort()


def _result(place: Path) -> dict[str, float]:
    took: dict[str, float] = json.loads((place / "scratch" / "out").read_text())
    shutil.rmtree(place)
    return took


async def _in_a_job(
    keepers: NativeKeepers, top: Path, delay: float, arguments: tuple[str, ...], *, static: bool = False
) -> dict[str, float]:
    place = top / f"job{delay}{static}"
    tree, scratch, journal = place / "tree", place / "scratch", place / "journal"
    for directory in (scratch, journal):
        directory.mkdir(parents=True)
    await asyncio.to_thread(_fill, tree, int(arguments[0]), int(arguments[1]))
    home = HomeProcess()
    end = home.open(tree, journal, trees=f"{tree}:static" if static else None)
    shown = tuple(path for path, _ in home.answer["trees"])
    async with delayed(end.end, delay) as stream:
        wanted = spec(
            scratch, PYTHON, "-c", READING if static else PROGRAM, str(tree), *arguments, cwd="/job", fixed=True,
            stdout="/job/out", stderr="/job/err", isolation="full", remote=shown, static_remotes=int(static),
        )  # fmt: skip
        keeper = await keepers.start(wanted, remote=stream.fileno())
        await keeper.ended
        await keeper.forget()
    end.close()
    home.close()
    return await asyncio.to_thread(_result, place)


async def _through_nodes(top: Path, arguments: tuple[str, ...]) -> dict[str, float]:
    """The same in a job of one node on another's files."""
    place = top / "nodes"
    await asyncio.to_thread(_fill, place / "tree", int(arguments[0]), int(arguments[1]))
    for path in (place, *place.rglob("*")):
        await asyncio.to_thread(path.chmod, 0o777)
    (place / "program.py").write_text(PROGRAM)
    commands = {
        "executable": PYTHON,
        "arguments": f"program.py {place / 'tree'} {' '.join(arguments)} {place / 'took'}",
        "remote_io": "on",
        "requirements": 'Machine == "second"',
    }
    elsewhere = ("--set", "FILESYSTEM_DOMAIN=elsewhere")
    async with two_nodes(1, *elsewhere) as (submit, _), await Pool.connect(submit.address) as pool:
        cluster = await pool.submit(commands, iwd=str(place))
        (result,) = await cluster.wait(120, until_stuck=True)
    if result.exit_code != 0:
        raise RuntimeError(f"the job through two nodes: {result}")
    took: dict[str, float] = json.loads(await asyncio.to_thread((place / "took").read_text))
    await asyncio.to_thread(shutil.rmtree, place)
    return took


@benchmark("remoteio")
async def remoteio(effort: Effort) -> list[Row]:
    """The cost for a job of having its files on another machine."""
    megabytes, files = effort.of(200, 8), effort.of(10000, 100)
    top = Path(tempfile.mkdtemp(prefix="remoteio"))
    os.chmod(top, 0o755)
    keepers = NativeKeepers(top / "keepers")
    await keepers.open()
    try:
        if not keepers.abilities.fuse:
            return []
        await asyncio.to_thread(_fill, top / "local", megabytes, files)
        arguments = (str(megabytes), str(files))
        command = [PYTHON, "-c", PROGRAM, str(top / "local"), *arguments]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        local = json.loads(done.stdout)
        near = await _in_a_job(keepers, top, 0.0, arguments)
        rows = [
            Row("write of 1,024 bytes to a remote file of 4 MB", near["write"] / 4096 * 1e6, "us",
                Goal("at most", 2, "ratio"), "local file", local["write"] / 4096 * 1e6),
            Row("read of 1,024 bytes from it", near["read"] / 4096 * 1e6, "us",
                Goal("at most", 1.2, "ratio"), "local file", local["read"] / 4096 * 1e6),
            Row("remote file read in order, first time", megabytes / near["first"], "MB/s",
                Goal("at least", 500), "local file", megabytes / local["first"]),
            Row("remote file read in order, cached", megabytes / near["cached"], "MB/s",
                Goal("at least", 0.8, "ratio"), "local file", megabytes / local["cached"]),
            Row("open and close of a remote file", near["open"] / 50 * 1e6, "us", Goal("at most", 8),
                "local file", local["open"] / 50 * 1e6),
            Row(f"grep -r over {files:,} small remote files, warm", near["grep"], "s",
                Goal("at most", 3, "ratio"), "local files", local["grep"]),
            Row("gettimeofday in a job", near["clock"] / 200000 * 1e9, "ns",
                Goal("at most", 1.05, "ratio"), "plain", local["clock"] / 200000 * 1e9),
        ]  # fmt: skip
        command = [PYTHON, "-c", READING, str(top / "local")]
        done = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=True)
        local = json.loads(done.stdout)
        still = await _in_a_job(keepers, top, 0.0, arguments, static=True)
        rows += [
            Row(f"the same in a static tree: grep -r over {files:,} small files, warm", still["grep"], "s",
                Goal("at most", 3, "ratio"), "local files", local["grep"]),
            Row("open and close of a file, known", still["open"] / 1000 * 1e6, "us",
                Goal("at most", 8), "local file", local["open"] / 1000 * 1e6),
            Row("read in order, cached", megabytes / still["cached"], "MB/s",
                Goal("at least", 0.8, "ratio"), "local file", megabytes / local["cached"]),
        ]  # fmt: skip
        some = effort.of(50, 4)
        through = await _through_nodes(top, (str(some), "50"))
        rows += [
            Row("through two nodes: read in order", some / through["first"], "MB/s", None,
                "keeper and home alone", megabytes / near["first"]),
            Row("through two nodes: written in order", some / through["large"], "MB/s", None,
                "keeper and home alone", megabytes / near["large"]),
        ]  # fmt: skip
        for delay in (0.01, 0.1):
            far = await _in_a_job(keepers, top, delay, (str(some), "50"))
            name = f"{delay * 1000:.0f} ms"
            rows += [
                Row(
                    f"4 MB written by 1,024 bytes, {name} away", far["write"] / delay, "delays", goal=Goal("at most", 8)
                ),
                Row(f"open and close, {name} away", far["open"] / 50 / delay, "delays", goal=Goal("at most", 1.2)),
                Row(f"open, append and close, {name} away", far["append"] / 20 / delay, "delays"),
                Row(f"read in order, {name} away", some / far["first"], "MB/s"),
                Row(f"written in order, {name} away", some / far["large"], "MB/s"),
            ]
        return rows
    finally:
        await keepers.close(kill=True)
        shutil.rmtree(top)
