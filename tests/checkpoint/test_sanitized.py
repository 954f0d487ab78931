"""The keeper under sanitizers of memory and arithmetic: jobs, ends, messages that nobody should send."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pool.checkpoint.build import compiler
from pool.checkpoint.messages_table import Verb
from pool.starter.keeper import NativeKeepers, StartFailed
from pool.starter.messages import pack_control, pack_ping, pack_start, unpack_report
from pool.starter.spec import Member, Pipe
from tests.starter.support import hard_kill, opened, shell, soon, spec, to_end, until

PATH = {"PATH": "/usr/bin:/bin"}
MEMBERS = (
    Member("seq", ("seq", "1", "1000"), PATH, fails=frozenset({1, 255})),
    Member("cat", ("/bin/cat",), PATH, stderr_to_stdout=True),
    Member("wc", ("/usr/bin/wc",), PATH, append_stdout=True),
)
PIPES = (Pipe(0, 1), Pipe(1, 2, capacity=65536))


@pytest.fixture(scope="module")
def program(sanitized_keeper: Path) -> Path:
    return sanitized_keeper


@pytest.fixture(autouse=True)
def reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The sanitizers write what they find to files, of which there must be none."""
    log = tmp_path / "sanitizer"
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={log}")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={log}")
    yield
    assert [path.read_text() for path in tmp_path.glob("sanitizer*")] == []


@pytest.mark.parametrize("without", [0, 1, 4])
async def test_lives_of_jobs(tmp_path: Path, program: Path, without: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    async with opened(tmp_path, program, without=without) as keepers:
        assert (await to_end(keepers, shell(scratch, "exit 3"))).code == 3
        assert (await to_end(keepers, shell(scratch, "exit 3", isolation="shared", private_tmp=True))).code == 3
        large = {f"V{n}": "x" * 999 for n in range(200)} | {"PATH": "/bin:/usr/bin"}
        hidden = (str(tmp_path / "hidden"), "/no/such")
        assert (await to_end(keepers, shell(scratch, "exit 4", env=large, hidden=hidden, memory=1 << 30))).code == 4
        kind = {"filter": "plain", "network": "host" if without else "none"}
        for _ in range(3):
            assert (await to_end(keepers, shell(scratch, "exit 3", **kind))).code == 3
        for bad in ({"cwd": "/no/such"}, {"stdin": "/no/such"}, {"program": "/no/such/" + "x" * 3000}):
            with pytest.raises(StartFailed):
                await keepers.start(spec(scratch, "/bin/true", **bad))
        keeper = await keepers.start(shell(scratch, "(setsid sleep 60 &); sleep 60 & sleep 60", lease_seconds=0.5))
        await keeper.suspend()
        await keeper.resume()
        await keeper.signal(signal.SIGCONT)
        assert (await soon(keeper.usage())).processes >= 1
        assert (await soon(keeper.ended)).cause == "lease"
        keeper = await keepers.start(spec(scratch, "/bin/sleep", "60"))
        first = keepers.fork_server_pid
        hard_kill(first)
        await until(lambda: keepers.fork_server_pid != first)
        await keeper.vacate()
        assert (await soon(keeper.ended)).cause == "vacated"
        running = await keepers.start(spec(scratch, "/bin/sleep", "60"))
        await keepers.close(kill=False)
        again = NativeKeepers(tmp_path / "keepers", program, without=without)
        found = await again.open()
        assert {keeper.id for keeper in found} == {running.id}
        for keeper in found:
            await keeper.kill()
            await soon(keeper.ended)
        await again.close(kill=True)


def start_fork_server(program: Path, directory: Path) -> tuple[int, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environment = {name: value for name, value in os.environ.items() if name.endswith("SAN_OPTIONS")}
    pid = os.posix_spawn(
        program,
        [str(program), "fork-server", str(directory)],
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 3)],
    )
    theirs.close()
    ours.settimeout(5)
    return pid, ours


def pong(ours: socket.socket, number: int) -> None:
    """Waits for the answer to a ping, past reports of failed starts."""
    ours.send(pack_ping(number))
    while True:
        report = unpack_report(ours.recv(4096))
        if report.verb == Verb.PONG:
            assert report.number == number
            return
        assert report.verb in (Verb.HELLO, Verb.FAILED, Verb.STARTED, Verb.ENDED)


