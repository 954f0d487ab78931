"""`outside_connections = reset`: a job with connections to the outside is saved, and its restore resets them."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import pytest

from pool.starter.keeper import NativeKeepers
from tests.checkpoint.test_checkpoints import saved
from tests.starter.support import PYTHON, soon, spec, until

#: Connects to what it is told of, says so, and says what each connection is after it was moved.
CLIENT = """
import os, socket, sys, time
kind, port = sys.argv[1:]
if kind == "tcp":
    held = socket.create_connection(("127.0.0.1", int(port)))
else:
    held = socket.socket(socket.AF_UNIX)
    held.connect("server")
own = socket.socketpair()
own[0].sendall(b"mine")
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
try:
    said = held.recv(100)
    if said == b"unread":
        said = held.recv(100)
except ConnectionResetError:
    said = "reset"
try:
    held.sendall(b"more")
    more = "sent"
except BrokenPipeError:
    more = "broken"
print(said, more, held.recv(1), own[1].recv(10), flush=True)
"""


@pytest.mark.parametrize("kind", ["tcp", "unix", "unix, not accepted"])
async def test_the_restored_job_finds_them_reset(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, kind: str
) -> None:
    """TCP's unread bytes are lost, as in a reset; those of a unix socket are read first."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket(socket.AF_INET if kind == "tcp" else socket.AF_UNIX))
        server.bind(("127.0.0.1", 0) if kind == "tcp" else str(scratch / "server"))
        server.listen()
        port = str(server.getsockname()[1]) if kind == "tcp" else "0"
        wanted = spec(scratch, PYTHON, "-c", CLIENT, kind, port, reset_connections=True)
        keeper = await soon(keepers.start(wanted))
        await until(lambda: (scratch / "out").read_text() == "ready\n")
        if "not accepted" not in kind:
            stack.enter_context(server.accept()[0]).sendall(b"unread")
        await saved(keepers, keeper, tmp_path / "image", stop=True)
        keeper = await soon(keepers.start(wanted, image=tmp_path / "image"))
        (scratch / "go").touch()
        end = await soon(keeper.ended)
        await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")
    assert (scratch / "out").read_text() == "ready\nreset broken b'' b'mine'\n"


async def test_the_undisturbed_job_notices_nothing(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", CLIENT, "tcp", port, reset_connections=True)))
        await until(lambda: (scratch / "out").read_text() == "ready\n")
        connection, _ = server.accept()
        with connection:
            report = await soon(keeper.checkpoint(tmp_path / "image"))
            assert report.refused == ()
            connection.sendall(b"here")
            (scratch / "go").touch()
            assert connection.recv(4) == b"more"
        end = await soon(keeper.ended)
        await keeper.forget()
    assert end.code == 0
    assert (scratch / "out").read_text() == "ready\nb'here' sent b'' b'mine'\n"
