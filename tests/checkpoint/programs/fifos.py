"""Named pipes open in every way, with bytes in them, and one that a child waits to open: below the given directory."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import struct
import sys
import termios
import time
from pathlib import Path

place = sys.argv[1]


def waiting(fd: int) -> int:
    return int(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])


def name(text: str) -> str:
    return os.path.join(place, text)


for one in ("both", "two", "gone", "late", "alone"):
    os.mkfifo(name(one), 0o600)
both = os.open(name("both"), os.O_RDWR | os.O_NONBLOCK)
os.write(both, b"in both")
reader = os.open(name("two"), os.O_RDONLY | os.O_NONBLOCK)
writer, other = (os.open(name("two"), os.O_WRONLY) for _ in range(2))
fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 1 << 17)
os.write(writer, b"x" * 100000)
gone = os.open(name("gone"), os.O_RDWR)
os.unlink(name("gone"))
os.write(gone, b"removed")
alone_reader = os.open(name("alone"), os.O_RDONLY | os.O_NONBLOCK)
alone = os.open(name("alone"), os.O_WRONLY)
os.close(alone_reader)  # a writer without a reader
child = os.fork()
if child == 0:  # waits in its open for a writer
    for fd in (both, reader, writer, other, gone, alone):
        os.close(fd)
    with open(name("late")) as late:
        sys.exit(0 if late.read() == "at last" else 1)
while not Path(f"/proc/{child}/syscall").read_text().startswith("257 "):  # openat
    pass
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
assert stat.S_ISFIFO(os.fstat(both).st_mode)
assert os.path.sameopenfile(both, os.open(name("both"), os.O_RDWR))
assert os.read(both, 100) == b"in both"
assert waiting(reader) == 100000
assert os.read(reader, 1 << 18) == b"x" * 100000
assert fcntl.fcntl(reader, fcntl.F_GETPIPE_SZ) == 1 << 17
os.close(writer)
try:
    os.read(reader, 1)
    sys.exit("at its end")
except BlockingIOError:
    pass
os.write(other, b"more")
os.close(other)
assert os.read(reader, 10) == b"more"
assert os.read(reader, 1) == b""
assert os.read(gone, 100) == b"removed"
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
try:
    os.write(alone, b"x")
    sys.exit("somebody reads")
except BrokenPipeError:
    pass
with open(name("late"), "w") as begun:
    begun.write("at last")
assert os.waitpid(child, 0)[1] == 0
