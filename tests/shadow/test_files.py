"""Access to users' files: in the node itself and through a file server, with the same outcome for both."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvloop

from pool.errors import PoolError
from pool.shadow.access import CHUNK, Access, FileProblem
from pool.shadow.files import LocalFiles, OwnedFiles, UserFiles
from pool.shadow.mounts import Mounts
from pool.shadow.serving import ServedFiles, ServerLost
from tests.conftest import passable

ROOT = os.geteuid() == 0
NOBODY = 65534


def served(uid: int | None = None, *, idle: float = 60.0) -> ServedFiles:
    uid = os.geteuid() if uid is None else uid
    gid = os.getegid() if uid == os.geteuid() else NOBODY
    return ServedFiles("somebody", uid, gid, [gid], idle=idle)


@pytest.fixture(params=["local", "inline", "threaded", "served"])
async def files(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[UserFiles]:
    made: UserFiles
    if request.param == "served":
        made = served()
    else:
        made = LocalFiles(inline=request.param == "inline")
        if request.param == "threaded":
            table = tmp_path / "mountinfo"
            table.write_text("1 0 0:1 / / rw - nfs4 server:/ rw\n")
            made._mounts = Mounts(str(table))
    yield made
    await made.close()


def status_of(pid: int) -> dict[str, list[str]]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {line.split(":")[0]: line.split()[1:] for line in lines}


async def content(files: UserFiles, path: Path, offset: int = 0, length: int | None = None) -> bytes:
    pieces = [piece async for piece in files.read(str(path), offset=offset, length=length)]
    assert all(0 < len(piece) <= CHUNK for piece in pieces)
    return b"".join(pieces)


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 7])
async def test_what_is_written_is_read(files: UserFiles, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    writer = await files.create(str(tmp_path / "out"))
    await writer.write(data)
    assert not (tmp_path / "out").exists()
    await writer.commit(sync=size == 1)
    assert (tmp_path / "out").read_bytes() == data
    assert await content(files, tmp_path / "out") == data
    assert await content(files, tmp_path / "out", offset=size // 2, length=3) == data[size // 2 :][:3]
    assert [name for name in os.listdir(tmp_path) if name != "mountinfo"] == ["out"]


async def test_stat_and_listdir(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "b").write_bytes(b"123")
    (tmp_path / "d" / "a").write_bytes(b"")
    found = await files.stat(str(tmp_path / "d" / "b"))
    assert (found.size, found.is_file, found.is_dir) == (3, True, False)
    assert found.inode == (tmp_path / "d" / "b").stat().st_ino
    assert (await files.stat(str(tmp_path / "d"))).is_dir
    assert await files.listdir(str(tmp_path / "d")) == ["a", "b"]


async def test_an_abandoned_file_leaves_nothing(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("old")
    writer = await files.create(str(tmp_path / "out"))
    await writer.write(b"new")
    await writer.abandon()
    await writer.abandon()
    assert (await files.stat(str(tmp_path / "out"))).size == 3  # a further call: the server has seen the above
    assert (tmp_path / "out").read_text() == "old"
    assert [name for name in os.listdir(tmp_path) if name != "mountinfo"] == ["out"]


async def test_an_existing_file_keeps_its_mode_and_a_new_one_gets_the_given(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "old").write_text("x")
    (tmp_path / "old").chmod(0o640)
    for name in ("old", "new"):
        writer = await files.create(str(tmp_path / name), mode=0o755)
        await writer.commit()
    assert stat.S_IMODE((tmp_path / "old").stat().st_mode) == 0o640
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o755


async def test_a_symbolic_link_stays_one(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    writer = await files.create(str(tmp_path / "link"))
    await writer.write(b"new")
    await writer.commit()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


async def test_dev_null_stays_a_device(files: UserFiles) -> None:
    writer = await files.create("/dev/null")
    await writer.write(b"gone")
    await writer.commit()
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert [piece async for piece in files.read("/dev/null")] == []


async def test_append_makes_the_file_and_adds_to_it(files: UserFiles, tmp_path: Path) -> None:
    log = str(tmp_path / "job.log")
    await files.append(log, b"one\n")
    await files.append(log, b"two\n", sync=True)
    assert (tmp_path / "job.log").read_text() == "one\ntwo\n"


async def test_makedirs_remove_and_read_all(files: UserFiles, tmp_path: Path) -> None:
    await files.makedirs(str(tmp_path / "a" / "b"))
    await files.makedirs(str(tmp_path / "a" / "b"))
    (tmp_path / "a" / "b" / "f").write_bytes(b"12345")
    assert await files.read_all(str(tmp_path / "a" / "b" / "f")) == b"12345"
    with pytest.raises(FileProblem, match="too large"):
        await files.read_all(str(tmp_path / "a" / "b" / "f"), most=4)
    await files.remove(str(tmp_path / "a" / "b" / "f"))
    await files.remove(str(tmp_path / "a" / "b" / "f"))
    assert await files.listdir(str(tmp_path / "a" / "b")) == []


async def test_names_that_are_not_text(files: UserFiles, tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    await files.append(path, b"x")
    assert b"\xff\xfe" in os.listdir(os.fsencode(tmp_path))
    assert os.path.basename(path) in await files.listdir(str(tmp_path))


@pytest.mark.parametrize(
    ("operation", "arguments", "number", "words"),
    [
        ("stat", ("/etc/no-such/x",), errno.ENOENT, "cannot find /etc/no-such/x: no such file"),
        ("read_all", ("/etc/no-such/x",), errno.ENOENT, "cannot read /etc/no-such/x: no such file"),
        ("read_all", ("/etc",), errno.EISDIR, "cannot read /etc: is a directory"),
        ("listdir", ("/etc/passwd",), errno.ENOTDIR, "cannot list /etc/passwd: not a directory"),
        ("create", ("/etc/no-such/x",), errno.ENOENT, "cannot write /etc/no-such/x: no such file"),
        ("create", ("/etc",), errno.EISDIR, "cannot write /etc: is a directory"),
        ("append", ("/etc/no-such/x", b""), errno.ENOENT, "cannot append to /etc/no-such/x: no such file"),
        (
            "makedirs",
            ("/etc/passwd/x",),
            errno.ENOTDIR,
            "cannot make directory /etc/passwd/x: not a directory",
        ),
        ("check", ("/etc/no-such/x", "write"), errno.ENOENT, "cannot write /etc/no-such/x"),
        ("check", ("/etc/passwd", "execute"), errno.EACCES, "cannot execute /etc/passwd: permission denied"),
        ("check", ("/etc", "execute"), errno.EISDIR, "cannot execute /etc: is a directory"),
        ("check", ("/etc/passwd", "enter"), errno.ENOTDIR, "cannot enter /etc/passwd: not a directory"),
        ("check", ("/etc/none", "read"), errno.ENOENT, "cannot read /etc/none: no such file"),
        ("stat", ("/etc\0/x",), errno.EINVAL, "cannot find"),
    ],
)
async def test_errors_name_operation_path_and_way_out(
    files: UserFiles, operation: str, arguments: tuple[str, ...], number: int, words: str
) -> None:
    with pytest.raises(FileProblem) as caught:
        await getattr(files, operation)(*arguments)
    assert caught.value.errno == number
    assert words in caught.value.message
    assert caught.value.hint
    assert not caught.value.retry


async def test_check_of_what_may_be_used(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("")
    (tmp_path / "run").chmod(0o755)
    await files.check(str(tmp_path / "run"), "read")
    await files.check(str(tmp_path / "run"), "execute")
    await files.check(str(tmp_path / "run"), "write")
    await files.check(str(tmp_path / "new"), "write")
    await files.check(str(tmp_path), "enter")
    assert not (tmp_path / "new").exists()


async def test_a_named_pipe_without_an_end_stops_nobody(files: UserFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    async with asyncio.timeout(5):
        with pytest.raises(FileProblem, match="needs a reader"):
            await files.create(str(tmp_path / "pipe"))
        with pytest.raises(FileProblem, match="needs a reader"):
            await files.append(str(tmp_path / "pipe"), b"an event of the log")
        keep = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
        with pytest.raises(FileProblem, match="give a file"):
            await files.read_all(str(tmp_path / "pipe"))
        os.write(keep, bytes(1 << 16))
        with pytest.raises(FileProblem, match="give a file"):  # nobody reads it, and it is full
            await files.append(str(tmp_path / "pipe"), b"an event of the log")
        os.close(keep)


async def test_reading_may_stop_in_the_middle(files: UserFiles, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(bytes(3 * CHUNK))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        stream = files.read(str(tmp_path / "big"))
        assert len(await anext(stream)) == CHUNK
        await stream.aclose()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) <= before + 3


FULL = """
import errno, resource, signal, sys
from pool.shadow.access import Access
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
access = Access()
access.append(sys.argv[1], b"first\\n", False)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
try:
    access.append(sys.argv[1], b"x" * 10000, False)
