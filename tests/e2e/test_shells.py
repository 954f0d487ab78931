"""Shells in running jobs, on another machine than the schedd's: `poolnode ssh`, `attach`, `submit --interactive`."""

from __future__ import annotations

import asyncio
import os
import pty
import select
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.client import Cluster, Pool
from pool.client.network import UserNetwork
from pool.client.shells import ShellInput, run_shell
from pool.errors import PoolError
from tests.e2e import support
from tests.e2e.support import HEAD, PATIENCE, Nodes, client, poolnode, slots, token


@pytest.fixture(scope="module")
def two(whose_pool: object) -> Iterator[Nodes]:
    async def start(nodes: Nodes) -> None:
        head = nodes.start("head", HEAD).ready()
        nodes.start("one", "startd", join=await token(head, "startd"), SLOTS="2", CHECKPOINT_WORTH="0").ready()
        async with client(head) as pool:
            await slots(pool, 1)

    with support.running(start) as nodes:
        yield nodes


@pytest.fixture
def home(two: Nodes, request: pytest.FixtureRequest) -> Path:
    return two.directory(support.directory_name(request))


async def running(pool: Pool, home: Path, **commands: Any) -> Cluster:
    cluster = await pool.submit({"executable": "/bin/sleep", "arguments": "600", **commands}, iwd=str(home))

    async def runs() -> bool:
        return [ad.value("JobStatus") for ad in await cluster.ads()] == [2]

    await support.asked(runs, "the job runs")
    return cluster


async def inputs(*items: ShellInput) -> AsyncIterator[ShellInput]:
    for item in items:
        yield item
    await asyncio.Event().wait()


class Screen:
    """The output of a shell."""

    def __init__(self) -> None:
        self.text = ""
        self._changed = asyncio.Event()

    def __call__(self, data: bytes) -> None:
        self.text += data.decode(errors="replace")
        self._changed.set()

    async def shows(self, text: str) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                while text not in self.text:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"{text!r} is not in {self.text!r}") from None


async def test_a_command_sees_what_the_job_sees(two: Nodes, home: Path) -> None:
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home, environment={"WORD": "two words"}, should_transfer_files="YES")
        job, screen = (cluster.cluster, 0), Screen()
        command = "pwd; echo $WORD; echo $POOLNODE_JOB; cat /proc/2/comm; cat; exit 7"
        assert await run_shell(pool, job, inputs(b"typed\n", None), screen, command=command) == 7
        assert screen.text.split("\n")[:5] == ["/job", "two words", f"{cluster.cluster}.0", "sleep", "typed"]
        many = Screen()
        assert await run_shell(pool, job, inputs(), many, command="head -c 3000000 /dev/zero | tr '\\0' x") == 0
        assert len(many.text) == 3_000_000
        assert await run_shell(pool, job, inputs(), many, command="kill -9 $$") == 137
        await cluster.remove()


async def test_a_terminal_is_a_real_one(two: Nodes, home: Path) -> None:
    """With the window's size, and the end of a job that is removed meanwhile."""
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home)
        screen, typed = Screen(), asyncio.Queue[ShellInput]()

        async def keys() -> AsyncIterator[ShellInput]:
            while True:
                yield await typed.get()

        shell = asyncio.ensure_future(
            run_shell(pool, (cluster.cluster, 0), keys(), screen, terminal=True, kind="vt100")
        )
        typed.put_nowait((33, 77))
        typed.put_nowait(b"stty size; tty; echo type $TERM\n")
        await screen.shows("33 77")
        await screen.shows("type vt100")
        assert "/dev/pts/" in screen.text
        await cluster.remove()
        try:
            async with asyncio.timeout(PATIENCE):
                assert await shell == 137
        except PoolError:
            pass  # the claim ended first


