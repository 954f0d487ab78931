"""The fork server as guardian: a keeper that stands still does not let its job live past the lease."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC220

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from pool.starter.keeper import NativeKeepers
from pool.starter.messages import unpack_cell
from tests.starter.support import alive, family, hard_kill, opened, shell, soon, spec, to_end, until

#: The abilities that the keeper program is to do without (`pool.starter.abilities.Able`).
WITHOUT = {"all": 0, "none": 1, "pid only": 4}
NODE = """
import asyncio, sys
from pool.starter.keeper import KeeperSpec, NativeKeepers
async def main():
    keepers = NativeKeepers(sys.argv[1], sys.argv[2], without=int(sys.argv[4]))
    await keepers.open()
    keeper = await keepers.start(KeeperSpec(id="1.0.0", argv=("/bin/sh", "-c", "sleep 600 & sleep 600"),
        env={"PATH": "/bin:/usr/bin"}, cwd=sys.argv[3], scratch=sys.argv[3], uid=%d, gid=%d,
        lease_seconds=float(sys.argv[5])))
    print(keepers.fork_server_pid, keeper.pid, flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        keepers.renew(keeper, float(line))
        print("renewed", flush=True)
asyncio.run(main())
"""


class Node:
    """A node in a process of its own, with one job of three processes under a keeper that can be stopped."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.fork_server_pid = 0
        self.keeper = 0
        self.job: list[psutil.Process] = []

    async def stop_keeper(self, *, lease: float) -> None:
        """Have it stand still, and its lease end so many seconds later."""
        await until(lambda: len(alive(family(self.keeper))) >= 4)
        self.job = family(self.keeper)
        os.kill(self.keeper, signal.SIGSTOP)
        assert self.process.stdin is not None
        print(lease, file=self.process.stdin, flush=True)
        assert await self.line() == "renewed"

    async def line(self) -> str:
        assert self.process.stdout is not None
        return (await asyncio.to_thread(self.process.stdout.readline)).strip()

    def die(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.asynccontextmanager
async def node(
    place: Path, program: Path, repository: Path, *, without: int = 0, lease: float = 600.0
) -> AsyncIterator[Node]:
    words = [place / "keepers", program, place / "scratch", without, lease]
    code = NODE % (os.getuid(), os.getgid())
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        cwd=repository,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    made = Node(process)
    try:
        made.fork_server_pid, made.keeper = map(int, (await made.line()).split())
        yield made
    finally:
        made.die()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.mark.parametrize("without", WITHOUT)
async def test_a_keeper_that_stands_still_under_a_dead_node_is_ended(
    place: Path, program: Path, repository: Path, without: str
) -> None:
    async with node(place, program, repository, without=WITHOUT[without]) as dead:
        await dead.stop_keeper(lease=1.5)
        dead.die()
        await until(lambda: not alive(dead.job))
    after = NativeKeepers(place / "keepers", program, without=WITHOUT[without])
    (found,) = await after.open()
    assert (await soon(found.ended)).cause == "lease"
    await after.close(kill=True)


@pytest.mark.parametrize("without", WITHOUT)
async def test_a_node_that_comes_back_ends_what_stands_still_past_its_lease(
    place: Path, program: Path, repository: Path, without: str
) -> None:
    """Node and fork server were killed; the next ones know the lease's end by the cell alone."""
    async with node(place, program, repository, without=WITHOUT[without]) as dead:
        await dead.stop_keeper(lease=3.0)
        hard_kill(dead.fork_server_pid)
        dead.die()
        async with opened(place, program, without=WITHOUT[without]) as after:
            (found,) = after._live.values()
            end = await soon(found.ended)
            assert end.cause == "lease"
            assert "was stopped" in end.error
            await until(lambda: not alive(dead.job))


@pytest.mark.parametrize("without", WITHOUT)
async def test_a_keeper_that_stands_still_and_has_no_guardian_ends_its_job(
    place: Path, program: Path, repository: Path, without: str
) -> None:
    """Node and fork server were killed at once, so that no guardian was left, and no node comes back."""
    async with node(place, program, repository, without=WITHOUT[without], lease=6.0) as dead:
        await until(lambda: len(alive(family(dead.keeper))) >= 4)
        job = family(dead.keeper)
        os.kill(dead.keeper, signal.SIGSTOP)
        dead.process.send_signal(signal.SIGSTOP)  # it starts no other fork server
        hard_kill(dead.fork_server_pid)
        dead.die()
        assert alive(guardians(program, place)) == []
        assert len(alive(job)) >= 4
        await until(lambda: not alive(job))
    after = NativeKeepers(place / "keepers", program, without=WITHOUT[without])
    (found,) = await after.open()
    assert (await soon(found.ended)).cause == "lease"
    await after.close(kill=True)


async def test_a_guardian_goes_when_its_job_has_ended(place: Path, program: Path, repository: Path) -> None:
    """It waits for no lease's end, and for none that is not there."""
    async with node(place, program, repository) as dead:
        await until(lambda: len(alive(family(dead.keeper))) >= 4)
        job = [process for process in family(dead.keeper) if process.pid != dead.keeper]
        dead.die()
        await until(lambda: not alive([one for one in family(dead.fork_server_pid) if one.pid == dead.fork_server_pid]))
        assert len(guardians(program, place)) == 1
        for process in job:
            hard_kill(process.pid)
        await until(lambda: not guardians(program, place))


async def test_a_guardian_goes_when_there_is_another_fork_server(place: Path, program: Path, repository: Path) -> None:
    async with node(place, program, repository) as dead:
        dead.die()
        await until(lambda: not alive([one for one in family(dead.fork_server_pid) if one.pid == dead.fork_server_pid]))
        assert len(guardians(program, place)) == 1
        async with opened(place, program) as after:
            await until(lambda: [process.pid for process in guardians(program, place)] == [after.fork_server_pid])
            (found,) = after._live.values()
            assert (await found.usage()).processes == 3


def guardians(program: Path, place: Path) -> list[psutil.Process]:
    """The fork server and the guardian of these keepers, but not the keepers."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError, IndexError):
            words = process.cmdline()
            if words[:3] == [str(program), "fork-server", str(place / "keepers")] and not is_keeper(process.pid, place):
                found.append(process)
    return found


def is_keeper(pid: int, place: Path) -> bool:
    cells = [path for path in (place / "keepers").glob("cell.*") if path.suffix[1:].isdigit()]
    return any((cell := unpack_cell(path.read_bytes())) is not None and cell.pid == pid for path in cells)


async def test_a_keeper_that_stands_still_is_left_alone_while_its_node_renews_the_lease(
    best: NativeKeepers, place: Path
) -> None:
    renewed = await best.start(shell(place / "scratch", "sleep 600", lease_seconds=9.0))
    os.kill(renewed.pid, signal.SIGSTOP)
    best.renew(renewed, 600.0)
    let_go = await best.start(shell(place / "scratch", "sleep 600", id="2.0.0", lease_seconds=10.0))
    os.kill(let_go.pid, signal.SIGSTOP)
    end = await soon(let_go.ended)
    assert (end.cause, renewed.ended.done()) == ("lease", False)
    assert "was stopped" in end.error
    os.kill(renewed.pid, signal.SIGCONT)
    assert (await renewed.usage()).processes >= 1


async def test_a_keeper_that_runs_its_second_job_is_guarded(best: NativeKeepers, place: Path) -> None:
    """The fork server knows nothing of this start: the node speaks to the keeper itself."""
    first = await best.start(shell(place / "scratch", "sleep 0.1", lease_seconds=9.0))
    pid = first.pid
    assert (await soon(first.ended)).cause == "exit"
    await first.forget()
    second = await best.start(spec(place / "scratch", "/bin/sleep", "600", id="2.0.0", lease_seconds=10.0))
    assert second.pid == pid
    processes = family(pid)
    os.kill(pid, signal.SIGSTOP)
    assert (await soon(second.ended)).cause == "lease"
    await until(lambda: not alive(processes))
    await second.forget()
    assert (await to_end(best, shell(place / "scratch", "exit 4", id="3.0.0"))).code == 4


async def test_what_another_fork_server_started_is_guarded(best: NativeKeepers, place: Path) -> None:
    keeper = await best.start(shell(place / "scratch", "sleep 600 & sleep 600"))
    await until(lambda: len(alive(family(keeper.pid))) >= 3)
    processes = family(keeper.pid)
    os.kill(keeper.pid, signal.SIGSTOP)
    best.renew(keeper, 3.0)
    dead = best.fork_server_pid
    hard_kill(dead)
    await until(lambda: best.fork_server_pid != dead)
    assert (await soon(keeper.ended)).cause == "lease"
    await until(lambda: not alive(processes))
