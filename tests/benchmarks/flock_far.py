"""Tables 7.1 and 7.2 of the thesis beside ours: calls of a job in another pool, and in its own, with delays between.

Real nodes on loopback, both at once, and a job in turns in one and in the other. A proxy delays each byte by half of
the round trip, each way: in another pool between the two worlds, in its own pool between schedd and startd. The
quickest of the jobs counts: it shows the way's own cost where other programs run meanwhile. The thesis (means):
gettimeofday takes 6.6 ms in the own pool and 8.8, 121 and 485 ms in pools that are near, at CERN and in Wisconsin;
1,024 bytes written and read 10.7 and 11.1 ms in the own pool without NFS, 24.7 and 18.1, 195 and 183, 643 and 582 ms in
those.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil

from pool.client import Pool
from tests.benchmarks.flock import PAUSE
from tests.benchmarks.nodes import ALL, LISTEN, PROGRAM, Node, _node, _slots, directory_for_nodes
from tests.benchmarks.remoteio import PROGRAM as CALLS
from tests.benchmarks.remoteio import _fill
from tests.benchmarks.rows import Effort, Goal, Row, benchmark
from tests.starter.support import PYTHON

#: Round trips, milliseconds: of the same building, of a country, of an ocean; and how many jobs run in each place.
DELAYS = {0.2: 9, 10.0: 9, 100.0: 3}
SAME = ("--set", "FILESYSTEM_DOMAIN=elsewhere")
HEAD = "collector,negotiator,schedd"


class DelayingProxy:
    """Carries TCP connections to a port, each byte late.

    Attributes:
        delay: seconds, one way. garbage: whether what comes back is random bytes.
    """

    def __init__(self) -> None:
        self.delay = 0.0
        self.garbage = False
        self.target = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> DelayingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()

    @property
    def public(self) -> tuple[str, ...]:
        """The setting by which others reach a node through this proxy."""
        assert self._server is not None
        return ("--set", f"PUBLIC_ADDRESS=127.0.0.1:{self._server.sockets[0].getsockname()[1]}")

    def lead_to(self, node: Node) -> None:
        """Lead to the port on which a node listens."""
        ports = [
            connection.laddr.port
            for connection in psutil.Process(node.pid).net_connections("tcp")
            if connection.status == "LISTEN"
        ]
        (self.target,) = ports

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:  # the node has ended
            writer.close()
            return
        for source, sink, back in ((reader, there[1], False), (there[0], writer, True)):
            task = asyncio.create_task(self._pass(source, sink, back))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, back: bool) -> None:
        loop = asyncio.get_running_loop()
        last = 0.0
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 20):
                if back and self.garbage:
                    data = secrets.token_bytes(len(data))
                last = max(last, loop.time() + self.delay)
                loop.call_at(last, writer.write, data)
        loop.call_at(max(last, loop.time() + self.delay), writer.close)


@contextlib.asynccontextmanager
async def far_pools(slots: int, own: int = 0) -> AsyncIterator[tuple[Node, Node, DelayingProxy]]:
    """A pool with so many own slots, and one that lends to it through a proxy."""
    async with DelayingProxy() as proxy:
        with directory_for_nodes() as here, directory_for_nodes() as there:
            roles = f"{ALL},world" if own else f"{HEAD},world"
            mine = (*PROGRAM, "--roles", roles, "--set", "NODE_NAME=mine", *LISTEN, *(_slots(own) if own else ()))
            other = (*PROGRAM, "--roles", f"{ALL},world", "--set", "NODE_NAME=other", *SAME, *proxy.public)
            async with _node(here, *mine) as submit, _node(there, *other, *LISTEN, *_slots(slots)) as execute:
                proxy.lead_to(execute)
                async with await Pool.connect(execute.address) as pool:
                    params = {"roles": ["flock"], "node": "mine", "lifetime": 600, "uses": 1}
                    token = (await pool.call("node.token", params))["token"]
                async with await Pool.connect(submit.address) as pool:
                    await pool.call("world.accept", {"pool": "other", "token": token})
                yield submit, execute, proxy


@contextlib.asynccontextmanager
async def far_startd(slots: int) -> AsyncIterator[tuple[Node, Node, DelayingProxy]]:
    """A pool whose only startd is reached through a proxy."""
    async with DelayingProxy() as proxy:
        with directory_for_nodes() as here, directory_for_nodes() as there:
            async with _node(here, *PROGRAM, "--roles", HEAD, *LISTEN) as submit:
                async with await Pool.connect(submit.address) as pool:
                    params = {"roles": ["startd"], "lifetime": 600, "uses": 1}
                    token = (await pool.call("node.token", params))["token"]
                joining = (*PROGRAM, "--roles", "startd", "--join", token, "--set", "NODE_NAME=second", *SAME)
                async with _node(there, *joining, *LISTEN, *_slots(slots), *proxy.public) as execute:
                    proxy.lead_to(execute)
                    yield submit, execute, proxy


@benchmark("flock_far")
async def flock_far(effort: Effort) -> list[Row]:
    """A job's calls in another pool beside its own with 0.2, 10 and 100 ms between, and starts there; three minutes."""
    found = await _calls()
    rows = []
    for delay, (ours, peer) in found.items():
        name, beside = f"{delay:g} ms between", "its own pool, so far away"
        rows += [
            Row(f"gettimeofday in another pool, {name}", ours["clock"] / 200000 * 1e9, "ns",
                Goal("at most", 1.0, "ratio"), beside, peer["clock"] / 200000 * 1e9),
            Row(f"a remote call there (open, append 1,024 bytes, close), {name}", ours["append"] / 20 * 1e3, "ms",
                Goal("at most", 1.0, "ratio"), beside, peer["append"] / 20 * 1e3),
            Row(f"1,024 bytes read there, of 4 MB, {name}", ours["read"] / 4096 * 1e6, "us",
                Goal("at most", 1.0, "ratio"), beside, peer["read"] / 4096 * 1e6),
            Row(f"1,024 bytes written there, of 4 MB, {name}", ours["write"] / 4096 * 1e6, "us",
                Goal("at most", 1.1, "ratio"), beside, peer["write"] / 4096 * 1e6),
        ]  # fmt: skip
    turns = effort.of(9, least=3)
    async with far_pools(2) as (submit, _, proxy), await Pool.connect(submit.address) as pool:
        proxy.delay = 0.05
        started = await starts(pool, turns)
    async with far_startd(2) as (submit, _, proxy), await Pool.connect(submit.address) as pool:
        proxy.delay = 0.05
        at_home = await starts(pool, turns)
    rows.append(
        Row("submit to start in another pool, 100 ms away, median", started, "ms", Goal("at most", 600),
            peer="own pool, 100 ms away", peer_value=at_home)
    )  # fmt: skip
    return rows


