"""Trees that a job only reads, where the kernel opens files without asking: changes are seen all the same."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pool.starter.keeper import NativeKeeper
from tests.checkpoint.remote.conftest import WAYS, Site, wait_for_output
from tests.checkpoint.remote.test_leases import CHANGES, KERNEL, Asked, leased
from tests.remoteio.support import HomeProcess, JobEnd
from tests.starter.support import PYTHON, helpers, opened, soon

pytestmark = [
    pytest.mark.parametrize("way", ["fuse"]),
    pytest.mark.skipif(KERNEL < (6, 2), reason="needs a kernel that can be told to ask again (Linux 6.2)"),
]
LARGE = 4 << 20


class Static:
    """A site with a static tree beside the one that the job works in."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.data = site.top / "data"
        self.data.mkdir(mode=0o755)
        self.trees = f"{site.tree}, {self.data}:static"
        self.job = Asked(site)

    def connect(self, **more: Any) -> JobEnd:
        end = self.site.connect(trees=self.trees, **more)
        assert self.site.static == [str(self.data)]
        return end

    async def start(self) -> NativeKeeper:
        return await self.job.start(end=self.connect())

    async def leased(self, name: str) -> str:
        """Its path, when the job reads it though the submit side does not answer."""
        await leased(self.site, self.job, path := str(self.data / name))
        return path

    async def requests(self, expression: str) -> int:
        """How many requests of the kernel and answers of the submit side an expression takes, about."""
        assert self.job.keeper is not None
        (server,) = helpers(self.job.keeper)
        before = server.io_counters().read_count
        await self.job(expression)
        return int(server.io_counters().read_count - before)


@pytest.fixture
async def static(site: Site) -> Static:
    if not site.able:
        pytest.skip("needs remote files in this way")
    return Static(site)


async def test_changes_at_home_are_seen(static: Static) -> None:
    (static.data / "f").write_text("before")
    await static.start()
    await static.leased("f")
    await static.job(f"os.chdir({str(static.data)!r})")
    for name, (change, question, answer) in CHANGES.items():
        for path in static.data.iterdir():
            path.unlink()
        (static.data / "f").write_text("before")
        await static.job.until("read('f')", "before")
        change(static.data)
        # The mode decides, for root too.
        answers = {"made": ["f", "k"], "unreadable": "Permission denied"}
        await static.job.until(question, answers.get(name, answer))
    await static.job.end()


async def test_nothing_is_asked_at_open_while_a_lease_stands(static: Static) -> None:
    (static.data / "f").write_text("before")
    await static.start()
    path = await static.leased("f")
    async with asyncio.timeout(60):
        while await static.requests(f"[os.close(os.open({path!r}, os.O_RDONLY)) for _ in range(1000)]") > 100:
            await static.leased("f")  # a mount of another test ended the lease
    await static.job.end()


async def test_without_a_lease_each_open_asks(site: Site) -> None:
    """A file with several names has none: its changes are seen by the next open all the same, however soon."""
    if not site.able:
        pytest.skip("needs remote files in this way")
    static = Static(site)
    (static.data / "f").write_text("text of 0")
    (static.data / "g").hardlink_to(static.data / "f")
    await static.start()
    path = str(static.data / "f")
    for number in range(100):
        (static.data / "g").write_text(f"text of {number}")
        os.utime(static.data / "g", ns=(number, number))  # within one tick of the clock
        assert await static.job(f"read({path!r})") == f"text of {number}"
    await static.job.end()


@pytest.mark.parametrize("replaced", [False, True])
async def test_who_learns_of_a_change_elsewhere_sees_it_at_once(static: Static, replaced: bool) -> None:
    """A file of another tree tells that it was changed: the kernel is told before the job is."""
    (static.data / "f").write_text("before")
    (static.site.tree / "sign").touch()
    await static.start()
    path = await static.leased("f")
    for number in range(200):
        await static.job(f"read({path!r})")
        new = static.data / "new"
        (new if replaced else static.data / "f").write_text(f"now {number}")
        if replaced:
            new.rename(static.data / "f")
        (static.site.tree / "sign").write_text(str(number))
        told = f"[read({path!r}) for _ in iter(lambda: read('sign'), '{number}')]"
        assert await static.job(f"[{told}, read({path!r})][1]") == f"now {number}"
    await static.job.end()


