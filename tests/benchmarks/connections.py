"""The effect on others of one user of the machine who opens connections to its node without end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

from pool.wire.protocol import Protocol
from tests.benchmarks.nodes import whole_node
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.hostile.real import ByUser

#: Users that every Linux has an account for: who floods, and who only asks.
NOBODY, DAEMON = 65534, 1
PYTHON = "/usr/bin/python3"
PROCESSES = 4
FLOODED = "one user opens 20,000 connections:"
#: Opens connections and keeps them; every second one says who it is, as a tool does, and the others say nothing.
FLOOD = """
import socket, sys
path, count, hello = sys.argv[1], int(sys.argv[2]), bytes.fromhex(sys.argv[3])
kept, made = [], 0
for number in range(count):
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(path)
        made += 1
        if number % 2:
            end.sendall(hello)
    except OSError:
        pass
    kept.append(end)
print(made, flush=True)
sys.stdin.read()
"""


@benchmark("connections")
async def connections(effort: Effort) -> list[Row]:
    """Another user's and root's answers while one user opens 20,000 connections to the unix socket. Needs root."""
    if os.geteuid() != 0:
        raise PermissionError("connections of other users need root")
    each = effort.of(20_000, least=400) // PROCESSES
    opening = Protocol(opener=True, hello={})
    opening.send_hello()
    hello = b"".join(opening.take_output()).hex()
    user = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups")
    async with whole_node(slots=1) as node:
        path = node.address.removeprefix("unix://")
        for directory in (os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
            os.chmod(directory, 0o711)
        floods = [
            await asyncio.create_subprocess_exec(
                *(*user, PYTHON, "-c", FLOOD, path, str(each), hello),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
            for _ in range(PROCESSES)
        ]
        try:
            over = asyncio.gather(*(one.stdout.readline() for one in floods if one.stdout is not None))
            began = time.monotonic()
            waits: dict[int, list[float]] = {DAEMON: [], 0: []}
            most = 0
            while not over.done() or not waits[0]:
                for uid, seen in waits.items():
                    seen.append(await _answer(node.address, uid))
                most = max(most, len(os.listdir(f"/proc/{node.pid}/fd")))
            took = time.monotonic() - began
            made = sum(map(int, await over))
            for uid, seen in waits.items():  # and now that all of them are held
                seen.append(await _answer(node.address, uid))
        finally:
            for one in floods:
                one.kill()
                await one.wait()
    note = f"{made} of {each * PROCESSES} connections were made in {took:.1f} s; {len(waits[0])} questions of each"
    return [
        Row(f"{FLOODED} another's longest wait", 1e3 * max(waits[DAEMON]), "ms", Goal("at most", 1000), note=note),
        Row(f"{FLOODED} root's longest wait", 1e3 * max(waits[0]), "ms", Goal("at most", 1000)),
        Row(f"{FLOODED} the node's descriptors", most, "", Goal("at most", 4000)),
    ]


async def _answer(address: str, uid: int) -> float:
    """Seconds until a user who comes now is answered."""
    began = time.monotonic()
    link = await ByUser(uid).connect(address)
    with contextlib.suppress(TimeoutError):
        await link.call("node.ping", {})
    took = time.monotonic() - began
    await link.close()
    return took
