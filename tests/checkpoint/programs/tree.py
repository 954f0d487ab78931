"""A random tree of processes with random state, drawn from a seed: tree.py SEED.

Each process and thread has some kinds of state, a generator each: it makes something, and what comes after each
`yield` looks whether it is still so, and makes it anew. They look when there is a file check.N, and each says
done.N.NAME; at `end` all end well.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import pty
import random
import resource
import select
import signal
import socket
import stat
import struct
import sys
import termios
import threading
import time
import traceback
import tty
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
#: A kind of state, as it is made, kept and looked at.
Kind = Generator[None, None, None]
#: A process to be: its name, how it is, those below it.
Person = tuple[str, str, list["Person"]]
O_LARGEFILE = 0x8000  # which changes nothing
PR_SET_NAME, PR_SET_PDEATHSIG, PR_GET_PDEATHSIG, PR_SET_TIMERSLACK, PR_GET_TIMERSLACK = 15, 1, 2, 29, 30
TOP = os.getcwd()
LOOKS = ("/proc", f"{TOP}/ready", f"{TOP}/done")  # what other threads open for a moment


def names() -> Iterator[str]:
    """New ones, for files of this process."""
    number = 0
    while True:
        number += 1
        yield f"{TOP}/files/{os.getpid()}-{threading.get_native_id()}-{number}"


own_names = names()


def bytes_of(fd: int, size: int) -> bytes:
    """As much as is there at once, and no more than that."""
    got = b""
    while len(got) < size:
        got += os.read(fd, size - len(got))
    return got


def a_pipe(chance: random.Random) -> Kind:
    ends = os.pipe2(os.O_NONBLOCK | chance.choice([0, os.O_CLOEXEC]))
    if chance.random() < 0.3:
        fcntl.fcntl(ends[1], fcntl.F_SETPIPE_SZ, 1 << chance.randrange(12, 18))
    room = fcntl.fcntl(ends[1], fcntl.F_GETPIPE_SZ)
    while True:
        data = chance.randbytes(chance.choice([0, 1, chance.randrange(room // 2)]))
        os.write(ends[1], data)
        yield
        assert fcntl.fcntl(ends[0], fcntl.F_GETPIPE_SZ) == room
        assert bytes_of(ends[0], len(data)) == data
        try:
            assert not os.read(ends[0], 1)
        except BlockingIOError:
            pass


def a_named_pipe(chance: random.Random) -> Kind:
    name = next(own_names)
    os.mkfifo(name)
    both = os.open(name, os.O_RDWR | os.O_NONBLOCK)
    other = os.open(name, os.O_WRONLY if chance.random() < 0.5 else os.O_RDONLY | os.O_NONBLOCK)
    if chance.random() < 0.3:
        os.unlink(name)
    while True:
        data = chance.randbytes(chance.randrange(4000))
        os.write(both, data)
        yield
        assert bytes_of(both, len(data)) == data
        os.fstat(other)


def a_socket_pair(chance: random.Random) -> Kind:
    kind = chance.choice([socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET])
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    if chance.random() < 0.3:
        here.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 40000)
    if chance.random() < 0.2:
        there.shutdown(socket.SHUT_RD)
    size = here.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
    while True:
        parts = [chance.randbytes(chance.randrange(1, 3000)) for _ in range(chance.randrange(4))]
        for part in parts:
            there.send(part)
        yield
        assert here.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == size
        if kind == socket.SOCK_STREAM:
            assert bytes_of(here.fileno(), sum(map(len, parts))) == b"".join(parts)
        else:
            assert [here.recv(1 << 16) for _ in parts] == parts


def a_listener(chance: random.Random) -> Kind:
    listener = socket.socket(socket.AF_UNIX)
    name = next(own_names)
    os.chdir(os.path.dirname(name)) if chance.random() < 0.5 else None
    listener.bind(os.path.relpath(name))
    listener.listen()
    while True:
        yield
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(name)
            with listener.accept()[0] as served:
                served.send(b"served")
            assert client.recv(10) == b"served"


def an_eventfd(chance: random.Random) -> Kind:
    flags = os.EFD_NONBLOCK | chance.choice([0, os.EFD_SEMAPHORE])
    fd = os.eventfd(0, flags)
    semaphore = flags & os.EFD_SEMAPHORE
    while True:
        value = chance.randrange(1, 50 if semaphore else 1 << 40)
        os.eventfd_write(fd, value)
        yield
        # Its number stays: closed and made again, it would be missing where another thread lists the descriptors.
        got = [os.eventfd_read(fd) for _ in range(value if semaphore else 1)]
        assert got == ([1] * value if semaphore else [value])
        try:
            assert not os.eventfd_read(fd)
        except BlockingIOError:
            pass


def a_timerfd(chance: random.Random) -> Kind:
    fd = libc.timerfd_create(chance.choice([0, 1, 7]), os.O_NONBLOCK)
    interval = chance.choice([0, 0.02, 900])
    spec = struct.pack("qqqq", int(interval), int(interval % 1 * 1e9), 0, 1000000)
    while True:
        assert libc.timerfd_settime(fd, 0, spec, None) == 0
        while not select.select([fd], [], [], 1)[0]:
            pass
        yield
        assert struct.unpack("q", os.read(fd, 8))[0] >= 1
        if interval == 0.02:
            assert select.select([fd], [], [], 10)[0], "a periodic timer does not go off"


def an_epoll(chance: random.Random) -> Kind:
    poll = select.epoll()
    fds = [os.eventfd(chance.randrange(2), os.EFD_NONBLOCK) for _ in range(chance.randrange(1, 6))]
    for fd in fds:
        poll.register(fd, select.EPOLLIN)
    ready = {fd for fd, _ in poll.poll(0)}
    copy = os.dup(poll.fileno())
    while True:
        yield
        assert {fd for fd, _ in poll.poll(0)} == ready
        os.fstat(copy)


def an_inotify(chance: random.Random) -> Kind:
    fd = libc.inotify_init1(os.O_NONBLOCK)
    name = next(own_names)
    os.mkdir(name)
    watch = libc.inotify_add_watch(fd, name.encode(), 0x100)
    number = 0
    while True:
        yield
        number += 1
        Path(name, str(number)).touch()
        found = struct.unpack_from("iIII", os.read(fd, 4096))
        assert found[0] == watch


def a_memory_file(chance: random.Random) -> Kind:
    fd = os.memfd_create("tree", os.MFD_ALLOW_SEALING)
    data = chance.randbytes(chance.randrange(1, 100000))
    os.write(fd, data)
    os.pwrite(fd, b"far", 1 << 22)
    seals = chance.choice([0, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW])
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    while True:
        yield
        assert os.pread(fd, len(data), 0) == data
        assert os.pread(fd, 9, 1 << 22) == b"far"
        assert os.lseek(fd, 0, os.SEEK_CUR) == len(data)
        assert fcntl.fcntl(fd, fcntl.F_GET_SEALS) == seals


def a_file(chance: random.Random) -> Kind:
    name = next(own_names)
    fd = os.open(name, os.O_RDWR | os.O_CREAT | chance.choice([0, os.O_APPEND]), 0o640)
    gone, lock = chance.random() < 0.4, chance.choice([None, fcntl.flock, fcntl.lockf])
    if lock:
        lock(fd, fcntl.LOCK_EX)
    if gone and not lock:
        os.unlink(name)
    other, data = os.dup(fd), b""
    while True:
        more = chance.randbytes(chance.randrange(5000))
        os.write(fd, more)
        data += more
        yield
        assert os.lseek(other, 0, os.SEEK_CUR) == len(data)
        assert os.pread(fd, len(data) + 1, 0) == data
        if lock:
            rival = os.open(name, os.O_RDWR)
            try:
                fcntl.flock(rival, fcntl.LOCK_EX | fcntl.LOCK_NB) if lock is fcntl.flock else None
                assert lock is not fcntl.flock, "a lock is gone"
            except BlockingIOError:
                pass
            if lock is fcntl.flock:
                os.close(rival)


def a_terminal(chance: random.Random) -> Kind:
    master, slave = pty.openpty()
    if chance.random() < 0.5:
        tty.setraw(slave)
    settings = termios.tcgetattr(slave)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(slave, termios.TCSANOW, settings)
    window = struct.pack("HHHH", *(chance.randrange(1, 500) for _ in range(4)))
    fcntl.ioctl(slave, termios.TIOCSWINSZ, window)
    lines = settings[3] & termios.ICANON
    while True:
        typed = b"".join(b"%d\n" % chance.randrange(10**9) for _ in range(chance.randrange(20)))
        shown = bytes(chance.randrange(33, 127) for _ in range(chance.randrange(1000)))
        os.write(master, typed + (b"" if lines else b"open"))
        os.write(slave, shown)
        yield
        assert termios.tcgetattr(slave) == settings
        assert fcntl.ioctl(master, termios.TIOCGWINSZ, bytes(8)) == window
        assert bytes_of(slave, len(typed)) == typed
        assert lines or bytes_of(slave, 4) == b"open"
        assert bytes_of(master, len(shown)) == shown


def memory(chance: random.Random) -> Kind:
    size = chance.choice([1, 3, 50]) * 4096
    at = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    at.madvise(chance.choice([mmap.MADV_RANDOM, mmap.MADV_DONTFORK, mmap.MADV_NORMAL, mmap.MADV_MERGEABLE]))
    while True:
        data = chance.randbytes(size)
        at[:] = data
        yield
        assert at[:] == data


def a_mapped_file(chance: random.Random) -> Kind:
    name = next(own_names)
    fd = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(fd, bytes(20000))
    shared = chance.random() < 0.5
    at = mmap.mmap(fd, 20000, mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE)
    if chance.random() < 0.3:
        os.unlink(name)
    os.close(fd) if chance.random() < 0.5 else None
    while True:
        data = chance.randbytes(7777)
        at[5000:12777] = data
        yield
        assert at[5000:12777] == data
        assert at[0] == 0


def a_pending_signal(chance: random.Random) -> Kind:
    """It is blocked, with a value, and is taken when it is looked for."""
    number = chance.choice([signal.SIGUSR2, signal.SIGRTMIN + 5, signal.SIGRTMIN + 6])
    while True:
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        if number not in signal.sigpending():
            signal.pthread_kill(threading.get_ident(), number)
        yield
        assert number in signal.sigpending(), "a signal is pending no more"
        assert signal.sigtimedwait({number}, 0)


def an_alarm(chance: random.Random) -> Kind:
    """Far away. It stands still with the job: by the job's clock it is neither early nor late."""
    before = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 5000, 70)
    after = time.monotonic()
    while True:
        yield
        begun = time.monotonic()
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 5000 - (time.monotonic() - before) - 0.1 < left < 5000 - (begun - after) + 0.5
        assert abs(interval - 70) < 0.1


