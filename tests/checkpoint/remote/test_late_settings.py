"""Mode, owner and times of a file that a job writes: set without waiting, and there when the file is closed."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import signal
import socket
from pathlib import Path

import pytest

from pool.remoteio import frames
from pool.remoteio.frames import Op
from tests.checkpoint.remote.conftest import Site, wait_for_output
from tests.checkpoint.remote.test_connection import Relay, outlive_a_cut
from tests.checkpoint.remote.test_leases import Asked, leased
from tests.remoteio.support import JobEnd
from tests.starter.support import PYTHON, soon, until

pytestmark = pytest.mark.parametrize("way", ["fuse"])
OPENED = "[kept.append(open('new', 'wb', buffering=0)), kept[-1].write(b'text')]"
#: As programs do that unpack files, the time first.
SET = (
    "[os.utime(kept[-1].fileno(), ns=(10**18, 10**18)), os.fchown(kept[-1].fileno(), os.getuid(), os.getgid()),"
    " os.fchmod(kept[-1].fileno(), 0o604)]"
)
CLOSED = "kept.pop().close()"
#: Of <linux/fs.h>.
GET_FLAGS, SET_FLAGS, IMMUTABLE = 0x80086601, 0x40086602, 0x10


def settings(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_size, found.st_mode & 0o7777, found.st_mtime_ns


AS_SET = (4, 0o604, 10**18)


@pytest.fixture
async def job(site: Site) -> Asked:
    (site.tree / "f").write_text("before")
    return Asked(site)


async def set_alone(site: Site, job: Asked) -> bool:
    """Whether a file that is open has its settings, for the job, while the submit side does not answer."""
    await job(OPENED)
    await leased(site, job, "f")
    site.home.process.send_signal(signal.SIGSTOP)
    try:
        asked = asyncio.ensure_future(job(SET))
        done, _ = await asyncio.wait([asked], timeout=10)
        if done:
            assert await job("oct(os.fstat(kept[-1].fileno()).st_mode & 0o7777)") == "0o604"
    finally:
        site.home.process.send_signal(signal.SIGCONT)
    await asked
    return bool(done)


async def test_settings_are_not_waited_for_and_there_when_the_file_is_closed(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    async with asyncio.timeout(60):
        while not await set_alone(site, job):
            await job(CLOSED)  # a mount of another test ended the lease in between
    assert await job(CLOSED) is None
    assert settings(site.tree / "new") == AS_SET
    await job.end()


async def test_settings_of_a_file_that_stays_open_are_on_the_submit_side_soon(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await job(OPENED)
    await leased(site, job, "f")
    await job(SET)
    await until(lambda: settings(site.tree / "new") == AS_SET)
    await job.end()


async def test_settings_do_not_wait_for_the_end_of_other_requests(site: Site, job: Asked) -> None:
    """The job's machine has something to answer all the time, and nothing that the submit side is asked about."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await job(OPENED)
    await leased(site, job, "f")
    asked = asyncio.ensure_future(job(f"[{SET}, reads_until('f', '/job/sign')]"))
    await until(lambda: settings(site.tree / "new") == AS_SET)
    (site.scratch / "sign").touch()
    await asked
    await job.end()


