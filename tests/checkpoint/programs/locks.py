# ruff: noqa: SIM115 (open files are what this program is about)
"""Locks of every kind, each tried by another process after the checkpoint."""

from __future__ import annotations

import fcntl
import os
import struct
import time

TRY = {"posix": fcntl.F_SETLK, "open file": 37}


def taken(name: str, start: int = 0, length: int = 0, kind: int = fcntl.F_WRLCK) -> bool:
    """Whether another process is kept from the lock."""
    if (pid := os.fork()) == 0:
        with open(name, "r+") as file:
            try:
                fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", kind, 0, start, length, 0))
            except OSError:
                os._exit(1)
        os._exit(0)
    return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def flocked(name: str, how: int) -> bool:
    """The same for flock."""
    with open(name) as file:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


for name in ("whole", "shared", "posix", "open file", "child's"):
    with open(name, "w") as file:
        file.write("x" * 100)
whole = open("whole", "r+")
fcntl.flock(whole, fcntl.LOCK_EX)
shared = open("shared")
fcntl.flock(shared, fcntl.LOCK_SH)
posix, again = open("posix"), open("posix", "r+")
fcntl.lockf(again, fcntl.LOCK_EX, 10, 20)
fcntl.lockf(posix, fcntl.LOCK_SH, 5, 60)
own = open("open file", "r+")
fcntl.fcntl(own, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 7, 0, 0))
inherited = open("child's", "r+")
if (child := os.fork()) == 0:
    fcntl.lockf(inherited, fcntl.LOCK_EX, 3)
    while not os.path.exists("done"):
        time.sleep(0.01)
    os._exit(0)
while not taken("child's"):
    time.sleep(0.01)
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
print(flocked("whole", fcntl.LOCK_SH), flocked("shared", fcntl.LOCK_SH), flocked("shared", fcntl.LOCK_EX))
print([taken("posix", at, 1) for at in (19, 20, 29, 30, 60, 64, 65)], taken("posix", 60, 1, fcntl.F_RDLCK))
print(taken("open file", 6, 1), taken("open file", 7, 1), taken("open file", 1000, 1))
print(taken("child's", 2, 1), taken("child's", 3, 1))
fcntl.lockf(again, fcntl.LOCK_UN)
print(taken("posix", 20, 1))
open("done", "w")
os.waitpid(child, 0)
print(taken("child's"))
