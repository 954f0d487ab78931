"""Hostile calls of every method of the wire, by a stranger, a user, a startd and a schedd, from the table of methods.

    python -m tests.hostile [--seed N] [--calls N]

A new method is called without anybody's thinking of it. Each call is answered or refused in words: none ends in a stack
trace, no role goes down, and nothing is given to who has no right to it.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
from typing import Any

from pool.testing import run_virtual
from pool.testing.pool import SimPool
from pool.wire import Connection, RemoteError
from pool.wire.errors import NotPermitted, Refused, WireError
from pool.wire.identity import ANONYMOUS

SETTINGS = {"CLAIM_LEASE": "60", "UPDATE_INTERVAL": "30", "AD_LIFETIME": "100", "NEGOTIATION_INTERVAL": "60"}
#: Whoever may do these may end the node; that they do is what they are for.
ENDING = {"node.stop", "node.die"}
CALLERS = ("user", "startd", "schedd")
VALUES: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 7, 2**31, 2**53, 10**17, -(2**63), 2.5, float("inf"), float("nan")),
    *("", "x", "1.0", "../../etc/passwd", "slot1@head", "head", "alice", "a" * 3000, "\x00", b"", b"x" * 100),
    *([], [None], ["x"], [1, 0], [[1, 0]], [[]], [["x"]], [{}], {}, {"x": 1}, {"": None}, [[1, 0]] * 50),
)
NAMES = (
    *("claim", "claims", "run", "job", "report", "kind", "data", "submitter", "limit", "references", "matches", "id"),
    *("ids", "action", "constraint", "owner", "ad", "count", "deltas", "slot", "slots", "match", "updates", "gone"),
    *("incarnation", "executable", "generation", "again", "value", "file", "follow", "offset", "lines", "secret"),
    *("number", "part", "card", "reason", "request", "requests", "lease", "start", "order", "ticket", "name", "node"),
)


def drawn(chance: random.Random, takes: Any) -> dict[str, Any]:
    """Parameters that are wrong in some way, or right by chance."""
    names = [*takes, *chance.sample(NAMES, chance.randrange(5))] if chance.random() < 0.9 else []
    return {name: chance.choice(VALUES) for name in names if chance.random() < 0.9}


async def listen(link: Connection, name: str, params: dict[str, Any], chance: random.Random) -> None:
    """Say something in a stream, and hear what comes until it falls silent."""
    stream = await link.stream(name, params)
    try:
        async with asyncio.timeout(1):
            for _ in range(chance.randrange(3)):
                await stream.send(chance.choice(VALUES))
            async for _ in stream:
                pass
    except TimeoutError:
        pass
    finally:
        stream.abort()


async def attack(seed: int, calls: int) -> list[str]:
    """Call each method so often by each caller; what went wrong, in words."""
    wrong: list[str] = []
    chance = random.Random(seed)
    async with SimPool(seed, settings=SETTINGS) as pool:
        await pool.add("head", "collector,negotiator,schedd,startd")
        await pool.submit("head", count=3, owner="victim")
        dispatcher = pool.nodes["head"].dispatcher
        methods = sorted(dispatcher._methods.items())
        for name, entry in methods:
            if entry.declared.right is not None:
                try:
                    dispatcher.find(name, ANONYMOUS, {}, streaming=entry.declared.streaming)
                    wrong.append(f"a stranger may call {name}")
                except NotPermitted:
                    pass
        for caller in CALLERS:
            link = await _link(pool, caller)
            for name, entry in methods:
                for _ in range(calls):
                    params = drawn(chance, entry.declared.takes)
                    try:
                        if link.closed.done():
                            link = await _link(pool, caller)
                        if entry.declared.streaming:
                            await listen(link, name, params, chance)
                        elif name not in ENDING:
                            await link.call(name, params, timeout=5)
                    except RemoteError as error:
                        if error.kind == "InternalError":
                            wrong.append(f"{caller}: {name}({params!r:.300}): {error}")
                    except (WireError, Refused, ValueError, TypeError, OverflowError):
                        continue  # it cannot travel, or nobody waits so long
            await link.close()
        victims = [job for job in pool.role("head", "schedd").queue.jobs() if job.cluster.owner == "victim"]
        if any(job.status in (3, 5) for job in victims):
            wrong.append("a job of another user was changed")
        down = {"collector", "negotiator", "schedd", "startd"} - set(pool.nodes["head"].running)
        wrong += [f"the role {role} went down" for role in sorted(down)]
    return wrong


async def _link(pool: SimPool, caller: str) -> Connection:
    if caller == "user":
        return await pool.network.user("mallory", "head")
    return await pool.network.host(f"rogue-{caller}", roles=[caller]).connect("mem://head")


def main() -> int:
    """Attack, and say what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.hostile", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--calls", type=int, default=1000, help="of each method by each caller")
    given = parser.parse_args()
    wrong: list[str] = run_virtual(attack(given.seed, given.calls))
    print("\n".join(sorted(set(wrong))) or "nothing went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
