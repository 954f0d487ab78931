"""TCP and UDP sockets of a job that has a network of its own: they go on after a restore, and after a checkpoint."""

from __future__ import annotations

import ast
import contextlib
import os
import random
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from pool.jobs.network import setup_of
from pool.starter.keeper import KeeperSpec, NativeKeepers, StartFailed
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.hostile import Meta, tried
from tests.checkpoint.test_checkpoints import lines, saved
from tests.checkpoint.test_descriptors import lives
from tests.checkpoint.test_hostile import reports
from tests.conftest import passable
from tests.ordinary_user import GID, UID, OrdinaryUser
from tests.starter.support import PYTHON, opened, soon, spec, until

#: The table of files in an image (pool/checkpoint/image/image.h), the kind of a socket, and the place of its contents.
FILES, FILE_INET, CONTENTS = 5, 16, 88
PROGRAM = (SOURCES / "connections.py").read_text()


def states() -> list[str]:
    """The names of the program's states."""
    (listed,) = [
        node.value
        for node in ast.parse(PROGRAM).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "STATES"
    ]
    assert isinstance(listed, ast.List)
    return [ast.unparse(name) for name in listed.elts]


def job(scratch: Path, *names: str) -> KeeperSpec:
    return spec(scratch, PYTHON, "-c", PROGRAM, *names, network="none")


@pytest.mark.parametrize("state", states())
async def test_a_connection_goes_on(keepers: NativeKeepers, tmp_path: Path, scratch: Path, state: str) -> None:
    """Restored from an image of a job that went on, from one that stopped it, and from one of a restored job."""
    await lives(keepers, tmp_path, job(scratch, state))


@pytest.mark.parametrize("state", states())
async def test_a_job_that_is_not_moved_notices_nothing(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, state: str
) -> None:
    keeper = await soon(keepers.start(job(scratch, state)))
    await until(lambda: lines(scratch) == 1)
    for number in range(2):
        report = await soon(keeper.checkpoint(tmp_path / f"image{number}"))
        assert report.refused == ()
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")


@pytest.mark.parametrize("state", ["full", "much", "closed_with_full_queue"])
async def test_large_queues_of_an_ordinary_users_node(
    keeper_program: Path, tmp_path: Path, scratch: Path, state: str
) -> None:
    """Only the machine's root may force the size of a buffer."""
    with contextlib.ExitStack() as stack:
        if os.geteuid() == 0:
            passable(tmp_path)
            user = OrdinaryUser(tmp_path)
            for path in (tmp_path, scratch):
                os.chown(path, UID, GID)
            stack.enter_context(user.is_the_tester())
        async with opened(tmp_path, keeper_program) as keepers:
            await lives(keepers, tmp_path, job(scratch, state))


async def test_an_image_with_connections_needs_a_network_of_its_own(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    """No image makes a connection in the machine's network."""
    keeper = await soon(keepers.start(job(scratch, "idle")))
    await until(lambda: lines(scratch) == 1)
    await saved(keepers, keeper, tmp_path / "image", stop=True)
    with pytest.raises(StartFailed, match="a network of its own with connections, and has none here"):
        await soon(keepers.start(replace(job(scratch, "idle"), network="host"), image=tmp_path / "image"))


#: Sockets that are neither TCP nor UDP, and TCP bytes that have no place in a queue.
OTHERS = """
import socket, sys, time
what = sys.argv[1]
if what == "netlink":
    held = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
elif what == "ping":
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP)
elif what == "multipath":
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262)
elif what == "options":
    held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    held.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, bytes([7, 7, 4, 0, 0, 0, 0, 0]))
elif what == "urgent":
    server = socket.create_server(("127.0.0.1", 0))
    held = socket.create_connection(server.getsockname())
    other, _ = server.accept()
    held.sendall(b"before")
    held.send(b"!", socket.MSG_OOB)
    held.sendall(b"after")
    time.sleep(0.1)
print("ready", flush=True)
if what == "urgent":
    sys.stdin.read(1)
    while not __import__("os").path.exists("go"): time.sleep(0.01)
    got = other.recv(6), other.recv(1, socket.MSG_OOB), other.recv(5)
    sys.exit(0 if got == (b"before", b"!", b"after") else 1)
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("netlink", "descriptor 3 of process 2 is a netlink socket"),
        ("ping", "descriptor 3 of process 2 is an ICMP socket"),
        ("multipath", "descriptor 3 of process 2 is a Multipath TCP socket"),
        ("options", "descriptor 3 of process 2 is a socket that puts options into IP headers"),
    ],
)
async def test_other_sockets_are_named(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, what: str, line: str
) -> None:
    setup = setup_of(0, ["here"])
    keeper = await soon(
        keepers.start(spec(scratch, PYTHON, "-c", OTHERS, what, network="private", network_setup=setup))
    )
    await until(lambda: lines(scratch) == 1)
    report = await soon(keeper.checkpoint(tmp_path / "image"))
    assert len(report.refused) == 1
    assert report.refused[0].startswith(line)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()


async def test_an_out_of_band_byte_is_named_and_not_lost(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    keeper = await soon(keepers.start(spec(scratch, PYTHON, "-c", OTHERS, "urgent", network="none")))
    await until(lambda: lines(scratch) == 1)
    report = await soon(keeper.checkpoint(tmp_path / "image"))
    line = "descriptor 5 of process 2 is a TCP connection with an out-of-band byte among the unread ones (read it)"
    assert report.refused == (line,)
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")


@pytest.mark.parametrize("seed", [5])
async def test_images_that_nobody_should_trust(
    sanitized_keeper: Path, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Under sanitizers: the sockets of every state, and images whose rows of sockets are wrong somewhere.

    A try takes a second; `python -m tests.explore` on this file tries others.
    """
    log = tmp_path / "sanitizer"
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={log}")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={log}")
    wanted = job(scratch, *(state for state in states() if state not in ("much", "full", "several_servers")))
    async with opened(tmp_path, sanitized_keeper) as keepers:
        keeper = await soon(keepers.start(wanted))
        await until(lambda: lines(scratch) == 1)
        report = await soon(keeper.checkpoint(tmp_path / "first"))
        assert report.refused == ()
        await saved(keepers, keeper, tmp_path / "image", stop=True)
        meta, fork_server = (tmp_path / "image" / "meta").read_bytes(), keepers.fork_server_pid
        assert await tried(keepers, wanted, tmp_path / "image", meta)
        chance = random.Random(seed)
        came: list[bool] = []
        for _ in range(16):
            if len(came) >= 5 and len(set(came)) == 2:
                break
            image = Meta(meta)
            rows, each = image.tables[FILES], image.sizes[FILES]
            sockets = [at for at in range(0, len(rows), each) if struct.unpack_from("=I", rows, at)[0] == FILE_INET]
            place, size = struct.unpack_from("=II", rows, chance.choice(sockets) + CONTENTS)
            for _ in range(chance.choice((1, 1, 4))):
                at = place + chance.randrange(min(size, 400)) // 4 * 4
                struct.pack_into("=I", image.tables[-1], at, chance.choice((0, 1, 10, 0xFFFF, 1 << 31, 0xFFFFFFFF)))
            came.append(await tried(keepers, wanted, tmp_path / "image", image.packed()))
        assert set(came) == {True, False}
        assert keepers.fork_server_pid == fork_server
    assert reports(tmp_path) == []
