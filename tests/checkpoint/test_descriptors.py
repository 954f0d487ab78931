"""The state that jobs hold open besides files: sockets among themselves, locks, watches."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from pool.starter.keeper import KeeperSpec, NativeKeepers
from tests.checkpoint.conftest import SOURCES
from tests.checkpoint.test_checkpoints import lines, saved, undisturbed
from tests.starter.support import PYTHON, soon, spec, until


async def lives(keepers: NativeKeepers, place: Path, wanted: KeeperSpec, generations: int = 3) -> None:
    """A program that says "ready", waits for `go` and looks at its state, restored several times before it may."""
    scratch = place / "scratch"
    keeper = await soon(keepers.start(wanted))
    await until(lambda: lines(scratch) == 1)
    for generation in range(generations):
        await saved(keepers, keeper, place / f"image{generation}", stop=generation % 2 == 1)
        keeper = await soon(keepers.start(wanted, image=place / f"image{generation}"))
    (scratch / "go").touch()
    end = await soon(keeper.ended)
    await keeper.forget()
    assert (end.code, (scratch / "err").read_text()) == (0, "")


def python(scratch: Path, name: str, *argv: str) -> KeeperSpec:
    return spec(scratch, sys.executable, "-I", str(SOURCES / f"{name}.py"), *argv, isolation="shared")


async def test_descriptors_in_flight_are_received_before_a_checkpoint(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    """As nginx's processes pass their sockets on when they start: the job gets a moment for it."""
    program = """
import array, os, socket, threading, time
one, other = socket.socketpair()
one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0]))])
def receive():
    time.sleep(0.1)
    socket.recv_fds(other, 9, 9)
receiving = threading.Thread(target=receive)
receiving.start()
print("ready", flush=True)
receiving.join()
while not os.path.exists("go"):
    time.sleep(0.01)
"""
    await lives(keepers, tmp_path, spec(scratch, sys.executable, "-I", "-c", program, isolation="shared"), 1)


async def test_a_socket_that_is_made_while_others_are_waited_for_is_waited_for_too(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path
) -> None:
    """As nginx starts one worker after the other. The second pair has something before the first has nothing."""
    program = """
import os, socket, threading, time
def pair_with_something():
    one, other = socket.socketpair()
    socket.send_fds(one, [b"x"], [0])
    return one, other
def receive(ends):
    for _ in range(4):
        time.sleep(0.1)
        more = pair_with_something()
        socket.recv_fds(ends[1], 9, 9)
        ends = more
    time.sleep(0.1)
    socket.recv_fds(ends[1], 9, 9)
receiving = threading.Thread(target=receive, args=(pair_with_something(),))
receiving.start()
print("ready", flush=True)
receiving.join()
while not os.path.exists("go"):
    time.sleep(0.01)
"""
    await lives(keepers, tmp_path, spec(scratch, sys.executable, "-I", "-c", program, isolation="shared"), 1)


@pytest.mark.parametrize("abstract", [False, True])
async def test_sockets_among_the_jobs_processes(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, abstract: bool
) -> None:
    """An abstract name is the machine's, and may be there once."""
    wanted = python(scratch, "sockets", f"@{os.getpid()}" if abstract else "name")
    await lives(keepers, tmp_path, wanted)
    here = tmp_path / "undisturbed"
    here.mkdir()
    (here / "go").touch()
    assert (scratch / "out").read_text() == undisturbed(here, *wanted.argv)


#: A socket pair with more room than sockets are born with, full to its last byte; what it wakes up for and where it is
#: looked at.
FULL = """
import hashlib, os, socket, sys, time
SO_PEEK_OFF = 42
here, there = socket.socketpair()
here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
there.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 12345)
there.setsockopt(socket.SOL_SOCKET, SO_PEEK_OFF, 777)
here.setblocking(False)
sent = hashlib.md5()
try:
    for n in range(10**6):
        block = bytes([n % 251]) * (n * 7919 % 60000 + 1)
        sent.update(block[: here.send(block)])
except BlockingIOError:
    pass
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
options = there.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT), there.getsockopt(socket.SOL_SOCKET, SO_PEEK_OFF)
here.close()
got = hashlib.md5()
while part := there.recv(1 << 20):
    got.update(part)
print(sent.digest() == got.digest(), *options)
"""