LOOKS = """
import errno, os, sys, threading
data = sys.argv[1]
def look():
    for number in range(300):
        os.path.exists(data + "/none%d" % number)
looking = threading.Thread(target=look)
looking.start()
sizes = []
while looking.is_alive():
    os.close(os.open("sign", os.O_RDONLY))
    try:
        sizes.append(len(open(data + "/f").read()))
    except OSError as error:
        assert error.errno == errno.ESTALE  # replaced once more between its open and its first read
assert sizes == sorted(sizes), sizes
"""


async def test_answers_wait_for_the_kernel_to_be_told_and_lookups_there_do_not(static: Static) -> None:
    """Lookups in the same directory, on which the kernel's change of it waits, are under way all the while."""
    (static.data / "f").write_text("before")
    (static.site.tree / "sign").write_text("sign")
    keeper = await static.site.start(PYTHON, "-c", LOOKS, str(static.data), end=static.connect())
    text = "before"
    while not keeper.ended.done():
        text += "."
        (static.data / "new").write_text(text)
        (static.data / "new").rename(static.data / "f")
        await asyncio.sleep(0)
    assert ((await soon(keeper.ended)).code, static.site.error()) == (0, "")
    await keeper.forget()


REFUSED = (
    "open({f!r}, 'w')", "open({f!r}, 'a')", "open({f!r}, 'r+')", "open({d!r} + '/new', 'x')", "os.unlink({f!r})",
    "os.mkdir({d!r} + '/new')", "os.rename({f!r}, {d!r} + '/new')", "os.link({f!r}, {d!r} + '/new')",
    "os.symlink('f', {d!r} + '/new')", "os.mkfifo({d!r} + '/new')", "os.truncate({f!r}, 1)", "os.chmod({f!r}, 0o600)",
    "os.utime({f!r})", "os.chown({f!r}, os.getuid(), -1)", "os.setxattr({f!r}, 'user.a', b'1')",
    "os.removexattr({f!r}, 'user.a')", "os.rmdir({d!r} + '/in')", "os.fchmod(os.open({f!r}, os.O_RDONLY), 0o600)",
    "os.utime(os.open({f!r}, os.O_RDONLY))",
)  # fmt: skip


async def test_nothing_is_changed_there(static: Static) -> None:
    (static.data / "f").write_text("before")
    (static.data / "in").mkdir()
    before = (static.data / "f").stat()
    await static.start()
    names = {"f": str(static.data / "f"), "d": str(static.data)}
    for each in REFUSED:
        assert await static.job(each.format(**names)) == os.strerror(errno.EROFS), each
    assert await static.job(f"os.access({names['f']!r}, os.W_OK)") is False
    assert sorted(os.listdir(static.data)) == ["f", "in"]
    assert (static.data / "f").stat() == before
    await static.job.end()


async def test_other_calls_on_its_files(static: Static) -> None:
    """Holes, attributes, locks among the job's own processes, programs, and what is nothing to a file that is read."""
    with (static.data / "sparse").open("wb") as file:
        file.truncate(8 << 20)
        file.seek(4 << 20)
        file.write(b"x" * 4096)
    (static.data / "program").write_text("#!/bin/sh\necho run\n")
    (static.data / "program").chmod(0o755)
    (static.data / "link").symlink_to("program")
    os.setxattr(static.data / "program", "user.a", b"value")
    await static.start()
    job, data = static.job, str(static.data)
    await job(f"kept.append(open({data!r} + '/sparse', 'rb'))")
    assert await job("os.lseek(kept[0].fileno(), 0, os.SEEK_DATA)") == 4 << 20
    assert await job("os.lseek(kept[0].fileno(), 4 << 20, os.SEEK_HOLE)") == (4 << 20) + 4096
    assert await job("os.fsync(kept[0].fileno())") is None
    assert await job("os.pread(kept[0].fileno(), 4, (4 << 20) - 2)") == b"\0\0xx"
    assert await job(f"os.getxattr({data!r} + '/program', 'user.a')") == b"value"
    assert await job(f"os.readlink({data!r} + '/link')") == "program"
    assert await job(f"os.popen({data!r} + '/link').read()") == "run\n"
    assert await job(f"os.statvfs({data!r}).f_flag & os.ST_RDONLY") == os.ST_RDONLY
    lock = "__import__('fcntl').flock(kept[{}].fileno(), 6)"
    await job(f"kept.append(open({data!r} + '/sparse', 'rb'))")
    assert await job(lock.format(0)) is None
    assert await job(lock.format(1)) == os.strerror(errno.EAGAIN)
    assert await job("kept.pop(0).close()") is None
    assert await job(lock.format(0)) is None
    await job.end()