@pytest.mark.parametrize("several", [False, True])
def test_messages_that_nobody_should_send(program: Path, tmp_path: Path, several: bool) -> None:
    chance = random.Random(7)
    more: dict[str, Any] = {"members": MEMBERS, "pipes": PIPES} if several else {}
    good = pack_start(spec(tmp_path, "/bin/true", "argument", hidden=("/no/such",), groups=(1, 2), **more), 1, 0)
    pid, ours = start_fork_server(program, tmp_path)
    for number in range(300):
        message = bytearray(good[: chance.randrange(len(good) + 1)] if chance.random() < 0.3 else good)
        for _ in range(chance.randrange(6)):
            if message:
                message[chance.randrange(len(message))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        if len(message) >= 24:
            struct.pack_into("=Q", message, 8, number + 1)
            struct.pack_into("=I", message, 16, number % 3)
            if chance.random() < 0.8:
                struct.pack_into("=I", message, 20, len(message))
        ours.send(bytes(message) or b"x")
        if number % 10 == 0:
            pong(ours, number)
    pong(ours, 1000)
    ours.send(struct.pack("=I", 1))
    ours.send(good[:24])
    fd = os.memfd_create("message")
    os.write(fd, good[:50])
    socket.send_fds(ours, [b"+"], [fd])
    socket.send_fds(ours, [b"+"], [os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC)])
    pong(ours, 1001)
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def test_a_job_of_several_processes(program: Path, tmp_path: Path) -> None:
    """Started, moved, ended by one that fails, and refused."""
    (tmp_path / "scratch").mkdir()
    async with opened(tmp_path, program) as keepers:
        wanted = spec(tmp_path / "scratch", "x", members=MEMBERS, pipes=PIPES)
        assert (await to_end(keepers, wanted)).code == 0
        wait = Member(
            "wait", ("/bin/sh", "-c", "until [ -e go ]; do sleep 0.01; done"), PATH, str(tmp_path / "scratch")
        )
        waiting = spec(tmp_path / "scratch", "x", members=(wait, *MEMBERS[1:]), pipes=PIPES)
        keeper = await soon(keepers.start(waiting))
        if keepers.abilities.checkpoint:
            await soon(keeper.checkpoint(tmp_path / "image", stop=True))
            await soon(keeper.ended)
            await keeper.forget()
            keeper = await soon(keepers.start(waiting, image=tmp_path / "image"))
        (tmp_path / "scratch" / "go").touch()
        assert (await soon(keeper.ended)).code == 0
        await keeper.forget()
        fails = Member("fails", ("/bin/sh", "-c", "kill -SEGV $$"), PATH)
        assert (
            await to_end(keepers, spec(tmp_path / "scratch", "x", members=(fails, *MEMBERS[1:]), core=0))
        ).signal == 11
        gone = Member("gone", ("/no/such",), PATH)
        with pytest.raises(StartFailed):
            await keepers.start(spec(tmp_path / "scratch", "x", members=(*MEMBERS, gone), pipes=PIPES))


async def test_a_keeper_is_not_moved_by_what_it_does_not_know(program: Path, tmp_path: Path) -> None:
    async with opened(tmp_path, program) as keepers:
        keeper = await keepers.start(spec(tmp_path, "/bin/sleep", "60"))
        sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        name = keepers._directory.socket(keeper.cell)
        kill = pack_control(Verb.KILL, keeper.number + 1, keeper.cell)
        for message in (b"", b"x", b"\0" * 40, b"\xff" * 100, kill, kill[:39], kill + b"x"):
            sender.sendto(message, name)
        sender.sendto(pack_control(77, keeper.number, keeper.cell), name)
        sender.close()
        assert (await soon(keeper.usage())).processes == 1
        await asyncio.sleep(0)
        assert not keeper.ended.done()


def test_it_says_how_it_is_used(program: Path) -> None:
    read, write = os.pipe()
    for arguments in (
        [],
        ["fork-server"],
        ["fork-server", "/tmp"],
        ["fork-server", "/tmp", "--strange", "x"],
        ["other", "x"],
    ):
        pid = os.posix_spawn(
            program, [str(program), *arguments], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write, 2)]
        )
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2
        assert os.read(read, 4096).startswith((b"usage: keeper", b"keeper fork-server: descriptor 3"))
    os.close(read)
    os.close(write)


async def test_checkpoints_of_all_kinds(program: Path, tmp_path: Path) -> None:
    """Sockets, locks, threads, a crowd, chains of images with libraries in them: saved and restored."""
    programs = Path(__file__).parent / "programs"
    async with opened(tmp_path, program) as keepers:
        if not keepers.abilities.checkpoint:
            pytest.skip("needs the ability checkpoint")
        for name, command, build in (
            ("sockets", [sys.executable, "-I", str(programs / "sockets.py"), "name"], False),
            ("terminals", [sys.executable, "-I", str(programs / "terminals.py")], False),
            ("fifos", [sys.executable, "-I", str(programs / "fifos.py"), "."], False),
            ("own_settings", [sys.executable, "-I", str(programs / "own_settings.py")], False),
            ("timerfds", [sys.executable, "-I", str(programs / "timerfds.py")], False),
            ("locks", [sys.executable, "-I", str(programs / "locks.py")], False),
            ("kinds", [], True),
            ("many", ["20", "50"], True),
            ("dirty", ["100000", "go"], True),
        ):
            scratch = tmp_path / name
            scratch.mkdir()
            if build:
                compile = [*compiler().split(), "-pthread", "-o", str(scratch / name), str(programs / f"{name}.c")]
                await asyncio.to_thread(partial(subprocess.run, compile, check=True))
                command = [str(scratch / name), *command]
            wanted = spec(scratch, command[0], *command[1:], isolation="full" if build else "shared")
            keeper, out, previous = await soon(keepers.start(wanted)), scratch / "out", None
            for number in range(3):
                await until(lambda out=out: out.exists() and bool(out.read_text()))  # type: ignore[misc]
                image = scratch / f"image{number}"
                report = await soon(keeper.checkpoint(image, stop=number == 1, parent=previous, carry=number < 2))
                assert report.refused == ()
                previous = image
                if number == 1:
                    await soon(keeper.ended)
                    await keeper.forget()
                    keeper, previous = await soon(keepers.start(wanted, image=image)), None
            (scratch / "go").touch()
            assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
            await keeper.forget()