def settings(chance: random.Random) -> Kind:
    limits = {which: (chance.randrange(2000, 3000), 3500) for which in (resource.RLIMIT_NOFILE,)}
    for which, limit in limits.items():
        if resource.getrlimit(which)[1] >= limit[1]:
            resource.setrlimit(which, limit)
    os.umask(chance.choice([0o22, 0o27, 0o77]))
    if chance.random() < 0.5:
        os.makedirs(f"{TOP}/files/{os.getpid()}", exist_ok=True)
        os.chdir(f"{TOP}/files/{os.getpid()}")
    libc.prctl(PR_SET_NAME, b"p%d" % chance.randrange(10**6))
    libc.prctl(PR_SET_PDEATHSIG, chance.choice([0, signal.SIGUSR1]))
    for number in (signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if chance.choice([True, False]) else lambda *_: None)
    while True:
        yield


def a_thread_setting(chance: random.Random) -> Kind:
    os.setpriority(os.PRIO_PROCESS, 0, max(chance.randrange(10, 20), os.getpriority(os.PRIO_PROCESS, 0)))
    libc.prctl(PR_SET_TIMERSLACK, chance.randrange(1000, 100000))
    libc.prctl(PR_SET_NAME, b"t%d" % chance.randrange(10**6))
    before = thread_state()
    while True:
        yield
        assert thread_state() == before, (thread_state(), before)