async def test_a_link_that_is_made_anew_leads_where_it_leads_now(static: Static) -> None:
    """The file system may give the new link the number of the old one."""
    link = static.data / "link"
    link.symlink_to("0")
    await static.start()
    for number in range(1, 40):
        await static.job(f"os.readlink({str(link)!r})")
        link.unlink()
        link.symlink_to(str(number))
        await static.job.until(f"os.readlink({str(link)!r})", str(number))
    await static.job.end()


def replace(data: Path) -> None:
    (data / "new").write_bytes(b"n" * LARGE)
    (data / "new").rename(data / "large")


@pytest.mark.parametrize("change", [replace, lambda data: (data / "large").unlink()], ids=["replaced", "removed"])
async def test_an_open_file_is_read_on_when_its_name_is_gone(static: Static, change: Callable[[Path], object]) -> None:
    """While no more than a hundred others are read; after that it is an error, never another file's content."""
    (static.data / "large").write_bytes(b"o" * LARGE)
    for number in range(200):
        (static.data / str(number)).write_text("text")
    await static.start()
    data = str(static.data)
    for _ in range(2):
        await static.job(f"kept.append(open({data!r} + '/large', 'rb', 0))")
    assert await static.job("os.pread(kept[0].fileno(), 4, 0)") == b"oooo"
    change(static.data)
    left = (static.data / "large").stat().st_ino if (static.data / "large").exists() else False
    await static.job.until(f"os.path.exists({data!r} + '/large') and os.stat({data!r} + '/large').st_ino", left)
    assert await static.job("os.pread(kept[0].fileno(), 4, 2 << 20)") == b"oooo"
    await static.job(f"[read({data!r} + '/%d' % number) for number in range(200)]")
    assert await static.job("os.pread(kept[1].fileno(), 4, 3 << 20)") in (b"oooo", os.strerror(errno.ESTALE))
    assert await static.job("os.fstat(kept[1].fileno()).st_size") == LARGE
    await static.job.end()


async def test_its_files_leave_the_job_those_that_it_opens(static: Static) -> None:
    """A quarter of what a process of the owner may open is the job's; files that it has only read do not count."""
    pid = static.site.home.process.pid
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (256, 256))
    for number in range(100):
        (static.data / str(number)).write_text("text")
    await static.start()
    assert await static.job(f"[read({str(static.data)!r} + '/%d' % number) for number in range(100)]") == ["text"] * 100
    assert await static.job("kept.extend(open('new%d' % number, 'x') for number in range(50))") is None
    assert await static.job(f"[read({str(static.data)!r} + '/%d' % number) for number in range(100)]") == ["text"] * 100
    assert await static.job("kept.extend(open('more%d' % number, 'x') for number in range(20))") == os.strerror(
        errno.EMFILE
    )
    await static.job.end()


async def test_it_waits_for_a_submit_side_that_is_away_and_then_sees_its_changes(static: Static) -> None:
    (static.data / "f").write_text("before")
    (static.data / "large").write_bytes(b"o" * LARGE)
    keeper = await static.start()
    path = await static.leased("f")
    await static.job(f"kept.append(open({str(static.data)!r} + '/large', 'rb', 0))")
    assert await static.job("os.pread(kept[0].fileno(), 4, 0)") == b"oooo"
    static.site.home.kill()
    (static.data / "f").write_text("after")
    asked = asyncio.ensure_future(static.job(f"read({path!r})"))
    static.site.home = HomeProcess()
    end = static.connect()
    keeper.remote(end.end.fileno())
    end.close()
    async with asyncio.timeout(20):
        text = await asked
        while text != "after":  # the link was not yet known to be lost
            text = await static.job(f"read({path!r})")
    assert await static.job("os.pread(kept[0].fileno(), 4, 2 << 20)") == b"oooo"
    await static.job.end()