async def _calls() -> dict[float, list[dict[str, float]]]:
    """Seconds of the program's parts for each delay, in another pool and in its own."""
    found: dict[float, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        place = Path(directory)
        os.chmod(place, 0o755)
        await asyncio.to_thread(_prepare, place)
        commands = {
            "executable": PYTHON,
            "arguments": f"program.py {place / 'tree'} 1 50 {place / 'took'}",
            "remote_io": "on",
            "error": "err",
        }
        async with contextlib.AsyncExitStack() as stack:
            both = []
            for nodes in (far_pools(1), far_startd(1)):
                submit, _, proxy = await stack.enter_async_context(nodes)
                both.append((await stack.enter_async_context(await Pool.connect(submit.address)), proxy))
            for delay, jobs in DELAYS.items():
                each: list[list[dict[str, float]]] = [[], []]
                for _ in range(jobs):
                    for (pool, proxy), times in zip(both, each, strict=True):
                        proxy.delay = delay / 2000
                        (result,) = await (await pool.submit(commands, iwd=directory)).wait(180, until_stuck=True)
                        assert result.ok, (result, (place / "err").read_text())
                        times.append(json.loads((place / "took").read_text()))
                found[delay] = [{name: min(one[name] for one in times) for name in times[0]} for times in each]
    return found


def _prepare(place: Path) -> None:
    _fill(place / "tree", 1, 50)
    (place / "program.py").write_text(CALLS)
    for path in (place, *place.rglob("*")):
        path.chmod(0o777)


async def starts(pool: Pool, turns: int, ad: dict[str, str] | None = None) -> float:
    """Median of milliseconds from a submit to the job's first instruction; each job is matched anew."""
    times = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        commands = {"executable": "/bin/date", "arguments": "+%s.%N", "output": "out", "error": "err", **(ad or {})}
        for turn in range(turns + 2):
            began = time.time()
            (result,) = await (await pool.submit(commands, iwd=directory)).wait(60, until_stuck=True)
            assert result.ok, result
            if turn >= 2:
                times.append(1000 * (float((Path(directory) / "out").read_text()) - began))
            await asyncio.sleep(PAUSE)
    return statistics.median(times)
