"""Many starts at once, and starts that nobody takes up: each one runs, or has failed within a bound."""

# A test has the loop to itself: it may block.
# ruff: noqa: ASYNC240

from __future__ import annotations

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path

import pytest

from pool.starter import native
from pool.starter.keeper import StartFailed
from pool.starter.outbox import Letter, Outbox
from tests.starter.support import alive, family, opened, shell, soon, spec, until

MANY = 60


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket to the fork server that is full after a few starts."""
    monkeypatch.setattr(native, "SOCKET_ROOM", 4096)


async def test_all_of_many_starts_run(narrow: None, place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as keepers:
        big = {"PATH": "/usr/bin:/bin", "BIG": "x" * 1500}
        specs = [shell(scratch, f": > ran.{n}", id=f"{n}.0.1", env=big) for n in range(MANY)]
        started = await soon(asyncio.gather(*(keepers.start(one) for one in specs)))
        ends = await soon(asyncio.gather(*(keeper.ended for keeper in started)))
        assert [end.code for end in ends] == [0] * MANY
        assert len(list(scratch.glob("ran.*"))) == MANY


async def test_a_start_that_waits_can_be_given_up(narrow: None, place: Path, program: Path, scratch: Path) -> None:
    async with opened(place, program) as keepers:
        os.kill(keepers.fork_server_pid, signal.SIGSTOP)
        try:
            starts = [
                asyncio.ensure_future(keepers.start(shell(scratch, f": > ran.{n}", id=f"{n}.0.1"))) for n in range(MANY)
            ]
            await until(lambda: len(keepers._outbox) > 3)
            last = starts.pop()
            last.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(last, 1.0)
        finally:
            os.kill(keepers.fork_server_pid, signal.SIGCONT)
        started = await soon(asyncio.gather(*starts))
        await soon(asyncio.gather(*(keeper.ended for keeper in started)))
        assert len(list(scratch.glob("ran.*"))) == MANY - 1


async def test_starts_that_nobody_takes_up_fail_and_are_not_run_later(
    narrow: None, place: Path, program: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that lie in the socket, and those that wait for it."""
    monkeypatch.setattr(native, "START_TIME", 0.3)
    async with opened(place, program) as keepers:
        os.kill(keepers.fork_server_pid, signal.SIGSTOP)
        try:
            wanted = [shell(scratch, f"sleep 5; : > ran.{n}", id=f"{n}.0.1") for n in range(MANY)]
            failed = await soon(asyncio.gather(*(keepers.start(one) for one in wanted), return_exceptions=True))
            assert all(isinstance(why, StartFailed) and why.retry for why in failed), failed
        finally:
            os.kill(keepers.fork_server_pid, signal.SIGCONT)
        monkeypatch.undo()
        await until(lambda: not keepers._live)
        keeper = await soon(keepers.start(spec(scratch, "/bin/true", id="100.0.1")))
        assert (await soon(keeper.ended)).code == 0
        await until(lambda: len(alive(family(keepers.fork_server_pid))) <= 2)  # it, and a keeper that waits
        assert not list(scratch.glob("ran.*"))


async def test_a_lease_counts_from_when_it_was_given(place: Path, program: Path, scratch: Path) -> None:
    """Not from when a fork server, or a keeper, that stood still comes to read it."""
    async with opened(place, program) as keepers:
        os.kill(keepers.fork_server_pid, signal.SIGSTOP)
        starting = asyncio.ensure_future(keepers.start(shell(scratch, "sleep 60", lease_seconds=1.0)))
        await asyncio.get_running_loop().run_in_executor(None, _sleep, 0.9)
        loop = asyncio.get_running_loop()
        os.kill(keepers.fork_server_pid, signal.SIGCONT)
        keeper, woken = await soon(starting), loop.time()
        assert (await soon(keeper.ended)).cause == "lease"
        assert loop.time() - woken < 0.9
        await keeper.forget()
        keeper = await soon(keepers.start(shell(scratch, "sleep 60", lease_seconds=60.0)))
        os.kill(keeper.pid, signal.SIGSTOP)
        keeper.renew(0.1)
        await asyncio.get_running_loop().run_in_executor(None, _sleep, 0.1)
        os.kill(keeper.pid, signal.SIGCONT)
        assert (await soon(keeper.ended)).cause == "lease"


async def test_an_outbox_keeps_the_order_and_tells_of_what_it_cannot_send() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs:
        taken: list[int] = []
        lost: list[str] = []
        box = Outbox(ours, 60.0)
        for number in range(1000):
            message = number.to_bytes(2, "big") * 500
            box.send(Letter(message, partial(taken.append, number), lost.append))
        assert 0 < len(taken) < 1000
        read: list[int] = []
        while len(read) < 1000:
            try:
                read.append(int.from_bytes(theirs.recv(4096)[:2], "big"))
            except BlockingIOError:
                await asyncio.sleep(0)
        assert read == taken == list(range(1000))
        theirs.close()
        box.send(Letter(b"x", lambda: taken.append(-1), lost.append))
        assert lost == ["broken pipe"]
        assert taken[-1] == 999


def _sleep(seconds: float) -> None:
    import time

    time.sleep(seconds)