async def test_ctrl_c_and_the_windows_size_reach_the_program(two: Nodes, home: Path) -> None:
    """It is the one in the foreground of the terminal; nothing else of the job is interrupted."""
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home)
        screen, began = Screen(), asyncio.Event()

        async def keys() -> AsyncIterator[ShellInput]:
            await began.wait()
            yield (20, 50)
            await screen.shows("20 50")
            yield b"\x03"
            await asyncio.Event().wait()

        command = "trap 'stty size' WINCH; trap 'echo interrupted; exit 3' INT; echo begun; "
        command += "while :; do sleep 0.05; done"
        shell = asyncio.ensure_future(
            run_shell(pool, (cluster.cluster, 0), keys(), screen, terminal=True, command=command)
        )
        await screen.shows("begun")
        began.set()
        assert await shell == 3
        assert "^C" in screen.text
        assert "interrupted" in screen.text
        assert [ad.value("JobStatus") for ad in await cluster.ads()] == [2]
        await cluster.remove()


async def test_a_checkpoint_waits_for_a_shell_and_a_move_ends_it(two: Nodes, home: Path) -> None:
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home)
        screen = Screen()
        job = (cluster.cluster, 0)
        vanishes = asyncio.ensure_future(run_shell(pool, job, inputs(), screen, command="echo there; sleep 601"))
        await screen.shows("there")
        refused = await cluster.checkpoint()
        assert "a shell is open in the job" in refused.refused[0][1]
        vanishes.cancel()  # its client is gone: so is the shell, with the processes of its session
        await asyncio.gather(vanishes, return_exceptions=True)

        async def saved() -> bool:
            return (await cluster.checkpoint()).done == 1

        await support.asked(saved, "the job is saved")
        left = Screen()
        await run_shell(pool, job, inputs(), left, command="for p in /proc/[0-9]*; do cat $p/comm; done | sort")
        assert left.text.split().count("sleep") == 1
        stays = asyncio.ensure_future(run_shell(pool, job, inputs(), screen, command="echo again; exec sleep 602"))
        await screen.shows("again")
        assert (await cluster.vacate()).done == 1
        async for event in cluster.events():
            if event.kind.name == "EVICTED":
                assert event.data["checkpointed"] is True
                break
        assert isinstance((await asyncio.gather(stays, return_exceptions=True))[0], (int, PoolError))
        await cluster.remove()


async def test_a_shell_is_for_the_jobs_owner_only(two: Nodes, home: Path) -> None:
    """And nothing but its items and its wish is taken."""
    wish = {"terminal": False, "type": "", "command": "id"}
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home)
        made = await token(two.all[0], "user", user="daemon")
        address = two.all[0].said("ready")["address"]
        for method, ids in (("schedd.shell", {"id": [cluster.cluster, 0]}), ("startd.shell", {"claim": "x", "run": 1})):
            async with await Pool.connect(address, network=UserNetwork({"POOLNODE_TOKEN": made})) as other:
                with pytest.raises(PoolError):
                    async with other.streaming(method, {**ids, "shell": wish}) as stream:
                        await stream.receive()
        for wrong in ({}, {**wish, "terminal": 1}, {**wish, "more": ""}, {**wish, "command": "x\0y"}, "sh"):
            with pytest.raises(PoolError):
                async with pool.streaming("schedd.shell", {"id": [cluster.cluster, 0], "shell": wrong}) as stream:
                    await stream.receive()
        with pytest.raises(PoolError, match="at most"):
            await run_shell(pool, (cluster.cluster, 0), inputs(), Screen(), command="x" * 20000)
        asked = {"id": [cluster.cluster, 0], "shell": {**wish, "command": "sleep 603"}}
        for item in ([1], [1, 70000], [True, 2], "text", 7, {"code": 0}):
            async with pool.streaming("schedd.shell", asked) as stream:
                assert await stream.receive() == "connected"
                await stream.send(item)
                with pytest.raises((PoolError, EOFError)):
                    await stream.receive()
        await cluster.hold()

        async def held() -> bool:
            return [ad.value("JobStatus") for ad in await cluster.ads()] == [5]

        await support.asked(held, "the job is held")
        with pytest.raises(PoolError, match="does not run on a machine"):
            await run_shell(pool, (cluster.cluster, 0), inputs(), Screen(), command="id")
        await cluster.remove()


