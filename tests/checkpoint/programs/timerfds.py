"""Timers behind descriptors, some of which have gone off and were not read: ready, looked at after `go`."""

from __future__ import annotations

import ctypes
import os
import struct
import time
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)


def timerfd(clock: int, interval: float, value: float, flags: int = 0) -> int:
    fd = int(libc.timerfd_create(clock, os.O_NONBLOCK))
    spec = struct.pack("qqqq", int(interval), int(interval % 1 * 1e9), int(value), int(value % 1 * 1e9))
    assert libc.timerfd_settime(fd, flags, spec, None) == 0
    return fd


def left(fd: int) -> float:
    room = ctypes.create_string_buffer(32)
    libc.timerfd_gettime(fd, room)
    _, _, seconds, nanoseconds = struct.unpack("qqqq", room.raw)
    return int(seconds) + int(nanoseconds) / 1e9


unread = timerfd(1, 0.05, 0.01)  # periodic, gone off, nobody has read it
slow = timerfd(1, 1000, 0.001)  # the same, goes off again in 1000 s
once = timerfd(1, 0, 0.01)  # gone off for good
off = timerfd(1, 5, 0)  # an interval, and never set
noon = timerfd(0, 0, time.time() + 5000, 1)
begun = time.monotonic()
while any("ticks: 0" in Path(f"/proc/self/fdinfo/{fd}").read_text() for fd in (unread, slow, once)):
    pass
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)


def count(fd: int) -> int:
    try:
        return int.from_bytes(os.read(fd, 8), "little")
    except BlockingIOError:
        return 0


first = count(unread)
assert first >= 1, first
assert abs(first - (time.monotonic() - begun) / 0.05) < 6, (first, time.monotonic() - begun)
os.set_blocking(unread, True)
assert count(unread) >= 1
assert count(slow) == 1
assert 900 < left(slow) <= 1000, left(slow)
assert abs(1000 - (time.monotonic() - begun) - left(slow)) < 0.5, left(slow)
assert count(once) == 1
assert left(once) == left(off) == count(off) == 0
assert 4900 < left(noon) <= 5000, left(noon)