def thread_state() -> tuple[int, int, bytes]:
    name = ctypes.create_string_buffer(16)
    libc.prctl(16, name)
    return os.getpriority(os.PRIO_PROCESS, 0), libc.prctl(PR_GET_TIMERSLACK), name.value


def a_dead_child(chance: random.Random) -> Kind:
    """It is not waited for before it has moved."""
    while True:
        code, by = chance.randrange(256), chance.choice([0, signal.SIGKILL, signal.SIGTERM])
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
            if by:
                os.kill(os.getpid(), by)
            os._exit(code)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        yield
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == (-by if by else code)


OF_PROCESS = [
    a_pipe, a_named_pipe, a_socket_pair, a_listener, an_eventfd, a_timerfd, an_epoll, an_inotify, a_memory_file,
    a_file, a_terminal, memory, a_mapped_file, an_alarm, settings, a_dead_child,
]  # fmt: skip
OF_THREAD = [a_thread_setting, a_pending_signal, a_pipe, memory, an_eventfd]


def self_state() -> dict[str, object]:
    """The properties of a process that are the same at each look."""
    fds = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            kind = os.readlink(f"/proc/self/fd/{name}").split(":[")[0]
            if kind.endswith("(deleted)") or kind == "pipe":  # which may have another name afterwards, or none
                kind = oct(stat.S_IFMT(os.stat(int(name)).st_mode))
            fd = int(name)
            fds[fd] = kind, fcntl.fcntl(fd, fcntl.F_GETFD), fcntl.fcntl(fd, fcntl.F_GETFL) & ~O_LARGEFILE
        except OSError:
            continue  # of the listing itself, or one that another thread had open for a moment
    status = Path("/proc/self/status").read_text().splitlines()
    kept = [
        line for line in status if line.startswith(("SigIgn", "SigCgt", "Threads", "Umask", "Name", "Groups", "Uid"))
    ]
    dead = ctypes.c_int()
    libc.prctl(PR_GET_PDEATHSIG, ctypes.byref(dead))
    return {
        "ids": (os.getpid(), os.getppid(), os.getpgid(0), os.getsid(0)),
        "fds": {fd: what for fd, what in fds.items() if not what[0].startswith(LOOKS)},
        "status": kept,
        "cwd": os.getcwd(),
        "limit": resource.getrlimit(resource.RLIMIT_NOFILE),
        "death": dead.value,
    }


