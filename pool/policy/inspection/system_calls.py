"""The system calls in which a thread can sleep, and what their arguments say about what it waits for.

The numbers are Linux's for x86-64 (arch/x86/entry/syscalls/syscall_64.tbl). With the extra `inspect` installed,
python-ptrace gives the names of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class For(Enum):
    """For what a call waits."""

    INPUT = "input"
    OUTPUT = "output"
    CONNECTION = "a connection"
    CHILD = "a child"
    FUTEX = "a futex"
    TIME = "time"
    SIGNAL = "a signal"
    LOCK = "a lock"
    EVENTS = "events"
    DISK = "the disk"
    OPENING = "opening"
    MESSAGE = "a message"


@dataclass(frozen=True, slots=True)
class Call:
    """One system call.

    Attributes:
        descriptor: which argument is the file descriptor that it waits at; None for none.
        polls: which argument points to a list of `struct pollfd`, whose length is the next argument.
    """

    name: str
    waits: For
    descriptor: int | None = None
    polls: int | None = None


X86_64 = {
    0: Call("read", For.INPUT, 0),
    1: Call("write", For.OUTPUT, 0),
    2: Call("open", For.OPENING),
    7: Call("poll", For.EVENTS, polls=0),
    17: Call("pread64", For.INPUT, 0),
    18: Call("pwrite64", For.OUTPUT, 0),
    19: Call("readv", For.INPUT, 0),
    20: Call("writev", For.OUTPUT, 0),
    23: Call("select", For.EVENTS),
    34: Call("pause", For.SIGNAL),
    35: Call("nanosleep", For.TIME),
    40: Call("sendfile", For.OUTPUT, 0),
    42: Call("connect", For.CONNECTION, 0),
    43: Call("accept", For.CONNECTION, 0),
    44: Call("sendto", For.OUTPUT, 0),
    45: Call("recvfrom", For.INPUT, 0),
    46: Call("sendmsg", For.OUTPUT, 0),
    47: Call("recvmsg", For.INPUT, 0),
    61: Call("wait4", For.CHILD),
    65: Call("semop", For.MESSAGE),
    69: Call("msgsnd", For.MESSAGE),
    70: Call("msgrcv", For.MESSAGE),
    72: Call("fcntl", For.LOCK, 0),
    73: Call("flock", For.LOCK, 0),
    74: Call("fsync", For.DISK, 0),
    75: Call("fdatasync", For.DISK, 0),
    128: Call("rt_sigtimedwait", For.SIGNAL),
    130: Call("rt_sigsuspend", For.SIGNAL),
    162: Call("sync", For.DISK),
    202: Call("futex", For.FUTEX),
    219: Call("restart_syscall", For.TIME),
    220: Call("semtimedop", For.MESSAGE),
    230: Call("clock_nanosleep", For.TIME),
    232: Call("epoll_wait", For.EVENTS, 0),
    247: Call("waitid", For.CHILD),
    257: Call("openat", For.OPENING),
    270: Call("pselect6", For.EVENTS),
    271: Call("ppoll", For.EVENTS, polls=0),
    275: Call("splice", For.INPUT, 0),
    276: Call("tee", For.INPUT, 0),
    281: Call("epoll_pwait", For.EVENTS, 0),
    288: Call("accept4", For.CONNECTION, 0),
    299: Call("recvmmsg", For.INPUT, 0),
    306: Call("syncfs", For.DISK, 0),
    307: Call("sendmmsg", For.OUTPUT, 0),
    326: Call("copy_file_range", For.OUTPUT, 2),
    426: Call("io_uring_enter", For.EVENTS, 0),
    441: Call("epoll_pwait2", For.EVENTS, 0),
}

BY_MACHINE = {"x86_64": X86_64}


def call_of(machine: str, number: int | None) -> Call | None:
    """The call of that number, None where a thread does not wait in it or it is not known here."""
    return BY_MACHINE.get(machine, {}).get(number) if number is not None else None


def name_of(machine: str, number: int) -> str:
    """The call's name, its number where no name is known."""
    known = call_of(machine, number)
    if known is not None:
        return known.name
    if machine == "x86_64":
        try:
            from ptrace.syscall.linux.x86_64 import SYSCALL_NAMES
        except ImportError:
            pass
        else:
            return str(SYSCALL_NAMES.get(number, f"system call {number}"))
    return f"system call {number}"
