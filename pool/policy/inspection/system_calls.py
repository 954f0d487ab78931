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
class SystemCall:
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
    0: SystemCall("read", For.INPUT, 0),
    1: SystemCall("write", For.OUTPUT, 0),
    2: SystemCall("open", For.OPENING),
    7: SystemCall("poll", For.EVENTS, polls=0),
    17: SystemCall("pread64", For.INPUT, 0),
    18: SystemCall("pwrite64", For.OUTPUT, 0),
    19: SystemCall("readv", For.INPUT, 0),
    20: SystemCall("writev", For.OUTPUT, 0),
    23: SystemCall("select", For.EVENTS),
    34: SystemCall("pause", For.SIGNAL),
    35: SystemCall("nanosleep", For.TIME),
    40: SystemCall("sendfile", For.OUTPUT, 0),
    42: SystemCall("connect", For.CONNECTION, 0),
    43: SystemCall("accept", For.CONNECTION, 0),
    44: SystemCall("sendto", For.OUTPUT, 0),
    45: SystemCall("recvfrom", For.INPUT, 0),
    46: SystemCall("sendmsg", For.OUTPUT, 0),
    47: SystemCall("recvmsg", For.INPUT, 0),
    61: SystemCall("wait4", For.CHILD),
    65: SystemCall("semop", For.MESSAGE),
    69: SystemCall("msgsnd", For.MESSAGE),
    70: SystemCall("msgrcv", For.MESSAGE),
    72: SystemCall("fcntl", For.LOCK, 0),
    73: SystemCall("flock", For.LOCK, 0),
    74: SystemCall("fsync", For.DISK, 0),
    75: SystemCall("fdatasync", For.DISK, 0),
    128: SystemCall("rt_sigtimedwait", For.SIGNAL),
    130: SystemCall("rt_sigsuspend", For.SIGNAL),
    162: SystemCall("sync", For.DISK),
    202: SystemCall("futex", For.FUTEX),
    219: SystemCall("restart_syscall", For.TIME),
    220: SystemCall("semtimedop", For.MESSAGE),
    230: SystemCall("clock_nanosleep", For.TIME),
    232: SystemCall("epoll_wait", For.EVENTS, 0),
    247: SystemCall("waitid", For.CHILD),
    257: SystemCall("openat", For.OPENING),
    270: SystemCall("pselect6", For.EVENTS),
    271: SystemCall("ppoll", For.EVENTS, polls=0),
    275: SystemCall("splice", For.INPUT, 0),
    276: SystemCall("tee", For.INPUT, 0),
    281: SystemCall("epoll_pwait", For.EVENTS, 0),
    288: SystemCall("accept4", For.CONNECTION, 0),
    299: SystemCall("recvmmsg", For.INPUT, 0),
    306: SystemCall("syncfs", For.DISK, 0),
    307: SystemCall("sendmmsg", For.OUTPUT, 0),
    326: SystemCall("copy_file_range", For.OUTPUT, 2),
    426: SystemCall("io_uring_enter", For.EVENTS, 0),
    441: SystemCall("epoll_pwait2", For.EVENTS, 0),
}

BY_MACHINE = {"x86_64": X86_64}


def call_of(machine: str, number: int | None) -> SystemCall | None:
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