def look(name: str, kinds: Sequence[Kind], process: bool) -> None:
    """Looks at all of them at each check, until the end. `process`: at what is the process's, too."""
    for kind in kinds:
        next(kind)
    state = self_state() if process else {}
    Path(f"{TOP}/ready/{name}").touch()
    number = 0
    while not os.path.exists(f"{TOP}/end"):
        if not os.path.exists(f"{TOP}/check.{number}"):
            time.sleep(0.003)
            continue
        if process:
            now = self_state()
            assert now == state, {key: (state[key], now[key]) for key in state if state[key] != now[key]}
        for kind in kinds:
            next(kind)
        if process:
            state = self_state()
        Path(f"{TOP}/done/{number}.{name}").touch()
        number += 1


def guarded(name: str, kinds: Sequence[Kind], process: bool) -> None:
    try:
        look(name, kinds, process)
    except BaseException:
        print(name, kinds, traceback.format_exc(), file=sys.stderr, flush=True)
        os._exit(1)


def people(chance: random.Random, name: str, depth: int) -> list[Person]:
    """The tree below a process: (its name, how it is, those below it)."""
    below = []
    for number in range(chance.choice([0, 1, 2, 3]) if depth < 3 else 0):
        how = chance.choice(["plain", "plain", "group", "session", "orphan"])
        below.append((f"{name}.{number}", how, people(chance, f"{name}.{number}", depth + 1)))
    return below


def live(seed: str, name: str, below: list[Person]) -> None:
    chance = random.Random(f"{seed} {name}")
    mine = [kind(chance) for kind in chance.sample(OF_PROCESS, chance.randrange(2, 7))]
    children = []
    for child, how, further in below:
        pid = os.fork()
        if pid == 0:
            parent = os.getpid()
            if how == "orphan" and os.fork():
                os._exit(0)
            while how == "orphan" and os.getppid() == parent:
                time.sleep(0.001)
            if how == "group":
                os.setpgid(0, 0)
            if how == "session":
                os.setsid()
            live(seed, child, further)
            os._exit(0)
        if how == "orphan":
            os.waitpid(pid, 0)
        else:
            children.append(pid)
    for number in range(chance.choice([0, 0, 1, 2])):
        threaded = [kind(chance) for kind in chance.sample(OF_THREAD, chance.randrange(1, 4))]
        threading.Thread(target=guarded, args=(f"{name}-t{number}", threaded, False), daemon=True).start()
    while any(not os.path.exists(f"{TOP}/ready/{name}-t{number}") for number in range(threading.active_count() - 1)):
        time.sleep(0.001)
    guarded(name, mine, True)
    for pid in children:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


if __name__ == "__main__":
    for directory in ("files", "ready", "done"):
        os.makedirs(directory, exist_ok=True)
    given = random.Random(sys.argv[1])
    drawn = people(given, "p", 0)
    live(sys.argv[1], "p", drawn)
