"""Handles on processes, directories and links without a name, epolls of numbers that were given away, terminals that
nobody has open, timers: each is looked at when there is a file `go`.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import signal
import stat
import termios
import time
from collections.abc import Callable, Iterator

libc = ctypes.CDLL(None, use_errno=True)
checks: list[Callable[[], None]] = []
top = os.getcwd()


def looked_at(check: Callable[[], None]) -> None:
    checks.append(check)


def child() -> int:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    return pid


def waited(handle: int) -> int:
    """The process of a handle, which has ended."""
    ended = os.waitid(os.P_PIDFD, handle, os.WEXITED)
    assert ended is not None
    return ended.si_pid


def handles_on_processes() -> None:
    alive, dead, unwaited = child(), child(), child()
    handle, same, self_handle = os.pidfd_open(alive), os.pidfd_open(alive, os.O_NONBLOCK), os.pidfd_open(os.getpid())
    ended, again, late = os.pidfd_open(dead), os.pidfd_open(dead), os.pidfd_open(unwaited)
    copy = os.dup(handle)
    poll = select.epoll()
    poll.register(handle, select.EPOLLIN)
    for pid in (dead, unwaited):
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    os.waitpid(dead, 0)

    @looked_at
    def check() -> None:
        signal.pidfd_send_signal(self_handle, 0)
        assert os.fstat(ended).st_ino == os.fstat(again).st_ino != os.fstat(handle).st_ino
        try:
            signal.pidfd_send_signal(ended, 0)
            raise AssertionError("it has ended")
        except ProcessLookupError:
            pass
        assert not poll.poll(0)
        signal.pidfd_send_signal(copy, signal.SIGKILL)
        assert poll.poll(10) == [(handle, select.EPOLLIN)]
        assert fcntl.fcntl(same, fcntl.F_GETFL) & os.O_NONBLOCK
        assert waited(handle) == alive
        assert waited(late) == unwaited


def without_names() -> None:
    os.makedirs("way/to/nowhere")
    os.symlink("somewhere", "way/link")
    inside, link = os.open("way/to/nowhere", os.O_RDONLY), os.open("way/link", os.O_PATH | os.O_NOFOLLOW)
    same = os.open("way/to", os.O_PATH)
    twin = os.open("way/to", os.O_RDONLY)
    os.unlink("way/link")
    os.removedirs("way/to/nowhere")
    os.mkdir("was here")
    os.chmod("was here", 0o750)
    os.chdir("was here")
    here = os.open(".", os.O_RDONLY)
    os.rmdir("../was here")

    @looked_at
    def check() -> None:
        for fd in (inside, same, twin, here):
            assert stat.S_ISDIR(os.fstat(fd).st_mode)
            assert not os.fstat(fd).st_nlink
        assert os.path.samestat(os.fstat(same), os.fstat(twin))
        assert os.path.samestat(os.fstat(here), os.stat("/proc/self/cwd"))
        assert stat.S_IMODE(os.fstat(here).st_mode) == 0o750
        assert os.readlink("", dir_fd=link) == "somewhere"
        try:
            os.open("file", os.O_CREAT | os.O_WRONLY)
            raise AssertionError("it was removed")
        except FileNotFoundError:
            pass
        try:
            os.getcwd()
            raise AssertionError("it was removed")
        except FileNotFoundError:
            pass


def epoll_of_numbers_given_away() -> None:
    poll, ends = select.epoll(), [os.pipe() for _ in range(3)]
    number = os.dup(ends[0][0])
    for reader, _ in ends:
        os.dup2(reader, number)
        libc.epoll_ctl(poll.fileno(), 1, number, bytes([1, 0, 0, 0, reader, 0, 0, 0, 0, 0, 0, 0]))
    os.close(number)

    @looked_at
    def check() -> None:
        for reader, writer in ends:
            os.write(writer, b"x")
            assert poll.poll(10) == [(reader, select.EPOLLIN)]
            assert os.read(reader, 1) == b"x"


def flags_of_pipes() -> None:
    reader, writer = os.pipe()
    both = fcntl.fcntl(reader, fcntl.F_GETFL), fcntl.fcntl(writer, fcntl.F_GETFL)

    @looked_at
    def check() -> None:
        assert both == (fcntl.fcntl(reader, fcntl.F_GETFL), fcntl.fcntl(writer, fcntl.F_GETFL))


def a_terminal_that_nobody_has_open() -> None:
    """A session's, as its controlling one; and one whose master is closed."""
    told, tell = os.pipe()
    asked, ask = os.pipe()
    master, slave = os.openpty()
    pid = os.fork()
    if pid == 0:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        os.close(slave)
        os.write(tell, b"ready")
        os.read(asked, 1)
        own = os.open("/dev/tty", os.O_RDWR)
        os.write(tell, b"%d" % (os.tcgetpgrp(own) == os.getpid()))
        os._exit(0)
    os.close(slave)
    assert os.read(told, 9) == b"ready"
    gone, first = os.openpty()
    second = os.open(os.ttyname(first), os.O_RDWR | os.O_NOCTTY)
    os.close(gone)

    @looked_at
    def check() -> None:
        for fd in (first, second):
            assert os.read(fd, 1) == b""
        os.write(ask, b"x")
        assert os.read(told, 1) == b"1"
        os.waitpid(pid, 0)
        os.close(master)


def a_program_in_memory() -> None:
    """It can be run: nobody has it open for writing, as the kernel counts."""
    program = os.memfd_create("true", 0)
    with open("/bin/true", "rb") as source:
        os.write(program, source.read())

    @looked_at
    def check() -> None:
        pid = os.posix_spawn(f"/proc/self/fd/{program}", ["true"], {})
        assert os.waitpid(pid, 0)[1] == 0


def timers() -> None:
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    before = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 500, 70)
    fd = libc.timerfd_create(1, 0)
    libc.timerfd_settime(fd, 0, (ctypes.c_long * 4)(70, 0, 500, 0), None)
    timer = ctypes.c_int()
    sigevent = (ctypes.c_int * 16)(0, 0, signal.SIGALRM, 0)
    assert libc.timer_create(1, sigevent, ctypes.byref(timer)) == 0
    assert libc.timer_settime(timer, 0, (ctypes.c_long * 4)(70, 0, 500, 0), None) == 0
    after = time.monotonic()

    def all_left() -> Iterator[float]:
        yield signal.getitimer(signal.ITIMER_REAL)[0]
        for call, what in ((libc.timerfd_gettime, fd), (libc.timer_gettime, timer)):
            values = (ctypes.c_long * 4)()
            assert call(what, values) == 0
            yield values[2] + values[3] / 1e9

    @looked_at
    def check() -> None:
        """By the job's clock each is as far as it was: moved ever so often, none is late or early."""
        for left in all_left():
            now = time.monotonic()
            assert 500 - (now - before) - 0.1 < left < 500 - (now - after) + 0.5, (left, now - before)


handles_on_processes()
epoll_of_numbers_given_away()
flags_of_pipes()
a_terminal_that_nobody_has_open()
a_program_in_memory()
timers()
without_names()
print("ready", flush=True)
while not os.path.exists(f"{top}/go"):
    time.sleep(0.01)
for check in checks:
    check()
