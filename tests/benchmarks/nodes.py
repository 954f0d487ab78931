"""Nodes to measure: the program itself, each in a process and a state directory of its own.

A node that does not come up, or ends by itself, is an error that shows what it logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

from pool.client import NoPool, Pool
from tests.conftest import REPOSITORY

START = 30.0
PROGRAM = ("pool.cli.main",)
LISTEN = ("--set", "LISTEN=127.0.0.1:0")
ALL = "collector,negotiator,schedd,startd"


@dataclass(frozen=True)
class Node:
    """A running node: where it is reached, which process it is, where it keeps its things."""

    address: str
    pid: int
    directory: Path


@contextlib.asynccontextmanager
async def personal_node(slots: int) -> AsyncIterator[Node]:
    """A personal pool, as `poolnode run` makes one."""
    with directory_for_nodes() as directory:
        async with _node(directory, "tests.benchmarks.personal_process", str(slots)) as node:
            yield node


@contextlib.asynccontextmanager
async def whole_node(slots: int, *arguments: str, directory: Path | None = None) -> AsyncIterator[Node]:
    """A node with all roles, as `poolnode --roles` makes one; one of the same directory finds what was left there."""
    keep = directory is not None
    with contextlib.nullcontext(directory) if directory is not None else directory_for_nodes() as where:
        async with _node(where, *PROGRAM, "--roles", ALL, *_slots(slots), *arguments, keep=keep) as node:
            yield node


@contextlib.asynccontextmanager
async def two_nodes(slots: int, *arguments: str) -> AsyncIterator[tuple[Node, Node]]:
    """A submitting node with collector and negotiator, and one with a startd that joined it by token.

    Args:
        arguments: more of the second one's.
    """
    with directory_for_nodes() as here, directory_for_nodes() as there:
        async with _node(here, *PROGRAM, "--roles", "collector,negotiator,schedd", *LISTEN) as submit:
            async with await Pool.connect(submit.address) as pool:
                params = {"roles": ["startd"], "lifetime": 600, "uses": 1}
                token = (await pool.call("node.token", params))["token"]
            joining = (*PROGRAM, "--roles", "startd", "--join", token, "--set", "NODE_NAME=second")
            async with _node(there, *joining, *LISTEN, *_slots(slots), *arguments) as execute:
                yield submit, execute


@contextlib.asynccontextmanager
async def many_nodes(count: int, slots: int) -> AsyncIterator[Node]:
    """A submitting node with collector and negotiator, and many with a startd that joined it by token; the first."""
    async with contextlib.AsyncExitStack() as stack:
        here = stack.enter_context(directory_for_nodes())
        head = (*PROGRAM, "--roles", "collector,negotiator,schedd", *LISTEN)
        submit = await stack.enter_async_context(_node(here, *head))
        async with await Pool.connect(submit.address) as pool:
            params = {"roles": ["startd"], "lifetime": 3600, "uses": count}
            token = (await pool.call("node.token", params))["token"]
        for number in range(count):
            there = stack.enter_context(directory_for_nodes())
            joining = (*PROGRAM, "--roles", "startd", "--join", token, "--set", f"NODE_NAME=m{number}")
            await stack.enter_async_context(_node(there, *joining, *LISTEN, *_slots(slots)))
        yield submit


@contextlib.asynccontextmanager
async def flocking_nodes(slots: int) -> AsyncIterator[tuple[Node, Node]]:
    """A pool without a machine, and another that lends it the machine that it has."""
    with directory_for_nodes() as here, directory_for_nodes() as there:
        mine = (*PROGRAM, "--roles", "collector,negotiator,schedd,world", "--set", "NODE_NAME=mine")
        other = (*PROGRAM, "--roles", f"{ALL},world", "--set", "NODE_NAME=other", "--set", "FILESYSTEM_DOMAIN=away")
        async with _node(here, *mine, *LISTEN) as submit, _node(there, *other, *LISTEN, *_slots(slots)) as execute:
            async with await Pool.connect(execute.address) as pool:
                params = {"roles": ["flock"], "node": "mine", "lifetime": 600, "uses": 1}
                token = (await pool.call("node.token", params))["token"]
            async with await Pool.connect(submit.address) as pool:
                await pool.call("world.accept", {"pool": "other", "token": token})
            yield submit, execute


def _slots(number: int) -> tuple[str, ...]:
    return ("--set", f"SLOTS={number}", "--set", "POLICY=dedicated")


@contextlib.contextmanager
def directory_for_nodes() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="poolnode-bench-", ignore_cleanup_errors=True) as directory:
        yield Path(directory)


@contextlib.asynccontextmanager
async def _node(directory: Path, *arguments: str, keep: bool = False) -> AsyncIterator[Node]:
    state = directory / "state"
    with (directory / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", *arguments, "--state", str(state)),
            cwd=REPOSITORY,
            env=os.environ | {"HOME": str(directory)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    address = f"unix://{state}/node.sock"
    try:
        await _up(address, process, directory / "log")
        yield Node(address, process.pid, directory)
    finally:
        await _stop(process, address, keep)


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-4000:]


async def _up(address: str, process: asyncio.subprocess.Process, log: Path) -> None:
    """Wait until the node answers."""
    try:
        async with asyncio.timeout(START):
            while True:
                try:
                    async with await Pool.connect(address) as pool:
                        await pool.call("node.ping")
                    return
                except (NoPool, OSError):
                    if process.returncode is not None:
                        raise RuntimeError("the node ended:\n" + _tail(log)) from None
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise RuntimeError(f"no answer in {START:g} s:\n" + _tail(log)) from None


async def _stop(process: asyncio.subprocess.Process, address: str, keep: bool) -> None:
    """Remove the jobs that are left, unless they are kept; end the node, by force when it does not listen."""
    with contextlib.suppress(Exception):
        if not keep:
            async with asyncio.timeout(10), await Pool.connect(address) as pool:
                await pool.act("remove", everything=True, force=True)
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(START):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