async def test_a_tree_that_no_watch_can_be_had_on_is_served_as_any_other(site: Site) -> None:
    if not site.able:
        pytest.skip("needs remote files in this way")
    data = site.top / "data"
    data.mkdir()
    (data / "f").write_text("text")
    end = site.connect(trees=f"{site.tree}, {data}:static", watches=0)
    assert site.home.answer["static"] == []
    assert site.home.answer["not static"] == [[str(data), "REMOTE_IO_WATCHES is 0"]]
    text = await site.shell(f"cat {data}/f; (echo x >>{data}/f) 2>/dev/null || echo refused", end=end)
    assert text == "textrefused\n"


async def test_rights_are_the_owners_on_the_submit_side(top: Path, keeper_program: Path, way: str) -> None:
    """Own ones, those of a group, of others, and none: who may not read a file is refused when it is opened."""
    if os.getuid() != 0:
        pytest.skip("needs root")
    here, owner, group = 12345, 23456, 34567
    async with opened(top, keeper_program, without=int(WAYS[way])) as keepers:
        home = HomeProcess(owner, owner)
        try:
            site = Site(keepers, top, home)
            if not site.able:
                pytest.skip("needs remote files in this way")
            for place, uid in ((site.tree, owner), (site.journal, owner), (site.scratch, here)):
                os.chown(place, uid, uid)
            data = top / "data"
            data.mkdir()
            for name, mode, uid, gid in (
                ("own", 0o400, owner, owner),
                ("closed", 0o044, owner, owner),
                ("grouped", 0o440, 0, owner),
                ("open", 0o604, 0, 0),
                ("secret", 0o600, 0, 0),
                ("strange", 0o640, group, group),
            ):
                (data / name).write_text(f"{name}\n")
                os.chown(data / name, uid, gid)
                (data / name).chmod(mode)
            end = site.connect(trees=f"{site.tree}, {data}:static")
            script = "cat own closed grouped open secret strange; stat -c %u own secret strange"
            keeper = await site.start("/bin/sh", "-c", script, end=end, uid=here, gid=here, groups=(), cwd=str(data))
            assert (await soon(keeper.ended)).code == 0
            assert site.output().split() == ["own", "grouped", "open", str(here), "0", "65534"]
            refused = [line for line in site.error().splitlines() if line.endswith("Permission denied")]
            assert [line.split(": ")[1] for line in refused] == ["closed", "secret", "strange"]
            await keeper.forget()
        finally:
            home.close()


JOB = """
import mmap, os, subprocess, sys, time
data = sys.argv[1]
source = open(data + "/source", "rb", buffering=0)
table = open(data + "/table", "rb", buffering=0)
mapped = mmap.mmap(table.fileno(), 0, prot=mmap.PROT_READ)
os.chdir(data)
for number in range(40):
    assert source.read(5000) == bytes([number]) * 5000, number
    assert mapped[number * 4096] == number, number
    assert subprocess.run([data + "/program", str(number)], stdout=subprocess.PIPE).stdout == b"%d\\n" % number
    if number == 20:
        print("half", flush=True)
    if number >= 20:
        time.sleep(0.02)
try:
    open("new", "x")
except OSError as error:
    print(error.strerror, os.getcwd(), flush=True)
"""


@pytest.mark.parametrize("changed", [False, True])
async def test_a_job_that_moves_reads_on_there(static: Static, changed: bool) -> None:
    """Its open files, what it has mapped and its working directory lie in a static tree, of another keeper then."""
    site, data = static.site, static.data
    if not site.keepers.abilities.checkpoint:
        pytest.skip("needs the ability checkpoint")
    (data / "source").write_bytes(b"".join(bytes([number]) * 5000 for number in range(40)))
    (data / "table").write_bytes(b"".join(bytes([number]) * 4096 for number in range(40)))
    (data / "program").write_text('#!/bin/sh\necho "$1"\n')
    (data / "program").chmod(0o755)
    keeper = await site.start(PYTHON, "-c", JOB, str(data), end=static.connect())
    await wait_for_output(site, "half")
    report = await soon(keeper.checkpoint(site.top / "image", stop=True, mark=7))
    assert report.refused == ()
    await soon(keeper.ended)
    await keeper.forget()
    if changed:  # what others do meanwhile is seen, as on a disk
        (data / "other").write_text('#!/bin/sh\necho "$1" # changed\n')
        (data / "other").chmod(0o755)
        (data / "other").rename(data / "program")
    end = static.connect(run=2, back_to=7)
    keeper = await site.start(PYTHON, "-c", JOB, str(data), end=end, image=site.top / "image", append_output=True)
    ended = await soon(keeper.ended)
    assert (ended.code, site.error()) == (0, ""), site.output()
    assert site.output() == f"half\n{os.strerror(errno.EROFS)} {data}\n"


