"""The results of fstat and fdinfo for memory files, removed files and locks: the same before and after `go`."""

from __future__ import annotations

import fcntl
import os
import time


def removed(name: str, mode: int) -> int:
    number = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.fchmod(number, mode)
    os.unlink(name)
    return number


def look(number: int) -> tuple[object, ...]:
    found = os.fstat(number)
    data = os.lseek(number, 0, os.SEEK_DATA)
    return (
        oct(found.st_mode),
        found.st_size,
        found.st_mtime_ns,
        found.st_blocks < 100,
        data,
        os.lseek(number, 0, os.SEEK_HOLE),
    )


def locks(number: int) -> list[list[str]]:
    with open(f"/proc/self/fdinfo/{number}") as info:
        lines = info.read().splitlines()
    return [line.split()[2:6] for line in lines if line.startswith("lock:")]


memory = os.memfd_create("memory")
os.fchmod(memory, 0o642)
hidden = removed("hidden", 0o000)
sparse = removed("sparse", 0o640)
for number in (memory, hidden, sparse):
    os.pwrite(number, b"begin", 0)
    os.pwrite(number, b"end", 8 << 20)
    os.utime(number, (1e9, 1e9 + number))
locked, leased = os.open("locked", os.O_RDWR | os.O_CREAT), os.open("leased", os.O_RDONLY | os.O_CREAT)
fcntl.flock(locked, fcntl.LOCK_EX)
fcntl.fcntl(leased, fcntl.F_SETLEASE, fcntl.F_RDLCK)
linked = os.open("first", os.O_RDWR | os.O_CREAT)
os.link("first", "second")
os.unlink("first")
before = [look(number) for number in (memory, hidden, sparse)], locks(locked), locks(leased)
assert before[1]
assert before[2]
print("ready", flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
after = [look(number) for number in (memory, hidden, sparse)], locks(locked), locks(leased)
assert os.fstat(linked).st_ino == os.stat("second").st_ino
print("the same" if after == before else f"{before}\n{after}")
