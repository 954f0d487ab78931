"""Helpers for the tests of real keepers: a program, specs, ways to wait, a look at processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import psutil

from pool.starter.keeper import KeeperSpec, NativeKeeper, NativeKeepers
from pool.starter.spec import EndReport

T = TypeVar("T")

#: Seconds for anything that is waited for: the machine may be busy. Working code takes a small part of it.
PATIENCE = 60.0
#: A Python that a job of any user can run: that of the tests may lie in somebody's home.
PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable


def spec(scratch: Path, *argv: str, id: str = "1.0.0", **more: Any) -> KeeperSpec:
    """A job in `scratch` with its output in out and err there."""
    given: dict[str, Any] = {
        "env": {"PATH": "/usr/local/bin:/usr/bin:/bin"},
        "cwd": str(scratch),
        "uid": os.getuid(),
        "gid": os.getgid(),
        "scratch": str(scratch),
        "stdout": str(scratch / "out"),
        "stderr": str(scratch / "err"),
        "lease_seconds": 300.0,
        **more,
    }
    return KeeperSpec(id=id, argv=argv, **given)


def shell(scratch: Path, script: str, **more: Any) -> KeeperSpec:
    return spec(scratch, "/bin/sh", "-c", script, **more)


def helpers(keeper: NativeKeeper) -> list[psutil.Process]:
    """The processes that a keeper runs beside its job, the oldest first: supervisors, servers."""
    with contextlib.suppress(psutil.NoSuchProcess):
        its = psutil.Process(keeper.pid)
        there = [one for one in its.children() if one.status() != psutil.STATUS_ZOMBIE]
        return sorted((one for one in there if one.exe() == its.exe()), key=lambda one: one.pid)
    return []


async def soon(awaitable: Awaitable[T], seconds: float = PATIENCE) -> T:
    return await asyncio.wait_for(awaitable, seconds)


async def until(condition: Callable[[], bool], seconds: float = PATIENCE) -> None:
    """Waits for something that only the operating system can tell, and fails when it does not come."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it did not come to that in time"
        await asyncio.sleep(0.005)


def family(pid: int) -> list[psutil.Process]:
    """A keeper and everything below it, as this machine sees them."""
    try:
        top = psutil.Process(pid)
        return [top, *top.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def is_named(process: psutil.Process, *names: str) -> bool:
    """Whether a process has one of these names, and is no zombie; not where it is gone meanwhile."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.name() in names and process.status() != psutil.STATUS_ZOMBIE
    return False


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    def lives(process: psutil.Process) -> bool:
        try:
            return bool(process.status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False

    return [process for process in processes if lives(process)]


def related(directory: Path) -> list[psutil.Process]:
    """Every process that has the directory in its command line or holds its current directory below it."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
                continue
            if str(directory) in " ".join(process.cmdline()) or process.cwd().startswith(str(directory)):
                found.append(process)
    return found


@contextlib.asynccontextmanager
async def opened(directory: Path, program: Path, **more: Any) -> AsyncIterator[NativeKeepers]:
    """Keepers that are killed and forgotten at the end."""
    keepers = NativeKeepers(directory / "keepers", program, **more)
    await keepers.open()
    try:
        yield keepers
    finally:
        await soon(keepers.close(kill=True))


async def to_end(keepers: NativeKeepers, wanted: KeeperSpec) -> EndReport:
    keeper = await soon(keepers.start(wanted))
    end = await soon(keeper.ended)
    await keeper.forget()
    return end


def hard_kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
