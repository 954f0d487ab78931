"""The start of local jobs while worlds are in trouble, beside the same pool without a world (F-4 of Evers 1993, 5).

Real nodes on loopback, all at once, and the pools take turns, so that the machine's load is the same for both. The own
world is a node of its own, which is stopped (SIGSTOP): its connections stay open, and nothing is answered. The other
pool's world is stopped, is a minute away, or answers random bytes. Meanwhile jobs wait that only the other pool could
run, so that the negotiator, and the schedd, need the worlds in each cycle.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pool.client import Pool
from tests.benchmarks.flock import PAUSE
from tests.benchmarks.flock_far import SAME, DelayingProxy
from tests.benchmarks.nodes import ALL, LISTEN, PROGRAM, Node, _node, _slots, directory_for_nodes
from tests.benchmarks.rows import Effort, Goal, Row, benchmark

#: Starts while a trouble lasts: fewer seconds than machines of a world that is silent stay in the collector.
AT_ONCE = 5
#: Seconds until the machines of the other pool are shown again.
BACK = 60.0
ELSEWHERE = {"executable": "/bin/true", "requirements": 'FlockPool =?= "other"'}


@dataclass(frozen=True, slots=True)
class TroubledPools:
    """A pool with a world, another that lends to it, and one without a world.

    Attributes:
        own, plain: connections to the first and the last. world: the own world's node. lender: the other pool's node.
    """

    own: Pool
    plain: Pool
    world: Node
    lender: Node
    proxy: DelayingProxy


@contextlib.asynccontextmanager
async def _pools() -> AsyncIterator[TroubledPools]:
    async with contextlib.AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(DelayingProxy())

        async def node(name: str, roles: str, *more: str) -> Node:
            place = stack.enter_context(directory_for_nodes())
            arguments = (*PROGRAM, "--roles", roles, "--set", f"NODE_NAME={name}", *LISTEN, *more)
            return await stack.enter_async_context(_node(place, *arguments))

        async def connected(to: Node) -> Pool:
            return await stack.enter_async_context(await Pool.connect(to.address))

        own = await connected(await node("mine", ALL, *_slots(2)))
        plain = await connected(await node("plain", ALL, *_slots(2)))
        token = await own.call("node.token", {"roles": ["world"], "lifetime": 600, "uses": 1})
        world = await node("gate", "world", "--join", token["token"], "--set", "POOL_NAME=mine")
        lender = await node("other", f"{ALL},world", *_slots(1), *SAME, *proxy.public)
        proxy.lead_to(lender)
        asked = {"roles": ["flock"], "node": "mine", "lifetime": 600, "uses": 1}
        invited = await (await connected(lender)).call("node.token", asked)
        await (await connected(world)).call("world.accept", {"pool": "other", "token": invited["token"]})
        yield TroubledPools(own, plain, world, lender, proxy)


async def _shown(pool: Pool) -> None:
    """Wait until the machine of the other pool is among the pool's."""
    async with asyncio.timeout(BACK):
        while True:
            if any(ad.value("FlockPool") == "other" for ad in await pool.machines()):
                return
            await asyncio.sleep(0.1)


async def _started(pool: Pool, directory: str) -> float:
    """Milliseconds from a submit to the job's first instruction."""
    began = time.time()
    commands = {"executable": "/bin/date", "arguments": "+%s.%N", "output": "out", "error": "err", "flock": "false"}
    (result,) = await (await pool.submit(commands, iwd=directory)).wait(60, until_stuck=True)
    assert result.ok, result
    return 1000 * (float((Path(directory) / "out").read_text()) - began)


async def _median_starts(
    pools: TroubledPools, turns: int, begin: Callable[[], object], end: Callable[[], object], directory: str
) -> tuple[float, float]:
    """Median starts during a trouble, of the pool with a world and of the one without, in turns."""
    own: list[float] = []
    plain: list[float] = []
    while len(own) < turns:
        await _shown(pools.own)
        begin()
        try:
            waiting = await pools.own.submit(ELSEWHERE, iwd=directory)
            for turn in range(AT_ONCE):
                pair = [(pools.own, own), (pools.plain, plain)]
                for pool, times in pair if turn % 2 else reversed(pair):
                    times.append(await _started(pool, directory))
                await asyncio.sleep(PAUSE)
        finally:
            end()
        await waiting.remove()
    return statistics.median(own), statistics.median(plain)


@benchmark("flock_trouble")
async def flock_trouble(effort: Effort) -> list[Row]:
    """Starts of local jobs while the own world hangs, or another is stopped, far or mad; three minutes."""
    turns = effort.of(20, least=AT_ONCE)
    rows = []
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-") as directory:
        async with _pools() as pools:
            proxy = pools.proxy
            for name, begin, end in (
                ("no world is in trouble", bool, bool),
                ("the own world hangs (SIGSTOP)", *_stopped(pools.world)),
                ("the other world hangs (SIGSTOP)", *_stopped(pools.lender)),
                (
                    "the other world is a minute away",
                    partial(setattr, proxy, "delay", 60.0),
                    partial(setattr, proxy, "delay", 0.0),
                ),
                (
                    "the other world answers garbage",
                    partial(setattr, proxy, "garbage", True),
                    partial(setattr, proxy, "garbage", False),
                ),
            ):
                during, without = await _median_starts(pools, turns, begin, end, directory)
                rows.append(
                    Row(f"start of a local job while {name}, median of {turns}", during, "ms",
                        Goal("at most", 1.0, "ratio"), peer="a pool without a world", peer_value=without)
                )  # fmt: skip
    return rows


def _stopped(node: Node) -> tuple[Callable[[], object], Callable[[], object]]:
    return partial(os.kill, node.pid, signal.SIGSTOP), partial(os.kill, node.pid, signal.SIGCONT)
