"""System calls with the names of their arguments, as python-ptrace knows them (the extra `inspect`)."""

from __future__ import annotations

from collections.abc import Callable

from pool.errors import PoolError
from pool.policy.inspection.model import Thread
from pool.policy.inspection.system_calls import name_of

#: A thread's system call as text, on a machine of this architecture.
Decoder = Callable[[str, Thread], str]
#: Arguments that are addresses in the process, and are written as such.
_POINTER = "*"
#: A number of 32 bits and more that stands for a negative one.
_SIGNED = 1 << 31


def decoder() -> Decoder:
    """The decoder of system calls.

    Raises:
        PoolError: python-ptrace is not installed.
    """
    try:
        from ptrace.syscall import SYSCALL_PROTOTYPES
    except ImportError:
        raise PoolError(
            "--calls needs python-ptrace, which is not installed", hint="pip install 'poolnode[inspect]'"
        ) from None

    def decode(machine: str, thread: Thread) -> str:
        if thread.call is None:
            return "its system call is not known"
        if thread.call < 0:
            return "in no system call"
        name = name_of(machine, thread.call)
        _, parameters = SYSCALL_PROTOTYPES.get(name, ("", ()))
        if not parameters:
            return f"{name}({', '.join(map(hex, thread.arguments))})"
        pairs = zip(parameters, thread.arguments, strict=False)
        return f"{name}({', '.join(f'{label}={_value(kind, value)}' for (kind, label), value in pairs)})"

    return decode


def _value(kind: str, value: int) -> str:
    if _POINTER in kind:
        return hex(value) if value else "NULL"
    if kind == "int" and value & 0xFFFFFFFF >= _SIGNED:
        return str((value & 0xFFFFFFFF) - (1 << 32))
    return str(value)