except OSError as error:
    print(error.errno == errno.EFBIG, open(sys.argv[1]).read() == "first\\n")
"""


def test_a_log_that_cannot_grow_keeps_whole_events(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "log")],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert ran.stdout.split() == ["True", "True"], ran.stderr


def test_without_nameless_files_it_is_written_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def no_tmpfile(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", no_tmpfile)
    access = Access()
    number = access.create(str(tmp_path / "out"), 0o644)
    access.write(number, b"data")
    assert [name.startswith(".out.") for name in os.listdir(tmp_path)] == [True]
    access.commit(number, True)
    assert os.listdir(tmp_path) == ["out"]
    access.close(access.create(str(tmp_path / "other"), 0o644))
    assert os.listdir(tmp_path) == ["out"]


# -- the file server -----------------------------------------------------------------------------------------


async def test_a_server_that_dies_fails_what_was_asked_and_is_replaced(tmp_path: Path) -> None:
    files = served()
    (tmp_path / "a").write_text("x")
    await files.stat(str(tmp_path / "a"))
    assert files._link is not None
    first = files._link._pid
    os.kill(first, 19)
    waiting = asyncio.ensure_future(files.stat(str(tmp_path / "a")))
    os.kill(first, 9)
    async with asyncio.timeout(5):
        with pytest.raises(ServerLost) as caught:
            await waiting
        assert caught.value.retry
        assert (await files.stat(str(tmp_path / "a"))).size == 1
        assert files._link._pid != first
    await files.close()


def test_under_uvloop(tmp_path: Path) -> None:
    async def use() -> bytes:
        files = served()
        await files.append(str(tmp_path / "log"), b"line\n")
        data = await files.read_all(str(tmp_path / "log"))
        await files.close()
        return data

    assert uvloop.run(use()) == b"line\n"


async def test_an_idle_server_is_ended_and_comes_back(tmp_path: Path) -> None:
    files = served(idle=0.01)
    writer = await files.create(str(tmp_path / "x"))
    assert files._link is not None
    gone = files._link._gone
    await asyncio.sleep(0.05)
    assert files.running, "a file is open"
    await writer.commit()
    async with asyncio.timeout(5):
        await gone
    assert not files.running
    assert (await files.stat(str(tmp_path / "x"))).size == 0
    await files.close()


async def test_many_at_a_time(tmp_path: Path) -> None:
    files = served()
    for number in range(50):
        (tmp_path / str(number)).write_bytes(bytes([number]) * (number * 1000))
    found = await asyncio.gather(*(files.read_all(str(tmp_path / str(number))) for number in range(50)))
    assert [len(data) for data in found] == [number * 1000 for number in range(50)]
    await files.close()


async def test_what_a_cancelled_caller_opened_is_closed(tmp_path: Path) -> None:
    files = served()
    task = asyncio.ensure_future(files.create(str(tmp_path / "x")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert files._link is not None
    link = files._link
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await files.stat(str(tmp_path))
    await files.stat(str(tmp_path))
    assert not link._given_up
    descriptors = [os.readlink(f"/proc/{link._pid}/fd/{fd}") for fd in os.listdir(f"/proc/{link._pid}/fd")]
    assert not [name for name in descriptors if str(tmp_path) in name]
    await files.close()


async def test_the_server_is_nobody_else(tmp_path: Path) -> None:
    """As root the server becomes the user for good; otherwise a foreign user is refused."""
    if ROOT:
        secret = tmp_path / "secret"
        secret.write_text("x")
        secret.chmod(0o600)
        passable(tmp_path)
        files = served(NOBODY)
        with pytest.raises(FileProblem, match="permission denied"):
            await files.read_all(str(secret))
        with pytest.raises(FileProblem, match="permission denied"):
            await files.create(str(tmp_path / "out"))
        assert files._link is not None
        ids = status_of(files._link._pid)
        assert set(ids["Uid"]) == {str(NOBODY)}
        assert set(ids["Gid"]) == {str(NOBODY)}
        assert ids["Groups"] == [str(NOBODY)]
        assert ids["CapEff"] == ["0000000000000000"]
        await files.close()
    else:
        files = served(NOBODY)
        with pytest.raises(PoolError):
            await files.stat("/etc")
        await files.close()


async def test_owned_files_choose_by_user() -> None:
    owned = OwnedFiles(user="me")
    assert isinstance(owned("me"), LocalFiles)
    if ROOT:
        with pytest.raises(PoolError, match="no such user"):
            owned("nobody-by-that-name")
        assert isinstance(owned("nobody"), ServedFiles)
        assert owned("nobody") is owned("nobody")
    else:
        with pytest.raises(PoolError, match="this node runs as me"):
            owned("somebody-else")
    await owned.close()


def test_served_limits() -> None:
    """The server's frame bound holds more than the largest piece that is ever sent."""
    from pool.shadow.files import _AT_ONCE
    from pool.shadow.served import LARGEST

    assert LARGEST > _AT_ONCE + 1000
    assert resource.getpagesize() <= CHUNK