HOSTILE = """
import ctypes, fcntl, os, random, sys, threading, time
data, seconds = sys.argv[1], float(sys.argv[2])
end = time.monotonic() + seconds
libc = ctypes.CDLL(None, use_errno=True)
libc.mount(b"none", data.encode(), None, 32 | 4096, None)  # remount for writing
libc.umount2(data.encode(), 2)
def work(seed):
    chance = random.Random(seed)
    kept = []
    while time.monotonic() < end:
        name = "%s/%d" % (data, chance.randrange(300))
        try:
            kept.append(os.open(name, chance.choice([os.O_RDONLY, os.O_RDWR, os.O_PATH, os.O_RDONLY | os.O_DIRECT])))
        except OSError:
            pass
        for call in (
            lambda fd: os.pread(fd, chance.choice([1, 4096, 70000]), chance.choice([0, 3, 4096, 1 << 40])),
            lambda fd: os.fsync(fd), lambda fd: os.ftruncate(fd, 0), lambda fd: os.write(fd, b"x"),
            lambda fd: fcntl.flock(fd, chance.choice([1, 2, 8]) | 4), lambda fd: fcntl.lockf(fd, 1 | 4),
            lambda fd: os.posix_fallocate(fd, 0, 10), lambda fd: os.lseek(fd, 0, chance.choice([3, 4])),
            lambda fd: fcntl.ioctl(fd, chance.choice([0x5421, 0x541B, 0x80086601])), lambda fd: os.fdatasync(fd),
            lambda fd: os.fchmod(fd, 0), lambda fd: os.listxattr(fd), lambda fd: os.listdir(data), os.fstat,
            lambda fd: os.open("/proc/self/fd/%d" % fd, os.O_RDONLY),
            lambda fd: os.unlink(name), lambda fd: os.posix_fadvise(fd, 0, 0, 4), lambda fd: os.close(fd),
        ):
            if kept and chance.random() < 0.3:
                try:
                    call(chance.choice(kept))
                except (OSError, ValueError):
                    pass
        if len(kept) > 60:
            for fd in kept:
                try:
                    os.close(fd)
                except OSError:
                    pass
            kept = []
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("done", flush=True)
"""


async def test_under_sanitizers_with_changes_at_home_all_the_while(
    top: Path, sanitized_keeper: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that tries every call, writes and remounts, while the submit side changes and replaces what it reads."""
    monkeypatch.setenv("ASAN_OPTIONS", f"detect_leaks=0:log_path={top}/sanitizer")
    monkeypatch.setenv("UBSAN_OPTIONS", f"print_stacktrace=1:log_path={top}/sanitizer")
    async with opened(top, sanitized_keeper, without=int(WAYS[way])) as keepers:
        site = Site(keepers, top, HomeProcess())
        if not site.able:
            pytest.skip("needs remote files in this way")
        static = Static(site)
        for number in range(300):
            (static.data / str(number)).write_bytes(b"x" * number * 700)
        keeper = await site.start(PYTHON, "-c", HOSTILE, str(static.data), "4", end=static.connect())
        number = 0
        while not keeper.ended.done():
            number += 1
            path = static.data / str(number * 7 % 300)
            if number % 3:
                path.write_bytes(b"y" * (number % 90000))
            else:
                with contextlib.suppress(OSError):
                    path.rename(static.data / str(number * 11 % 300))
            await asyncio.sleep(0)
        assert (await soon(keeper.ended)).code == 0, site.error()
        assert site.output() == "done\n"
        await keeper.forget()
        site.home.close()
    assert {path.name for path in static.data.iterdir()} <= {str(number) for number in range(300)}
    assert [name for name in os.listdir(top) if name.startswith("sanitizer")] == []
