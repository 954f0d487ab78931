"""Pseudo-terminals in many states: ready, looked at after `go`."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
import tty
from collections.abc import Callable
from typing import Any


def fails(number: int, call: Callable[..., object], *arguments: object) -> None:
    """The call comes back with that error."""
    try:
        call(*arguments)
    except OSError as error:
        if error.errno != number:
            raise
    else:
        sys.exit(f"{call} {arguments} worked")


def size(fd: int) -> tuple[Any, ...]:
    return struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))


def expect(fd: int, wanted: bytes) -> None:
    got = b""
    end = time.monotonic() + 10
    while len(got) < len(wanted) and time.monotonic() < end and select.select([fd], [], [], 0.5)[0]:
        got += os.read(fd, 100)
    assert got == wanted, (got, wanted)


def settled(fd: int, count: int) -> None:
    """The written bytes have come in."""
    end = time.monotonic() + 10
    while struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, bytes(4)))[0] < count:
        assert time.monotonic() < end
        time.sleep(0.001)


# lines, an end of file, and the start of a line; output that was not read
cooked_master, cooked = pty.openpty()
settings = termios.tcgetattr(cooked)
settings[3] &= ~termios.ECHO
termios.tcsetattr(cooked, termios.TCSANOW, settings)
fcntl.ioctl(cooked, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 101, 5, 6))
os.write(cooked_master, b"first\nsecond\nthird\x04\x04part")
os.write(cooked, b"out\nput")
os.chmod(os.ttyname(cooked), 0o600)
settled(cooked, 18)
# raw, in packet mode
raw_master, raw = pty.openpty()
tty.setraw(raw)
fcntl.ioctl(raw_master, termios.TIOCPKT, struct.pack("i", 1))
os.write(raw_master, bytes(range(256)))
os.write(raw, bytes(range(255, -1, -1)))
settled(raw, 256)
# never opened, locked
lone = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
# the other end was closed, and before it: this end
closed_master, closed = pty.openpty()
os.close(closed)
hung_master, hung = pty.openpty()
os.close(hung_master)
# stopped
stopped_master, stopped = pty.openpty()
os.write(stopped, b"before")
os.write(stopped_master, b"\x13")
poll = select.poll()
poll.register(stopped, select.POLLOUT)
while poll.poll(0):
    pass
# echo of what is typed comes once
typed_master, typed = pty.openpty()
os.write(typed_master, b"abc")
settled(typed_master, 3)
# a session with a controlling terminal, a foreground group and a background one
talk, child_end = os.pipe()
session, master = pty.fork()
if session == 0:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    fore = os.fork()
    if fore == 0:
        os.setpgid(0, 0)
        heard: list[str] = []
        signal.signal(signal.SIGINT, lambda *_: heard.append("int"))
        signal.signal(signal.SIGWINCH, lambda *_: heard.append("winch"))
        os.write(child_end, b"x")
        while len(set(heard)) < 2:
            time.sleep(0.005)
        os._exit(7)
    os.setpgid(fore, fore)
    os.tcsetpgrp(0, fore)
    own = os.open("/dev/tty", os.O_RDWR)
    os.write(child_end, b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(fore, 0)[1]) == 7
    os.tcsetpgrp(own, os.getpid())
    assert os.tcgetpgrp(0) == os.getpgid(0)
    line = os.read(own, 100)
    assert line == b"typed\n", line
    os.write(1, f"[{os.getsid(0) == os.getpid()}]".encode())
    os._exit(9)
for _ in range(2):
    os.read(talk, 1)
group = os.tcgetpgrp(master)
assert group not in (session, os.getpgid(0))
names = [os.ttyname(fd) for fd in (cooked, raw, stopped, typed)]
number = struct.unpack("I", fcntl.ioctl(lone, 0x80045430, bytes(4)))[0]
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)

assert [os.ttyname(fd) for fd in (cooked, raw, stopped, typed)] == names
assert termios.tcgetattr(cooked) == settings
assert size(cooked) == size(cooked_master) == (33, 101, 5, 6)
assert os.fstat(cooked).st_mode & 0o777 == 0o600
assert [os.read(cooked, 100) for _ in range(4)] == [b"first\n", b"second\n", b"third", b""]
os.write(cooked_master, b"ial\n")
assert os.read(cooked, 100) == b"partial\n"
expect(cooked_master, b"out\r\nput")
assert os.read(raw, 1000) == bytes(range(256))
got = os.read(raw_master, 1000)
assert got == b"\0" + bytes(range(255, -1, -1)), got
termios.tcflow(raw, termios.TCOOFF)
assert os.read(raw_master, 10) == b"\x04"  # TIOCPKT_STOP
assert struct.unpack("I", fcntl.ioctl(lone, 0x80045430, bytes(4)))[0] == number
os.set_blocking(lone, False)
fails(errno.EAGAIN, os.read, lone, 1)
fails(errno.EIO, os.open, f"/dev/pts/{number}", os.O_RDWR | os.O_NOCTTY)  # locked
fails(errno.EIO, os.read, closed_master, 1)
assert os.read(hung, 1) == b""
expect(stopped_master, b"before")
assert not poll.poll(0)
os.write(stopped_master, b"\x11")
assert poll.poll(5000)
os.write(stopped, b"!")
expect(stopped_master, b"!")
os.write(typed_master, b"d\n")
assert os.read(typed, 10) == b"abcd\n"
expect(typed_master, b"abcd\r\n")
assert os.tcgetpgrp(master) == group
os.write(master, b"\x03")
fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", 10, 20, 0, 0))
while os.tcgetpgrp(master) != session:
    time.sleep(0.005)
os.write(master, b"typed\n")
got = b""
while b"]" not in got:
    got += os.read(master, 100)
assert b"[True]" in got, got
assert os.waitstatus_to_exitcode(os.waitpid(session, 0)[1]) == 9
