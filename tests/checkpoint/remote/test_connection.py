"""The stream lost and replaced: the job waits and goes on, and nothing is done twice or not at all."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import random
import socket
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pool.checkpoint.messages_table import Verb
from pool.starter.handle import NativeKeeper
from pool.starter.messages import Report, start_failed
from pool.starter.spec import StartFailed
from tests.checkpoint.remote.conftest import Site, wait_for_output
from tests.remoteio.support import HomeProcess, JobEnd
from tests.starter.support import PYTHON, helpers, soon, spec


class Relay:
    """Passes bytes between the keeper and the submit side; cut at any byte, with what is on its way lost."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._tasks: list[asyncio.Task[None]] = []
        self._writers: list[asyncio.StreamWriter] = []
        self.end: socket.socket | None = None
        self._passes = asyncio.Event()
        self._passes.set()
        self.holds_something = asyncio.Event()

    async def connect(self, keeper: NativeKeeper | None = None) -> socket.socket:
        """A new stream; handed to the keeper, where it runs already."""
        home: JobEnd = self._site.connect()
        ours, theirs = socket.socketpair()
        home.end.setblocking(False)
        ours.setblocking(False)
        left, right = await asyncio.open_connection(sock=home.end), await asyncio.open_connection(sock=ours)
        self._writers = [left[1], right[1]]
        self._tasks = [
            asyncio.create_task(self._pass(left[0], right[1])),
            asyncio.create_task(self._pass(right[0], left[1], requests=True)),
        ]
        if keeper is not None:
            with theirs:
                keeper.remote(theirs.fileno())
        return theirs

    def hold_requests(self) -> None:
        """From now on no request reaches the submit side."""
        self._passes.clear()

    def pass_requests(self) -> None:
        """Requests reach it again."""
        self._passes.set()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool = False
    ) -> None:
        while data := await reader.read(65536):
            if requests and not self._passes.is_set():
                self.holds_something.set()
                await self._passes.wait()
            writer.write(data)
            await writer.drain()

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()
        for writer in self._writers:
            writer.transport.abort()


async def outlive_a_cut(
    relay: Relay, site: Site, keeper: NativeKeeper, asked: Coroutine[Any, Any, object], killed: bool
) -> Relay:
    """Cut the connection while requests of what is asked for are held on their way, and give the keeper another, on
    which it is done; `killed`: from another submit side. The new one.
    """
    relay.hold_requests()
    doing = asyncio.ensure_future(asked)
    await soon(relay.holds_something.wait())
    if killed:
        site.home.kill()
    relay.cut()
    if killed:
        site.home = HomeProcess()
    again = Relay(site)
    (await again.connect(keeper)).close()
    await doing
    return again


COUNTING = """
import os, sys
log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
data = os.open("data", os.O_RDWR | os.O_CREAT, 0o644)
source = open("source", "rb")
for number in range(400):
    os.write(log, b"%d\\n" % number)
    os.pwrite(data, b"%6d\\n" % number, number * 7)
    os.mkdir("directory%d" % number)
    os.rename("directory%d" % number, "renamed%d" % number)
    os.rmdir("renamed%d" % number)
    if number % 20 == 0:
        os.fsync(data)
        print(number, flush=True)
    assert source.read(1000) == bytes([number % 256]) * 1000
print("done", flush=True)
"""


async def test_a_job_goes_on_over_stream_after_stream(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "source").write_bytes(b"".join(bytes([number % 256]) * 1000 for number in range(400)))
    relay, chance = Relay(site), random.Random(5)
    theirs = await relay.connect()
    try:
        wanted = site.spec(PYTHON, "-c", COUNTING)
        keeper = await soon(site.keepers.start(wanted, remote=theirs.fileno()))
    finally:
        theirs.close()
    for _ in range(8):
        await asyncio.sleep(chance.random() * 0.08)
        relay.cut()
        await asyncio.sleep(chance.random() * 0.02)
        await relay.connect(keeper)
    end = await soon(keeper.ended)
    relay.cut()
    assert (end.code, site.error()) == (0, ""), site.output()
    assert site.output().endswith("done\n")
    assert (site.tree / "log").read_text() == "".join(f"{number}\n" for number in range(400))
    assert (site.tree / "data").read_text() == "".join(f"{number:6d}\n" for number in range(400))
    left = [name for name in os.listdir(site.tree) if not name.startswith(".poolnode")]
    assert sorted(left) == ["data", "log", "source"]


async def waiting_start(site: Site, relay: Relay) -> tuple[NativeKeeper, asyncio.Task[NativeKeeper]]:
    """A start that waits for the submit side, since the job's output is opened through its files."""
    theirs = await relay.connect()
    relay.hold_requests()
    asked: asyncio.Future[NativeKeeper] = asyncio.get_running_loop().create_future()
    wanted = replace(site.spec("/bin/echo", "it runs"), stdout=str(site.tree / "output"))
    with theirs:
        starting = asyncio.create_task(site.keepers.start(wanted, remote=theirs.fileno(), asked=asked.set_result))
        keeper = await soon(asked)
        await soon(relay.holds_something.wait())
    return keeper, starting