def drop_in(tool: str, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run one of HTCondor's commands as `poolnode compat` installs it."""
    code = f"import sys; from pool.compat.entry import status; sys.exit(status({tool!r}, sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        env={**support.environ_with_sources(), **environ},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


async def test_the_commands(two: Nodes, home: Path) -> None:
    async with client(two.all[0]) as pool:
        cluster = await running(pool, home)
        where: Any = {"POOLNODE_ADDRESS": two.all[0].address}
        ran = await asyncio.to_thread(poolnode, "ssh", str(cluster.cluster), "--", "echo out; exit 4", **where)
        assert (ran.returncode, ran.stdout) == (4, "out\n")
        for words in ([f"{cluster.cluster}.0"], ["-auto-retry", str(cluster.cluster)]):
            ran = await asyncio.to_thread(drop_in, "condor_ssh_to_job", *words, "sh", "-c", "pwd; exit 5", **where)
            assert (ran.returncode, ran.stderr) == (5, "")
            assert ran.stdout
        await cluster.remove()
        commands = {"executable": "/bin/sleep", "arguments": "300", "+Ready": "false", "requirements": "MY.Ready"}
        later = await pool.submit(commands, iwd=str(home))
        words = [sys.executable, "-m", "pool", "ssh", f"{later.cluster}.0", "--", "exit 6"]
        environ = {**support.environ_with_sources(), **where}
        pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        waiting = await asyncio.create_subprocess_exec(*words, stdin=null, stderr=pipe, env=environ)
        try:
            assert waiting.stderr is not None
            said = await asyncio.wait_for(waiting.stderr.readline(), PATIENCE)
            assert f"waiting for job {later.cluster}.0 to start" in said.decode()
            await later.edit(Ready="true")
            assert await asyncio.wait_for(waiting.wait(), PATIENCE) == 6
        finally:
            await later.remove()
            if waiting.returncode is None:
                waiting.kill()
                await waiting.wait()
        script = support.program(home, "echo begun; echo bad >&2; exit 9")
        ended = await pool.submit({"executable": script, "output": "out", "error": "err"}, iwd=str(home))
        await ended.wait(PATIENCE)
        ran = await asyncio.to_thread(poolnode, "attach", str(ended.cluster), **where)
        assert (ran.returncode, ran.stdout, ran.stderr) == (9, "begun\n", "bad\n")
        assert "no terminal" in support.one_line(await asyncio.to_thread(poolnode, "submit", "-i", **where))


def test_a_job_that_is_a_shell(two: Nodes, home: Path) -> None:
    """`submit -i` on a terminal: the shell's end is the job's."""
    master, slave = pty.openpty()
    environ = {**support.environ_with_sources(), "POOLNODE_ADDRESS": two.all[0].address, "TERM": "dumb"}
    command = [sys.executable, "-m", "pool.cli.main", "submit", "-i", "request_memory=16MB"]
    with subprocess.Popen(command, cwd=home, env=environ, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        _read_until(master, b"waiting for a machine")
        os.write(master, b"echo job $POOLNODE_JOB; exit 6\n")
        text = _read_until(master, b"job 1", b"job 2", b"job 3", b"job 4", b"job 5", b"job 6", b"job 7", b"job 8")
        assert process.wait() == 6, text
        watchdog.cancel()
    os.close(master)


def _read_until(fd: int, *wanted: bytes) -> bytes:
    text, end = b"", time.monotonic() + PATIENCE
    while not any(each in text for each in wanted):
        assert select.select([fd], [], [], max(end - time.monotonic(), 0))[0], text
        text += os.read(fd, 4096)
    return text
