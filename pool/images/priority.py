"""Work on checkpoints that gives way to everything else on the machine: its owner comes first, and other jobs (D4).

Compressing, hashing and writing an image is done by threads of the lowest ordinary priority for the processor and idle
priority for the disk. The idle class for the processor would not do: between two chunks such a thread holds the
interpreter's lock, and the node waits for it. Work that a job waits for, on a machine that is its own meanwhile or on
the submit side, is done with `run_normal`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import functools
import os
import platform
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from pool.metering import counted_call

T = TypeVar("T")
#: Number of the system call ioprio_set by processor; IOPRIO_WHO_PROCESS; the idle class, as the call wants it.
_IOPRIO_SET = {"x86_64": 251, "aarch64": 30}
_THIS_THREAD, _IDLE = 1, 3 << 13
#: Images are worked on by so many threads at most: one that packs, the others for what comes and goes.
_THREADS = 4


def lower_priority() -> None:
    """Have the calling thread give way from now on. Does nothing where the system does not know how."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, 19)
    number = _IOPRIO_SET.get(platform.machine())
    if number is not None:
        ctypes.CDLL(None).syscall(number, _THIS_THREAD, 0, _IDLE)


@functools.cache
def _executor(prompt: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, "images", None if prompt else lower_priority)


_PROMPT: ContextVar[bool] = ContextVar("prompt", default=False)


@contextlib.contextmanager
def run_normal(*, when: bool = True) -> Iterator[None]:
    """A job waits for what is done in here: it has the priority of all else."""
    token = _PROMPT.set(when or _PROMPT.get())
    try:
        yield
    finally:
        _PROMPT.reset(token)


async def run_low_priority(function: Callable[..., T], *args: Any, **more: Any) -> T:
    """Call a function that takes its time, in a thread that gives way; within `run_normal` in one that does not."""
    call = counted_call(functools.partial(function, *args, **more))
    inside = copy_context()
    return await asyncio.get_running_loop().run_in_executor(_executor(_PROMPT.get()), lambda: inside.run(call))


def packers(most: int) -> ThreadPoolExecutor:
    """Threads that help the calling one, which was called by `run_low_priority`; they give way as it does."""
    return _packers(most, _PROMPT.get())


@functools.cache
def _packers(most: int, prompt: bool) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(most, "packing", None if prompt else lower_priority)