async def test_a_full_socket(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    await lives(keepers, tmp_path, spec(scratch, sys.executable, "-I", "-c", FULL, isolation="shared"), 2)
    assert (scratch / "out").read_text() == "ready\nTrue 12345 777\n"


#: An epoll with more entries than 64 KiB of /proc tell of.
MANY = """
import os, resource, select, time
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
poll = select.epoll()
all = [os.eventfd(0) for _ in range(2000)]
for fd in all: poll.register(fd, select.EPOLLIN)
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
for fd in all: os.eventfd_write(fd, 1)
print(len(poll.poll(1, 4000)))
"""


async def test_an_epoll_of_many(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    await lives(keepers, tmp_path, spec(scratch, sys.executable, "-I", "-c", MANY, isolation="shared"), 1)
    assert (scratch / "out").read_text() == "ready\n2000\n"


SQLITE = """
import os, sqlite3, sys
mode, steps = sys.argv[1], int(sys.argv[2])
base = sqlite3.connect("base", isolation_level=None)
base.execute(f"pragma journal_mode={mode}")
base.execute("pragma synchronous=off")
base.execute("create table t(n integer primary key, text)")
for step in range(steps):
    base.execute("begin immediate")
    base.executemany("insert into t values(?, ?)", [(step * 50 + n, "x" * (step % 900)) for n in range(50)])
    print(step, flush=True)
    base.execute("commit")
print(base.execute("select count(*), sum(n), sum(length(text)) from t").fetchone())
print(base.execute("pragma integrity_check").fetchone())
"""


async def test_attributes_holes_and_owners_of_locks(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    await lives(keepers, tmp_path, python(scratch, "attributes"))
    assert (scratch / "out").read_text() == "ready\nthe same\n"


async def test_locks_within_the_job(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    wanted = python(scratch, "locks")
    await lives(keepers, tmp_path, wanted)
    here = tmp_path / "undisturbed"
    here.mkdir()
    (here / "go").touch()
    assert (scratch / "out").read_text() == undisturbed(here, *wanted.argv)


async def test_what_is_open_of_the_jobs_own_processes(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """A program that looks at its own memory, as one that compiles while it runs does at its beginning."""
    await lives(keepers, tmp_path, python(scratch, "selves"))
    assert (scratch / "out").read_text().split() == ["ready", *["True"] * 6, "0"]


#: A named semaphore, which another process opens by its name: glibc removes the name under which it was made.
SEMAPHORE = """
import _multiprocessing, os, subprocess, sys, time
name = f"/poolnode-{sys.argv[1]}"
child = "import _multiprocessing as m, sys; s = m.SemLock._rebuild(0, 1, 5, sys.argv[1])"
made = _multiprocessing.SemLock(1, 0, 5, name, False)
other = subprocess.Popen([sys.executable, "-c", f"{child}; print('ready', flush=True); s.acquire(True, 60)", name])
while not os.path.exists("go"): time.sleep(0.01)
made.release()
assert other.wait(30) == 0
assert made._get_value() == 0
_multiprocessing.sem_unlink(name)
"""


async def test_a_named_semaphore_stays_common(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    wanted = spec(scratch, sys.executable, "-I", "-c", SEMAPHORE, str(os.getpid()), isolation="shared")
    await lives(keepers, tmp_path, wanted)


@pytest.mark.parametrize("mode", ["delete", "wal"])
async def test_a_database_in_the_middle_of_writing(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, mode: str
) -> None:
    """SQLite holds locks, maps its shared index, and has a journal half written."""
    wanted = spec(scratch, sys.executable, "-I", "-c", SQLITE, mode, "500", isolation="shared")
    keeper = await soon(keepers.start(wanted))
    for generation in range(5):
        await until(lambda at=generation: lines(scratch) > 15 * at)  # type: ignore[misc]
        await saved(keepers, keeper, tmp_path / f"image{generation}", stop=True)
        keeper = await soon(keepers.start(wanted, image=tmp_path / f"image{generation}"))
    assert (await soon(keeper.ended)).code == 0, (scratch / "err").read_text()
    await keeper.forget()
    here = tmp_path / "undisturbed"
    here.mkdir()
    assert (scratch / "out").read_text() == undisturbed(here, *wanted.argv)


#: The watches: numbers with gaps, a file that has lost its name, one that only its tree knows, one event only.
WATCHES = """
import ctypes, os, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
MODIFY, CREATE, ONE = 2, 0x100, 0x80000000
def watch(queue, path, mask):
    number = libc.inotify_add_watch(queue, path.encode(), mask)
    if number < 0: raise OSError(ctypes.get_errno(), path)
    return number
def told(queue):
    data = os.read(queue, 65536)
    while data:
        number, mask, _, size = struct.unpack("iIII", data[:16])
        name, data = data[16:16 + size].rstrip(b"\\0").decode(), data[16 + size:]
        print(" ", number, hex(mask), name, flush=True)
def change(path):
    with open(path, "a") as file: file.write("x")
queue = libc.inotify_init1(0)
os.makedirs("deep/er/est", exist_ok=True)
for name in ("deep/er/est/file", "one", "nameless", "dropped"): change(name)
os.symlink("one", "link")
held = open("nameless", "a")
for n in range(3): libc.inotify_rm_watch(queue, watch(queue, "dropped", MODIFY))
watch(queue, "deep/er/est/file", MODIFY)
watch(queue, "nameless", MODIFY)
for n in range(50): libc.inotify_rm_watch(queue, watch(queue, "dropped", MODIFY))
watch(queue, "one", MODIFY | ONE)
watch(queue, "deep", CREATE)
watch(queue, "link", 4 | 0x02000000)
os.remove("nameless")
os.read(queue, 65536)
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
change("deep/er/est/file"); told(queue)
held.write("x"); held.flush(); told(queue)
change("one"); told(queue)
os.mkdir("deep/new"); told(queue)
print(watch(queue, "one", MODIFY))
"""


async def test_watches_on_files(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """They tell of the same changes under the same numbers, and of nothing that was done to put them back."""
    wanted = spec(scratch, sys.executable, "-I", "-c", WATCHES, isolation="shared")
    await lives(keepers, tmp_path, wanted)
    here = tmp_path / "undisturbed"
    here.mkdir()
    (here / "go").touch()
    assert (scratch / "out").read_text() == undisturbed(here, *wanted.argv)


#: Told of a change that it reads when it may.
LATE = """
import ctypes, os, time
libc = ctypes.CDLL(None)
queue = libc.inotify_init1(0)
libc.inotify_add_watch(queue, b".", 0x100)
open("made", "w")
print("ready", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
told = b""
while b"go" not in told: told += os.read(queue, 65536)
print("read", flush=True)
while True: time.sleep(1)
"""


async def test_what_a_watch_told_is_read_first(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    """The job is waited for, and not saved where it does not read its events; then it is saved the next time."""
    keeper = await soon(keepers.start(spec(scratch, sys.executable, "-I", "-c", LATE, isolation="shared")))
    await until(lambda: lines(scratch) == 1)
    report = await soon(keeper.checkpoint(tmp_path / "image"))
    wrong = "descriptor 3 of process 2 is an inotify with unread events (let the program read them)"
    assert report.refused == (wrong,)
    (scratch / "go").touch()
    await until(lambda: lines(scratch) == 2)
    await saved(keepers, keeper, tmp_path / "image", stop=True)


@pytest.mark.parametrize("isolation", ["full", "shared"])
async def test_handles_and_what_has_no_name(
    keepers: NativeKeepers, tmp_path: Path, scratch: Path, isolation: str
) -> None:
    """Processes, directories, links, epolls, terminals and timers, each as the job knows it."""
    program = (SOURCES / "handles.py").read_text()
    await lives(keepers, tmp_path, spec(scratch, PYTHON, "-c", program, isolation=isolation))


async def test_datagram_sockets(keepers: NativeKeepers, tmp_path: Path, scratch: Path) -> None:
    program = (SOURCES / "datagrams.py").read_text()
    await lives(keepers, tmp_path, spec(scratch, PYTHON, "-c", program))