async def test_settings_are_those_of_the_file_whatever_its_name_leads_to_meanwhile(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    await job(OPENED)
    await leased(site, job, "f")
    await job("os.fsync(kept[-1].fileno())")
    (site.tree / "new").rename(site.tree / "moved")
    (site.tree / "new").write_text("of another program")
    others = (site.tree / "new").stat()
    await job(SET)
    await job(CLOSED)
    assert settings(site.tree / "moved") == AS_SET
    assert (site.tree / "new").stat() == others
    await job.end()


@pytest.mark.parametrize("killed", [False, True])
async def test_settings_under_way_outlive_the_connection(site: Site, job: Asked, killed: bool) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = Relay(site)
    keeper = await job.start(end=JobEnd(await relay.connect(), site.tree))
    await job(OPENED)
    await leased(site, job, "f")
    again = await outlive_a_cut(relay, site, keeper, job(SET), killed)
    assert await job(CLOSED) is None
    assert settings(site.tree / "new") == AS_SET
    await job.end()
    again.cut()


async def test_settings_that_are_refused_are_an_error_of_the_close(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    await job.start()
    async with asyncio.timeout(60):
        while True:
            await job(OPENED)
            await job("os.fsync(kept[-1].fileno())")
            await leased(site, job, "f")
            with immutable(site.tree / "new"):
                said = await job(SET)
                closed = await job(CLOSED)
            if said == [None] * 3:
                break
            assert said == "Operation not permitted"  # a mount of another test ended the lease in between
    assert closed == "Operation not permitted"
    assert settings(site.tree / "new")[:2] == (4, 0o644)
    await job.end()


class immutable:
    """A file whose settings nobody may change, though it is open for writing."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _set(self, *, to: bool) -> None:
        with self._path.open() as file:
            flags = array.array("i", [0])
            fcntl.ioctl(file, GET_FLAGS, flags)
            flags[0] = flags[0] | IMMUTABLE if to else flags[0] & ~IMMUTABLE
            fcntl.ioctl(file, SET_FLAGS, flags)

    def __enter__(self) -> None:
        try:
            self._set(to=True)
        except OSError:
            pytest.skip("needs a file that can be made immutable")

    def __exit__(self, *exception: object) -> None:
        self._set(to=False)


class OlderHome(Relay):
    """A submit side that does not have this operation yet."""

    def __init__(self, site: Site, unknown: Op) -> None:
        super().__init__(site)
        self._unknown = unknown
        self.refused = 0

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, requests: bool = False
    ) -> None:
        if not requests:
            await super()._pass(reader, writer)
            return
        while True:
            try:
                head = await reader.readexactly(frames.HEADER)
                size, op, _, unique = frames.header(head)
                body = await reader.readexactly(size - frames.HEADER)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            if op == self._unknown:
                self.refused += 1
                self._writers[1].write(frames.refusal(op, unique, errno.ENOSYS))
            else:
                writer.write(head + body)


async def test_an_older_submit_side_is_asked_in_its_own_way(site: Site, job: Asked) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    relay = OlderHome(site, Op.SETATTR)
    theirs: socket.socket = await relay.connect()
    await job.start(end=JobEnd(theirs, site.tree))
    await leased(site, job, "f")
    for _ in range(3):
        await job(OPENED)
        await job(SET)
        await job(CLOSED)
        assert settings(site.tree / "new") == AS_SET
        await job("os.unlink('new')")
    assert relay.refused == 1
    await job.end()
    relay.cut()


SETTING = """
import os, time
for _ in range(8):
    os.path.exists("none")  # until there is a lease
file = os.open("new", os.O_RDWR | os.O_CREAT, 0o644)
number = 0
while not os.path.exists("go"):
    number += 1
    os.pwrite(file, b"%8d" % number, 0)
    os.fchmod(file, 0o600 + number % 8)
    os.utime(file, ns=(10**18 + number, 10**18 + number))
    if number == 20:
        print("on", flush=True)
os.close(file)
print(os.stat("new").st_mtime_ns - 10**18 - number, flush=True)
"""


async def test_settings_and_a_checkpoint_are_of_one_moment(site: Site) -> None:
    """The job is saved while it sets some again and again, runs on, is lost, and all is undone to the checkpoint."""
    if not site.able or not site.keepers.abilities.checkpoint:
        pytest.skip("needs remote files in this way and the ability checkpoint")
    keeper = await site.start(PYTHON, "-c", SETTING)
    await wait_for_output(site, "on")
    image = site.top / "image"
    report = await soon(keeper.checkpoint(image, stop=False, mark=7))
    assert report.refused == ()
    at = int((site.tree / "new").read_text())
    await until(lambda: int((site.tree / "new").read_text()) > at + 20)
    await keeper.kill()
    await soon(keeper.ended)
    await keeper.forget()
    end = site.connect(run=2, back_to=7)
    number = int((site.tree / "new").read_text())
    found = (site.tree / "new").stat()
    # It is stopped anywhere: before a number's mode or time is set, these are of the number before.
    assert found.st_mode & 0o7777 in (0o600 + number % 8, 0o600 + (number - 1) % 8)
    keeper = await site.start(PYTHON, "-c", SETTING, end=end, image=image, append_output=True)
    (site.tree / "go").touch()
    ended = await soon(keeper.ended)
    assert (ended.code, site.error()) == (0, ""), site.output()
    assert site.output() == "on\n0\n"
    final = int((site.tree / "new").read_text())
    assert settings(site.tree / "new") == (8, 0o600 + final % 8, 10**18 + final)