async def test_a_start_whose_stream_is_lost_goes_on_with_the_next(site: Site) -> None:
    """The job's output is opened through its files, so that the program would never run."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    keeper, starting = await waiting_start(site, relay)
    relay.cut()
    assert not starting.done()
    relay.pass_requests()
    await relay.connect(keeper)
    assert await soon(starting) is keeper
    assert (await soon(keeper.ended)).code == 0
    relay.cut()
    assert (site.tree / "output").read_text() == "it runs\n"


async def test_a_start_whose_file_server_dies_may_be_tried_again(site: Site) -> None:
    """It fails for the machine's sake, not the job's, which must not be held for it."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    _, starting = await waiting_start(site, relay)
    (parent,) = psutil.Process(site.keepers.fork_server_pid).children()
    server = min(parent.children(), key=lambda one: one.pid)
    server.kill()
    (came,) = await soon(asyncio.gather(starting, return_exceptions=True))
    if isinstance(came, StartFailed):  # whichever of the two the keeper hears of first
        assert came.retry, came
    else:
        assert isinstance(came, NativeKeeper)
        assert (await soon(came.ended)).error.endswith("of its remote files died")
    relay.cut()


@pytest.mark.parametrize("err", [errno.ECONNABORTED, errno.ENOTCONN, errno.ENOSYS])
def test_what_a_dead_server_makes_fail_may_be_tried_again(tmp_path: Path, err: int) -> None:
    program = str(tmp_path / "program")
    report = Report._make((Verb.FAILED, 1, *[0] * 6, err, *[0] * 10, "exec", program, ()))
    failed = start_failed(spec(tmp_path, program, remote=(str(tmp_path),)), report)
    assert (failed.retry, failed.message.endswith("the server of its remote files died")) == (True, True)
    assert not start_failed(spec(tmp_path, program), report).retry, "none of its files is remote"


LOCKING = """
import fcntl, os, time
file = os.open("file", os.O_RDWR | os.O_CREAT, 0o666)
fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
fcntl.lockf(file, fcntl.LOCK_UN, 5, 0)
whole = os.open("whole", os.O_RDWR | os.O_CREAT, 0o666)
fcntl.flock(whole, fcntl.LOCK_EX)
print("locked", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
try:
    os.write(file, b"mine")
    os.fsync(file)
    print("still mine", flush=True)
except OSError as error:
    print(error.strerror, flush=True)
while not os.path.exists("end"):
    time.sleep(0.02)
"""


@pytest.mark.parametrize("meanwhile", [False, True])
@pytest.mark.parametrize("way", ["fuse"])
async def test_locks_outlive_a_home_that_is_killed(site: Site, meanwhile: bool) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    theirs = await relay.connect()
    with theirs:
        keeper = await soon(site.keepers.start(site.spec(PYTHON, "-c", LOCKING), remote=theirs.fileno()), 15)
    await wait_for_output(site, "locked")
    site.home.kill()
    relay.cut()
    with (site.tree / "file").open("r+") as other, (site.tree / "whole").open() as whole:
        if meanwhile:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        site.home = HomeProcess()
        await relay.connect(keeper)
        (site.tree / "go").touch()
        await wait_for_output(site, "Input/output error" if meanwhile else "still mine")
        with pytest.raises(BlockingIOError):
            fcntl.flock(whole, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not meanwhile:
            fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)  # what had been let go of
            with pytest.raises(BlockingIOError):
                fcntl.lockf(other, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
    (site.tree / "end").touch()
    end = await soon(keeper.ended, 20)
    relay.cut()
    assert (end.code, site.error()) == (0, "")


async def test_a_job_that_waits_for_home_can_be_killed(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    theirs = await relay.connect()
    with theirs:
        wanted = site.spec("/bin/sh", "-c", "echo ready; while :; do cat none; done")
        keeper = await soon(site.keepers.start(wanted, remote=theirs.fileno()))
    await wait_for_output(site, "ready")
    relay.cut()
    await keeper.kill()
    assert (await soon(keeper.ended, 5)).cause == "killed"


@pytest.mark.parametrize("lasts", [0.3, 600], ids=["over", "running"])
async def test_a_job_waits_for_home_as_long_as_its_lease(site: Site, lasts: float) -> None:
    """Whether it has ended, and what it wrote is on its way, or not."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    (site.tree / "in").write_text("line\n")
    relay = Relay(site)
    theirs = await relay.connect()
    with theirs:
        script = f"exec 4<in; read line <&4; echo ready; sleep {lasts}"
        wanted = site.spec("/bin/sh", "-c", script, lease_seconds=1.0)
        keeper = await soon(site.keepers.start(wanted, remote=theirs.fileno()))
    await wait_for_output(site, "ready")
    relay.cut()
    assert (await soon(keeper.ended, 10)).cause == "lease"


@pytest.mark.parametrize("number", [0, 1])
async def test_who_serves_the_files_is_killed_and_the_run_ends(site: Site, way: str, number: int) -> None:
    """A call that nobody answers any more is no end of the job's own."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    keeper = await site.start("/bin/sh", "-c", "echo on; while cat nothing 2>/dev/null; [ ! -e go ]; do :; done")
    await wait_for_output(site, "on")
    serving = helpers(keeper)
    assert len(serving) == (1 if way == "fuse" else 2)
    if number < len(serving):
        serving[number].kill()
    else:
        await keeper.kill()
    end = await soon(keeper.ended, 20)
    assert end.cause == "killed"
    assert helpers(keeper) == []
