"""Homes are started as they are needed and ended when not; bytes are carried both ways, fairly and within a bound."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pool.errors import PoolError
from pool.identity import identity_of
from pool.remoteio.relay import forward
from pool.remoteio.serving import FileServerLost, FileServers
from pool.roles.schedd.files.remote_io import BandwidthGate
from pool.testing.loop import VirtualLoop


class Pipe:
    """A stream in one process: what one side sends the other one takes."""

    def __init__(self) -> None:
        self.inward: asyncio.Queue[Any] = asyncio.Queue()
        self.outward: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, item: Any) -> None:
        await self.outward.put(item)

    async def finish(self) -> None:
        await self.outward.put(None)

    def raise_limit(self, size: int) -> None:
        assert size > 0

    def __aiter__(self) -> Pipe:
        return self

    async def __anext__(self) -> Any:
        item = await self.inward.get()
        if item is None:
            raise StopAsyncIteration
        return item


async def test_bytes_are_carried_both_ways_until_one_side_ends() -> None:
    loop = asyncio.get_running_loop()
    stream = Pipe()
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    carrying = loop.create_task(forward(stream, ours))
    await stream.inward.put(b"from the job")
    assert await loop.sock_recv(theirs, 100) == b"from the job"
    await loop.sock_sendall(theirs, b"from home")
    assert await stream.outward.get() == b"from home"
    theirs.close()
    await asyncio.wait_for(carrying, 5)
    assert ours.fileno() == -1


def test_a_bounded_bandwidth_is_shared_evenly() -> None:
    """On a clock of its own: on a busy machine's it is shared among those who come in time to ask."""
    gate, sent = BandwidthGate(2e6), {"greedy": 0, "modest": 0}

    async def send(job: str, size: int) -> None:
        while sum(sent.values()) < 1_000_000:
            await gate(job, size)
            sent[job] += size

    async def shared() -> dict[str, int]:
        wishes = [send("greedy", 100_000) for _ in range(6)]
        tasks = [asyncio.ensure_future(wish) for wish in (*wishes, send("modest", 10_000))]
        async with asyncio.timeout(10):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            shares = dict(sent)
            await asyncio.wait(tasks)
        return shares

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        shares = runner.run(shared())
    assert shares["modest"] > sum(shares.values()) * 0.25, shares


async def test_without_a_bound_nobody_waits() -> None:
    gate = BandwidthGate(0.0)
    await asyncio.wait_for(gate("a", 10**12), 1)


def fields(tree: Path) -> dict[str, Any]:
    return {
        "job": "1.0",
        "run": 1,
        "back_to": 0,
        "allowed": "/",
        "trees": str(tree),
        "writes": [str(tree)],
        "reads": [],
        "hidden": [],
        "limit": 1000,
        "watches": 100,
        "nonce": "",
    }


async def test_a_home_that_has_just_ended_is_not_asked_twice(tmp_path: Path) -> None:
    """The first question after its end finds that out, before the loop has heard of it; the second has a new home."""
    file_servers = FileServers(lambda owner: identity_of(owner, "me"))
    (tmp_path / "journal").mkdir()
    journal = os.open(tmp_path / "journal", os.O_RDONLY)
    ours, theirs = socket.socketpair()
    await file_servers.request("me", "open", (journal, theirs.fileno()), **fields(tmp_path))
    theirs.close()
    pid = file_servers.pid("me")
    assert pid is not None
    os.kill(pid, 9)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222 # the loop shall not run meanwhile
    with pytest.raises(FileServerLost):
        await file_servers.request("me", "commit", job="1.0", mark=1)
    await file_servers.request("me", "finish", (journal,), job="1.0")
    assert file_servers.pid("me") != pid
    os.close(journal)
    ours.close()
    await file_servers.close()


async def test_a_home_is_started_when_needed_and_ended_when_not(tmp_path: Path) -> None:
    file_servers = FileServers(lambda owner: identity_of(owner, "me"), idle=0.05)
    (tmp_path / "journal").mkdir()
    assert file_servers.pid("me") is None
    journal = os.open(tmp_path / "journal", os.O_RDONLY)
    ours, theirs = socket.socketpair()
    facts = await file_servers.request("me", "open", (journal, theirs.fileno()), **fields(tmp_path))
    theirs.close()
    assert facts["trees"] == [[str(tmp_path), False]]
    pid = file_servers.pid("me")
    assert pid is not None
    await asyncio.sleep(0.2)
    assert file_servers.pid("me") == pid, "a job is there"
    os.kill(pid, 9)
    with pytest.raises(FileServerLost):
        await file_servers.request("me", "commit", job="1.0", mark=1)
    await file_servers.request("me", "finish", (journal,), job="1.0")
    second = file_servers.pid("me")
    assert second != pid
    assert second is not None
    pidfd = os.pidfd_open(second)
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(pidfd, gone.set)
    await asyncio.wait_for(gone.wait(), 10)
    asyncio.get_running_loop().remove_reader(pidfd)
    os.close(pidfd)
    os.close(journal)
    ours.close()
    await file_servers.close()


async def test_what_a_home_cannot_do_is_said_in_words(tmp_path: Path) -> None:
    file_servers = FileServers(lambda owner: identity_of(owner, "me"))
    with pytest.raises(PoolError, match="file server of me"):
        await file_servers.request("me", "open", (), **fields(tmp_path))
    if os.geteuid() != 0:
        with pytest.raises(PoolError, match="cannot use the files of other"):
            await file_servers.request("other", "open", (), **fields(tmp_path))
    await file_servers.close()
