"""State that cannot be saved is named before anything is lost, and a dump that breaks off leaves the image before."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from pathlib import Path

import psutil
import pytest

from pool.starter.checkpointing import CheckpointFailed
from pool.starter.keeper import NativeKeepers
from tests.checkpoint.conftest import Compile
from tests.checkpoint.test_checkpoints import lines, saved
from tests.starter.support import family, hard_kill, is_named, shell, soon, spec, until

OPENS = """
import fcntl, os, socket, sys, time
sys.stdout.reconfigure(line_buffering=True)
what = sys.argv[1]
if what == "connection":
    held = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
elif what == "listener":
    held = socket.create_server(("127.0.0.1", int(sys.argv[2])))
elif what == "unix":
    held = socket.socket(socket.AF_UNIX)
    held.connect(sys.argv[2])
elif what == "lease":
    open("leased", "w")
    held = open("leased", "r+")
    fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
elif what == "ended":
    child = os.fork()
    if not child:
        time.sleep(60)
    held = open(f"/proc/{child}/mountinfo")
    os.kill(child, 9)
    os.waitpid(child, 0)
elif what == "traced":
    import ctypes
    child = os.fork()
    if not child:
        time.sleep(60)
    assert ctypes.CDLL(None).ptrace(0x4206, child, None, None) == 0  # PTRACE_SEIZE
elif what == "first thread":
    import ctypes, threading
    def rest():
        while ") Z " not in open(f"/proc/{os.getpid()}/stat").read():
            time.sleep(0.001)
        print("ready")
        time.sleep(60)
    threading.Thread(target=rest).start()
    ctypes.CDLL(None).syscall(60, 0)  # exit, of this thread alone
elif what == "undo":
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    held = libc.semget(1, 1, 0o1600)  # IPC_CREAT
    for change in (1, -1):
        operation = (ctypes.c_short * 3)(0, change, 0x1000 if change < 0 else 0)  # SEM_UNDO
        assert libc.semop(held, operation, 1) == 0, ctypes.get_errno()
elif what == "table":
    import ctypes, threading
    def alone():
        assert ctypes.CDLL(None).unshare(0x400) == 0  # CLONE_FILES
        os.open("only here", os.O_CREAT | os.O_RDWR)
        print("ready")
        time.sleep(60)
    threading.Thread(target=alone).start()
    time.sleep(60)
elif what == "on its way":
    held = socket.socketpair()
    held[0].sendall(b"before" * 100)
    with open("passed", "w") as passed:
        socket.send_fds(held[0], [b"with it"], [passed.fileno()])
    held[0].sendall(b"after")
elif what == "nested":
    held, inner = socket.socketpair(), socket.socketpair(type=socket.SOCK_SEQPACKET)
    socket.send_fds(inner[0], [b"inner"], [0])
    held[0].sendall(b"before")
    socket.send_fds(held[0], [b"outer"], [inner[0].fileno(), inner[1].fileno()])
    for end in inner:
        end.close()
print("ready")
time.sleep(60)
"""


#: To be seen only when the job stands still, or is asked itself.
ASKED = ("first thread", "undo", "on its way", "nested")


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("connection", "descriptor 3 of process 2 is a TCP connection to 127.0.0.1:{port}"),
        ("listener", "descriptor 3 of process 2 is a TCP socket listening on port {free}"),
        ("unix", "descriptor 3 of process 2 is a unix socket whose other end is outside the job"),
        ("lease", "descriptor 3 of process 2 holds a lease on its file"),
        ("first thread", "the first thread of process 2 has exited before the others"),
        ("ended", "descriptor 3 of process 2 is a /proc file of process 3, which has exited"),
        ("traced", "process 3 is traced by process 2"),
        ("table", "thread 3 of process 2 has a descriptor table of its own"),
        ("undo", "process 2 has System V semaphore operations to undo at its exit"),
        ("on its way", "descriptor 4 of process 2 is a unix socket with file descriptors in flight"),
        ("nested", "descriptor 4 of process 2 is a unix socket with file descriptors in flight"),
    ],
)
async def test_it_is_named(keepers: NativeKeepers, tmp_path: Path, scratch: Path, what: str, line: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.socket(socket.AF_UNIX) as local,
        contextlib.ExitStack() as stack,
    ):
        local.bind(str(scratch / "local"))
        local.listen()
        port, free = server.getsockname()[1], other.getsockname()[1]
        other.close()
        wanted = {"connection": port, "unix": "local"}.get(what, free)
        keeper = await soon(keepers.start(spec(scratch, "/usr/bin/env", "python3", "-c", OPENS, what, str(wanted))))
        await until(lambda: lines(scratch) == 1)
        if what == "unix":
            stack.enter_context(local.accept()[0])
        expected = line.format(port=port, free=free)
        if what not in ASKED:
            assert any(expected in reason for reason in await soon(keeper.examine()))
        report = await soon(keeper.checkpoint(tmp_path / "image", stop=True))
        assert any(expected in reason for reason in report.refused), report.refused
        assert os.listdir(tmp_path / "scratch")
        assert not (tmp_path / "image").exists()
        assert not [name for name in os.listdir(tmp_path) if name.startswith("image")]
        assert not keeper.ended.done()  # it runs on
        await keeper.kill()
        await soon(keeper.ended)
        await keeper.forget()


@pytest.mark.parametrize("victim", ["dumper", "keeper", "job"])
async def test_a_death_in_the_middle_leaves_the_image_before(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, compiled: Compile, victim: str
) -> None:
    wanted = spec(scratch, compiled("steps", "-static"), "1000000")
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) > 1)
    before = await soon(keeper.checkpoint(tmp_path / "before"))
    assert before.refused == ()
    known = {process.pid for process in family(keeper.pid)}
    task = asyncio.ensure_future(keeper.checkpoint(tmp_path / "image"))
    await until(lambda: task.done() or {process.pid for process in family(keeper.pid)} != known)
    new = [process for process in psutil.Process(keeper.pid).children() if process.pid not in known]
    if victim == "dumper" and new:
        hard_kill(new[0].pid)
    elif victim == "keeper":
        hard_kill(keeper.pid)
    elif victim == "job":
        await keeper.kill()
    try:
        await soon(task)
        assert sorted(os.listdir(tmp_path / "image")) == ["meta", "pages"]
    except CheckpointFailed:
        assert not (tmp_path / "image").exists()
    if victim != "dumper":
        await soon(keeper.ended)
    elif not keeper.ended.done():
        await keeper.kill()
        await soon(keeper.ended)
    await keeper.forget()
    keeper = await soon(keepers.start(wanted, image=tmp_path / "before"))
    at = lines(scratch)
    await until(lambda: lines(scratch) > at)
    await saved(keepers, keeper, tmp_path / "after", stop=True)


async def test_a_program_that_may_not_be_read(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """It could not be opened again where the job goes on."""
    script = "cp /bin/sleep hidden; chmod 111 hidden; echo; exec ./hidden 60"
    keeper = await soon(keepers.start(shell(scratch, script)))
    await until(lambda: any(is_named(process, "hidden") for process in family(keeper.pid)))
    report = await soon(keeper.checkpoint(tmp_path / "image"))
    assert any("the program of process 2 may not be read" in line for line in report.refused)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
